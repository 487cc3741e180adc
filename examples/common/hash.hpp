// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hash: FNV-1a over bytes, to tell contents apart that nobody has made equal on purpose.
//
//   examples::Hash hash;
//   hash.add(std::as_bytes(std::span(numbers)));
//   std::puts(hash.text().c_str());               // 16 hexadecimal digits

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>

namespace examples {

class Hash {
 public:
  template <class Bytes>
  void add(const Bytes& bytes) {
    for (const auto byte : bytes) hash_ = (hash_ ^ static_cast<std::uint8_t>(byte)) * 0x100000001b3;
  }
  std::string text() const {
    char text[17];
    std::snprintf(text, sizeof(text), "%016" PRIx64, hash_);
    return text;
  }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace examples
