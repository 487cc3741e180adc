// SPDX-License-Identifier: Apache-2.0
#pragma once

// DecodeTeam: threads with a decoder each, which share the tasks of one caller. The caller does
// something else, and then helps.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <penstock/images/decoded_images.hpp>
#include <thread>
#include <vector>

namespace penstock::images {

/// start() and finish() are for one thread. Nothing allocates after construction.
class DecodeTeam {
 public:
  /// Does task number `task`; must not throw.
  using Task = void (*)(void* context, std::int64_t task, RowDecoder& decoder);

  DecodeTeam(int threads, const JpegOptions& options);
  DecodeTeam(const DecodeTeam&) = delete;
  DecodeTeam& operator=(const DecodeTeam&) = delete;
  ~DecodeTeam();

  /// Lets the threads begin with tasks 0 ... tasks - 1.
  void start(std::int64_t tasks, Task task, void* context);
  /// Helps until no task is left, and waits for those that others do. Their effects are visible.
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
