// SPDX-License-Identifier: Apache-2.0
#pragma once

// tell(): prints a line on the program's standard error, for errors that cannot be returned.

#include <unistd.h>

#include <penstock/version.hpp>
#include <string>

#include "programs/file_size_signal.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::inject {

inline void tell(const std::string& what) {
  const programs::FileSizeSignal blocked;
  const std::string line =
      "penstock-trace: process " + std::to_string(::getpid()) + ": " + what + "\n";
  [[maybe_unused]] const ::ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace penstock::trace::inject
