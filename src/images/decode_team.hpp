// SPDX-License-Identifier: Apache-2.0
#pragma once

// DecodeTeam: threads, each with a decoder, that share the tasks of one caller. The caller does
// other work first and then helps.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <penstock/images/decoded_images.hpp>
#include <thread>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::images {

/// Call start() and finish() from one thread. Nothing is allocated after construction.
class DecodeTeam {
 public:
  /// Runs task number `task`; it must not throw.
  using Task = void (*)(void* context, std::int64_t task, RowDecoder& decoder);

  DecodeTeam(int threads, const JpegOptions& options);
  DecodeTeam(const DecodeTeam&) = delete;
  DecodeTeam& operator=(const DecodeTeam&) = delete;
  ~DecodeTeam();

  /// Starts the threads with tasks 0 ... tasks - 1.
  void start(std::int64_t tasks, Task task, void* context);
  /// Helps until no task is left, then waits for the tasks of other threads. Their effects are
  /// visible afterwards.
  void finish();
  /// The decoder of the calling thread, between finish() and start().
  RowDecoder& own() { return own_; }

 private:
  void end();
  void serve(RowDecoder& decoder);
  void do_tasks(RowDecoder& decoder);

  RowDecoder own_;
  std::vector<RowDecoder> decoders_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Task task_ = nullptr;
  void* context_ = nullptr;
  std::int64_t tasks_ = 0;
  std::atomic<std::int64_t> next_{0};
  std::uint64_t round_ = 0;
  int busy_ = 0;
  bool end_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace penstock::images
