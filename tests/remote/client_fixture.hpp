// SPDX-License-Identifier: Apache-2.0
#pragma once

// ClientFixture: a server with one file, and options with which each read is a request of its own.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <penstock/remote.hpp>
#include <vector>

#include "server.hpp"

namespace penstock::test {

/// Small parts, so that a small file has many; a head of one byte, so that reads are requests.
inline remote::Options small() {
  remote::Options options;
  options.part_bytes = 256 << 10;
  options.head_bytes = 1;
  options.backoff = std::chrono::milliseconds(5);
  options.hedging = false;
  return options;
}

inline bool reads(const File& file, const std::vector<std::byte>& all, std::size_t offset,
                  std::size_t bytes) {
  std::vector<std::byte> read(bytes);
  const std::size_t count = file.read(offset, read);
  return count == std::min(bytes, all.size() - offset) &&
         std::equal(read.begin(), read.begin() + static_cast<std::ptrdiff_t>(count),
                    all.begin() + static_cast<std::ptrdiff_t>(offset));
}

struct ClientFixture {
  ClientFixture() { server.put("a.bin", all); }
  Server server;
  std::vector<std::byte> all = random_bytes(3'000'000, 7);
};

}  // namespace penstock::test
