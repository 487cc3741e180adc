// SPDX-License-Identifier: Apache-2.0
#pragma once

// TarWriter: a tar file (POSIX.1-1988, ustar) of small files, in memory.
//
//   TarWriter tar;
//   tar.add("train_00000000.jpg", bytes);
//   file.write(tar.finished());

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace example_data {

class TarWriter {
 public:
  /// Throws std::invalid_argument for a name of 100 characters or more.
  void add(std::string_view name, std::span<const std::byte> bytes) {
    Header header{};
    if (name.size() >= header.name.size())
      throw std::invalid_argument("tar: the name is too long: " + std::string(name));
    std::memcpy(header.name.data(), name.data(), name.size());
    put(header.mode, 0644);
    put(header.user, 0);
    put(header.group, 0);
    put(header.bytes, bytes.size());
    put(header.time, 0);
    header.type = '0';
    std::memcpy(header.magic.data(),
                "ustar\0"
                "00",
                8);
    header.sum.fill(' ');
    unsigned sum = 0;
    for (const std::byte byte : std::as_bytes(std::span(&header, 1)))
      sum += std::to_integer<unsigned>(byte);
    std::snprintf(header.sum.data(), 7, "%06o", sum);
    text_.append(reinterpret_cast<const char*>(&header), sizeof(header));
    text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    text_.resize((text_.size() + 511) / 512 * 512);
  }

  /// Call it once, last.
  const std::string& finished() {
    text_.append(1024, '\0');
    return text_;
  }

 private:
  struct Header {
    std::array<char, 100> name;
    std::array<char, 8> mode, user, group;
    std::array<char, 12> bytes, time;
    std::array<char, 8> sum;
    char type;
    std::array<char, 100> link;
    std::array<char, 8> magic;
    std::array<char, 247> rest;
  };
  static_assert(sizeof(Header) == 512);

  template <std::size_t size>
  static void put(std::array<char, size>& field, std::size_t value) {
    std::snprintf(field.data(), size, "%0*zo", static_cast<int>(size) - 1, value);
  }

  std::string text_;
};

}  // namespace example_data
