// SPDX-License-Identifier: Apache-2.0
#pragma once

// in_parts(): some work that is cut into parts, one for each thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <penstock/version.hpp>
#include <system_error>
#include <thread>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Calls `work(part, begin, end)` for `parts` ranges of 0 to `count` - 1, in order of their
/// numbers, each on a thread, and returns when all have returned. Where the system has no more
/// threads, this one does the work. Throws what the first part has thrown.
template <class Work>
void in_parts(std::uint64_t count, std::size_t parts, const Work& work) {
  std::vector<std::exception_ptr> errors(parts);
  const auto do_part = [&](std::size_t part) noexcept {
    const std::uint64_t each = count / parts, more = count % parts;
    const std::uint64_t begin = part * each + std::min<std::uint64_t>(part, more);
    try {
      work(part, begin, begin + each + (part < more ? 1 : 0));
    } catch (...) {
      errors[part] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(parts);
    for (std::size_t part = 1; part < parts; ++part) {
      try {
        threads.emplace_back(do_part, part);
      } catch (const std::system_error&) {
        do_part(part);
      }
    }
    do_part(0);
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace penstock::detail
