// SPDX-License-Identifier: Apache-2.0
#pragma once

// Readers: threads that read a file all the time.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <penstock/file.hpp>
#include <thread>
#include <vector>

namespace penstock::test {

class Readers {
 public:
  Readers(const File& file, int count) {
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this, file, i] {
        std::vector<std::byte> bytes(100);
        while (!is_over_) file.read(static_cast<std::uint64_t>(100 * i), bytes);
      });
  }
  ~Readers() {
    is_over_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;

 private:
  std::atomic<bool> is_over_{false};
  std::vector<std::thread> threads_;
};

}  // namespace penstock::test
