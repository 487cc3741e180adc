// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the runtime tells on standard error: what no error code of CUDA can.

#include <new>
#include <string>

namespace penstock::emulation::detail {

/// Writes "penstock: " and the text, as one line.
void report(const std::string& text) noexcept;

/// The same, then ends the process: the runtime cannot go on, and no call can say so.
[[noreturn]] void give_up(const std::string& text) noexcept;

/// The system has not given what the runtime needs. Calls of CUDA return
/// cudaErrorMemoryAllocation; emulation::reset throws it.
class OutOfResources : public std::bad_alloc {
 public:
  explicit OutOfResources(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

}  // namespace penstock::emulation::detail
