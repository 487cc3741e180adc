// SPDX-License-Identifier: Apache-2.0

#include "decode_team.hpp"

namespace penstock::inline PENSTOCK_ABI::images {

DecodeTeam::DecodeTeam(int threads, const JpegOptions& options) : own_(options) {
  for (int i = 0; i < threads; ++i) decoders_.emplace_back(options);
  try {
    for (RowDecoder& decoder : decoders_)
      threads_.emplace_back([this, &decoder] { serve(decoder); });
  } catch (...) {
    end();
    throw;
  }
}

DecodeTeam::~DecodeTeam() {
  end();
}

void DecodeTeam::end() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void DecodeTeam::start(std::int64_t tasks, Task task, void* context) {
  {
    std::unique_lock lock(mutex_);
    // A thread that came late to the last round may still be looking for a task.
    changed_.wait(lock, [&] { return busy_ == 0; });
    task_ = task;
    context_ = context;
    tasks_ = tasks;
    next_.store(0, std::memory_order_relaxed);
    ++round_;
  }
  if (tasks > 0) changed_.notify_all();
}

void DecodeTeam::finish() {
  do_tasks(own_);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return busy_ == 0; });
}

void DecodeTeam::serve(RowDecoder& decoder) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return end_ || round_ != seen; });
    if (end_) return;
    seen = round_;
    ++busy_;
    lock.unlock();
    do_tasks(decoder);
    lock.lock();
    if (--busy_ == 0) changed_.notify_all();
  }
}

void DecodeTeam::do_tasks(RowDecoder& decoder) {
  for (;;) {
    const std::int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks_) return;
    task_(context_, task, decoder);
  }
}

}  // namespace penstock::images
