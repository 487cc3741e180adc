// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rows of a table, each of which holds its number, and what was read of them:
//
//   const auto path = numbered_rows(directory / "a.bin", 0, 100, 16);
//   CHECK(rows_of(bytes, 16) == std::vector<std::uint64_t>{7, 3});

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

namespace penstock::test {

/// A file of `count` rows of `bytes` bytes, at least 8: the number of the row, from `first` on, and
/// that number again and again as far as there is room.
inline std::filesystem::path numbered_rows(const std::filesystem::path& path, std::uint64_t first,
                                           std::uint64_t count, std::size_t bytes) {
  std::ofstream file(path, std::ios::binary);
  for (std::uint64_t i = first; i < first + count; ++i) {
    std::string row(bytes, '\0');
    for (std::size_t at = 0; at < bytes; ++at)
      row[at] = reinterpret_cast<const char*>(&i)[at % sizeof i];
    file << row;
  }
  return path;
}

/// The number of each row; ~0 for one that is not whole.
inline std::vector<std::uint64_t> rows_of(std::span<const std::byte> all, std::size_t bytes) {
  std::vector<std::uint64_t> numbers;
  for (; all.size() >= bytes; all = all.subspan(bytes)) {
    std::uint64_t number = 0;
    std::memcpy(&number, all.data(), sizeof number);
    for (std::size_t at = 0; at < bytes; ++at)
      if (all[at] != reinterpret_cast<const std::byte*>(&number)[at % sizeof number])
        number = ~0ull;
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace penstock::test
