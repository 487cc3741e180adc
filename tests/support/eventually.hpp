// SPDX-License-Identifier: Apache-2.0
#pragma once

// For what happens by itself, at a time that nobody promises (a callback on a thread of the
// runtime, work that is polled for):
//
//   CHECK(eventually([&] { return cudaStreamQuery(stream) == cudaSuccess; }));
//
// Never to give something time to go wrong: that is what gates are for.

#include <chrono>
#include <thread>

namespace penstock::test {

/// Asks until the answer is true; false after 20 seconds of asking.
template <class Predicate>
bool eventually(Predicate&& is_true) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!is_true()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace penstock::test
