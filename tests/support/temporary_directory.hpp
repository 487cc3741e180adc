// SPDX-License-Identifier: Apache-2.0
#pragma once

// A directory of its own for a test, removed at the end of its scope, and files of records in it:
//
//   const TemporaryDirectory directory;
//   const auto path = directory.records("a.bin", 0, 100, 3073);
//   CHECK(is_record(RecordFile{{path}, 3073}[7], 7));

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "catch.hpp"

namespace penstock::test {

/// The byte that record `index` of TemporaryDirectory::records is made of; never 0, which is what
/// lost pages read as.
inline std::byte record_byte(std::uint64_t index) {
  return static_cast<std::byte>(1 + index % 255);
}

inline bool is_record(std::span<const std::byte> bytes, std::uint64_t index) {
  for (const std::byte byte : bytes)
    if (byte != record_byte(index)) return false;
  return true;
}

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "penstock_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::filesystem::path operator/(const char* name) const { return path_ / name; }

  /// A file of `count` records of `bytes` bytes; each byte of its record i is
  /// record_byte(first + i).
  std::filesystem::path records(const char* name, std::size_t first, std::size_t count,
                                std::size_t bytes) const {
    std::ofstream file(path_ / name, std::ios::binary);
    for (std::size_t i = 0; i < count; ++i)
      file << std::string(bytes, static_cast<char>(record_byte(first + i)));
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace penstock::test
