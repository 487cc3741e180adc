// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a program prints, until the system has it: a full disk is told at the end, if at all.

#include <cstdio>
#include <iostream>
#include <stdexcept>

namespace examples {

/// Call it behind the last line. Throws std::runtime_error where something that was printed, by
/// std::cout or std::printf, is lost.
inline void finish_output() {
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw std::runtime_error("the standard output cannot be written");
}

}  // namespace examples
