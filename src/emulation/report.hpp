// SPDX-License-Identifier: Apache-2.0
#pragma once

// Messages on standard error for what no error code of CUDA can express.

#include <new>
#include <penstock/version.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

/// Writes "penstock: " and the text, as one line.
void report(const std::string& text) noexcept;

/// Writes the message, then ends the process: the runtime cannot continue, and no call can return
/// an error.
[[noreturn]] void give_up(const std::string& text) noexcept;

/// Thrown when the system refuses a resource that the runtime needs. Calls of CUDA return
/// cudaErrorMemoryAllocation; emulation::reset throws it.
class OutOfResources : public std::bad_alloc {
 public:
  explicit OutOfResources(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

}  // namespace penstock::emulation::detail
