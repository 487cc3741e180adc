// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is written to standard error while this lives, by any thread:
//
//   const CapturedStandardError errors;
//   ...
//   CHECK(errors.contains("has waited"));

#include <unistd.h>

#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace penstock::test {

class CapturedStandardError {
 public:
  CapturedStandardError() : file_(std::tmpfile()), before_(dup(STDERR_FILENO)) {
    std::fflush(stderr);
    if (file_ == nullptr || before_ < 0 || dup2(fileno(file_), STDERR_FILENO) < 0)
      throw std::runtime_error("standard error cannot go to a file");
  }
  ~CapturedStandardError() {
    std::fflush(stderr);
    dup2(before_, STDERR_FILENO);
    close(before_);
    std::fclose(file_);
  }
  CapturedStandardError(const CapturedStandardError&) = delete;
  CapturedStandardError& operator=(const CapturedStandardError&) = delete;

  std::string text() const {
    std::string found;
    std::array<char, 4096> part{};
    for (ssize_t size = 1; size > 0;) {
      size = pread(fileno(file_), part.data(), part.size(), static_cast<off_t>(found.size()));
      if (size > 0) found.append(part.data(), static_cast<std::size_t>(size));
    }
    return found;
  }
  bool contains(const std::string& part) const { return text().find(part) != std::string::npos; }

 private:
  std::FILE* file_;
  int before_;
};

}  // namespace penstock::test
