// SPDX-License-Identifier: Apache-2.0
#pragma once

// ReceiveHeap: keeps the memory that libcurl receives in. Before version 8.8 it allocates a buffer
// for each transfer, and frees it behind. Where freed memory is at the end of a thread's heap, the
// malloc of glibc gives it back to the system, and then each transfer has a page fault for each
// page that it receives: up to 40 % of the CPU's time for objects of 128 KiB.

#include <curl/curl.h>

#include <cstddef>
#include <cstdlib>
#include <penstock/version.hpp>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::remote {

/// libcurl's default of 16 KiB costs about half of the throughput.
inline constexpr long kReceiveBuffer = 512L << 10;

/// For the thread that makes it, until it ends. Memory that is not written to is not taken.
class ReceiveHeap {
 public:
  explicit ReceiveHeap(std::size_t buffers) {
    if (::curl_version_info(CURLVERSION_NOW)->version_num >= 0x080800) return;
    // The first one is mapped, as it is larger than any before; when it is freed, that changes.
    std::free(allocate());
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < buffers; ++i) blocks.push_back(allocate());
    last_ = allocate();  // While it is there, the others are not at the end of the heap.
    for (void* const block : blocks) std::free(block);
  }
  ReceiveHeap(const ReceiveHeap&) = delete;
  ReceiveHeap& operator=(const ReceiveHeap&) = delete;
  ~ReceiveHeap() { std::free(last_); }

 private:
  static void* allocate() noexcept {
    void* volatile block = std::malloc(static_cast<std::size_t>(kReceiveBuffer) + 1);
    return block;
  }

  void* last_ = nullptr;
};

}  // namespace penstock::remote
