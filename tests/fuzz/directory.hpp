// SPDX-License-Identifier: Apache-2.0
#pragma once

// A directory for the files of one fuzz target, which its inputs use one after the other.

#include <cstdlib>
#include <filesystem>
#include <string>

#include "fuzz.hpp"

namespace penstock::test {

class Directory {
 public:
  Directory() {
    std::string name = (std::filesystem::temp_directory_path() / "penstock_fuzz_XXXXXX").string();
    require(::mkdtemp(name.data()) != nullptr, "there is a directory");
    path_ = name;
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace penstock::test
