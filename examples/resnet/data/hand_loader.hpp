// SPDX-License-Identifier: Apache-2.0
#pragma once

// HandLoader: what a program has before it takes a BatchProducer: threads, a mutex and two
// condition variables, written out by hand, and ordinary (pageable) memory, or page-locked. T2, T3
// and I1 to I3 load so.
//
//   HandLoader loader(layout, sampler, source, {.workers = 8, .slots = 12});
//   while (const HandLoader::Batch* batch = loader.next()) copy(batch->images);

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <penstock/any_sampler.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "../../common/check.hpp"
#include "input.hpp"

namespace resnet {

struct HandLoaderOptions {
  int workers = 1;
  std::size_t slots = 2;  ///< batches that there is memory for
  std::uint64_t epochs = 1;
  bool page_locked = false;  ///< the slots' memory: the device reads it without the CPU's help
};

/// Memory of the host. Freeing page-locked memory waits for what the device does.
class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(std::size_t bytes, bool page_locked) {
    void* memory = nullptr;
    if (page_locked)
      examples::check(cudaMallocHost(&memory, bytes), "cudaMallocHost");
    else
      memory = ::operator new(bytes);
    memory_ = {static_cast<std::byte*>(memory), page_locked ? free_locked : free_ordinary};
  }

  std::byte* data() const { return memory_.get(); }

 private:
  static void free_ordinary(std::byte* memory) { ::operator delete(memory); }
  static void free_locked(std::byte* memory) { cudaFreeHost(memory); }

  std::unique_ptr<std::byte, void (*)(std::byte*)> memory_{nullptr, free_ordinary};
};

/// Batches come in order. One thread takes them.
class HandLoader {
 public:
  struct Batch {
    penstock::Ticket ticket;
    Images images;  // views of `memory`
    HostMemory memory;
    std::vector<std::uint64_t> samples;
    std::exception_ptr error;
    std::uint64_t filled = 0;  // with batch filled - 1, counted over all epochs
  };

  /// Each worker has its own copy of the source.
  HandLoader(const penstock::Layout<Images>& layout, penstock::AnySampler sampler,
             const penstock::Source<Images>& source, const HandLoaderOptions& options)
      : layout_(layout),
        sampler_(std::move(sampler)),
        total_(sampler_.batches() * options.epochs),
        slots_(options.slots) {
    for (Batch& slot : slots_) slot.memory = HostMemory(layout_.bytes(), options.page_locked);
    for (int i = 0; i < options.workers; ++i)
      workers_.emplace_back([this, source] { work(source); });
  }
  HandLoader(const HandLoader&) = delete;
  HandLoader& operator=(const HandLoader&) = delete;
  ~HandLoader() {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    room_.notify_all();
  }

  /// The next batch, valid until the next call; nullptr: the end. Throws what the source threw.
  const Batch* next() {
    std::unique_lock lock(mutex_);
    free_ = taken_;  // The batch before is not read any more.
    room_.notify_all();
    if (taken_ == total_) return nullptr;
    const Batch& slot = slots_[taken_++ % slots_.size()];
    ready_.wait(lock, [&] { return slot.filled == taken_; });
    if (slot.error) std::rethrow_exception(slot.error);
    return &slot;
  }

 private:
  void work(penstock::Source<Images> source) {
    std::unique_lock lock(mutex_);
    while (claimed_ < total_) {
      const std::uint64_t number = claimed_++;
      room_.wait(lock, [&] { return stopping_ || number < free_ + slots_.size(); });
      if (stopping_) return;
      Batch& slot = slots_[number % slots_.size()];
      lock.unlock();
      fill(slot, number, source);
      lock.lock();
      slot.filled = number + 1;
      ready_.notify_one();
    }
  }

  void fill(Batch& slot, std::uint64_t number, penstock::Source<Images>& source) const {
    slot.error = nullptr;
    try {
      slot.ticket.epoch = number / sampler_.batches();
      slot.ticket.batch = number % sampler_.batches();
      sampler_.samples(slot.ticket.epoch, slot.ticket.batch, slot.samples);
      slot.ticket.samples = slot.samples;
      slot.images =
          layout_.bind(slot.memory.data(), static_cast<std::int64_t>(slot.samples.size()));
      source(slot.ticket, slot.images);
    } catch (...) {
      slot.error = std::current_exception();
    }
  }

  const penstock::Layout<Images> layout_;
  const penstock::AnySampler sampler_;
  const std::uint64_t total_;  // batches
  std::mutex mutex_;           // Guards what follows, but a slot that a worker fills is its own.
  std::condition_variable room_, ready_;
  std::vector<Batch> slots_;  // by a batch's number
  std::uint64_t claimed_ = 0, taken_ = 0, free_ = 0;
  bool stopping_ = false;
  std::vector<std::jthread> workers_;  // last: joined before anything they use goes away
};

}  // namespace resnet
