// SPDX-License-Identifier: Apache-2.0
#pragma once

// HandOver: how a batch gets from the producer's pinned memory into a lease. It joins a producer,
// an arena and a copy stream.
//
// Nobody owns the hand-over: the thread that makes a copy possible pumps, that is, it issues every
// copy for which a batch is ready and a slot is free. One thread pumps at a time; another one that
// comes leaves a request, and the first goes around once more. So a copy starts at once, whatever
// other threads do.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <penstock/detail/measure/consumer_clock.hpp>
#include <penstock/detail/measure/copy_watch.hpp>
#include <penstock/detail/measure/take_watch.hpp>
#include <penstock/detail/memory/host_memory.hpp>
#include <penstock/detail/pipeline/batch_producer.hpp>
#include <penstock/detail/pipeline/landing.hpp>
#include <penstock/detail/pipeline/staged_line.hpp>
#include <penstock/prefetcher.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace penstock::detail {

class HandOver final : public AnyPrefetcher {
 public:
  HandOver(const BlockLayout& layout, AnySampler sampler, ErasedSource source,
           Landing::Transform transform, PrefetcherOptions options);
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;

  LeasedBatch* take(cudaStream_t consumer) override;
  void also_used_on(LeasedBatch& batch, cudaStream_t stream) override;
  bool give_back(LeasedBatch& batch, bool park) noexcept override;
  void close() noexcept override;
  bool forked() const noexcept override { return !process_.is_this(); }

  State state() const override;
  void restore(const State& state) override;
  Stats stats() override;
  std::vector<Failure> failures() const override { return producer_->failures(); }

 private:
  static PrefetcherOptions checked(PrefetcherOptions options);
  static CopyClock copy_clock(const PrefetcherOptions& options);
  static PinnedPoolOptions pool_options(const PrefetcherOptions& options, std::size_t block);

  void pump() noexcept;
  bool stage_ready_batch() noexcept;
  bool reserve_slot();
  void stage(HostBlock host);
  void stage(std::exception_ptr&& error);
  Staged& fill_reserved_slot();
  void copy(HostBlock& host, std::byte* target);
  void stage_inline();
  void pump_after_lease() noexcept;

  Staged* wait_for_first();
  [[noreturn]] void throw_staged_error(Staged& staged);
  [[noreturn]] void throw_stall();
  void pause() noexcept;
  void go_on() noexcept;

  const OwnerProcess process_;
  const PrefetcherOptions options_;
  const BlockLayout layout_;
  const State start_;
  const std::uint64_t batches_;  // of an epoch

  Stream copy_stream_;
  const ResolvedStream copies_{copy_stream_.get(), current_device()};
  markers::StreamName copy_stream_name_{copy_stream_.get(), "penstock copies"};
  PinnedPool pool_;
  const Landing landing_;
  DeviceArena arena_;
  CopyWatch watch_;
  std::vector<Staged> slots_;  // by slot index

  // Of the thread that pumps.
  std::atomic<std::uint32_t> requests_{0};
  std::atomic<bool> paused_{true};      // until construction is through
  std::optional<DeviceSlot> reserved_;  // for the next copy
  std::atomic<std::uint64_t> copied_bytes_{0};

  StagedLine line_;  // from the thread that pumps to the consumer

  // Of the thread in take(), which waits there with the lock: threads are served one by one.
  std::mutex take_mutex_;
  std::atomic<std::uint64_t> position_{0};  // number of the next batch, over all epochs
  ConsumerClock clock_;
  TakeWatch takes_;
  std::atomic<std::uint64_t> delivered_{0}, queued_{0};
  std::atomic<std::size_t> leased_{0};

  std::optional<ProducerCore> producer_;  // last: its workers pump
};

PENSTOCK_INLINE PrefetcherOptions HandOver::checked(PrefetcherOptions options) {
  if (options.workers < 0)
    throw std::invalid_argument("workers is " + std::to_string(options.workers) +
                                ", must be 0 (run the source in next) or more");
  require_time_out("stall_timeout", options.stall_timeout);
  if (options.device_depth == 0) throw std::invalid_argument("device_depth must be at least 1");
  if (options.host_depth == 0)
    options.host_depth = static_cast<std::size_t>(options.workers) + options.device_depth;
  return options;
}

PENSTOCK_INLINE CopyClock HandOver::copy_clock(const PrefetcherOptions& options) {
  if (options.device_times) return CopyClock::events;
  return options.host_memory == HostMemory::pinned ? CopyClock::looks : CopyClock::host;
}

/// Room for exactly host_depth blocks.
PENSTOCK_INLINE PinnedPoolOptions HandOver::pool_options(const PrefetcherOptions& options,
                                                         std::size_t block) {
  const std::size_t cap =
      options.max_host_bytes == 0 ? usable_memory() / 2 : options.max_host_bytes;
  if (block > cap / options.host_depth)
    throw PoolExhausted(std::to_string(options.host_depth) + " batches of " +
                            std::to_string(block) +
                            " bytes do not fit the cap on host memory: lower host_depth or the "
                            "batch size, or raise max_host_bytes",
                        block * options.host_depth, 0, cap);
  return {.max_bytes = block * options.host_depth,
          .timeout = std::chrono::milliseconds::max(),  // next() watches for stalls
          .memory = options.host_memory,
          .flags = options.host_flags,
          .numa_node = options.numa_node};
}

PENSTOCK_INLINE HandOver::HandOver(const BlockLayout& layout, AnySampler sampler,
                                   ErasedSource source, Landing::Transform transform,
                                   PrefetcherOptions options)
    : options_(checked(options)),
      layout_(layout),
      start_(sampler.start()),
      batches_(sampler.batches()),
      copy_stream_(options_.copy_priority),
      pool_(pool_options(options_, block_bytes(layout_))),
      landing_(layout_, std::move(transform), copy_stream_.get()),
      arena_(options_.device_depth, landing_.slot_bytes()),
      watch_(options_.host_depth + options_.device_depth, copy_clock(options_)),
      line_(options_.device_depth),
      takes_(options_.device_times ? options_.host_depth + options_.device_depth : 0) {
  pool_.reserve(options_.host_depth, block_bytes(layout_));
  slots_.reserve(options_.device_depth);
  for (std::size_t i = 0; i < options_.device_depth; ++i)
    slots_.emplace_back(landing_.slot_layout(), i);
  producer_.emplace(layout_, std::move(sampler), std::move(source), pool_,
                    ProducerOptions{.workers = options_.workers,
                                    .depth = options_.host_depth,
                                    .epochs = options_.epochs,
                                    .ordered = options_.ordered,
                                    .on_failure = options_.on_failure,
                                    .on_ready = [this] { pump(); }});
  go_on();
}

// ---- The pump: producer -> copy stream -> line --------------------------------------------------

PENSTOCK_INLINE void HandOver::pump() noexcept {
  if (requests_.fetch_add(1) != 0) return;  // The thread that pumps will go around once more.
  std::uint32_t served = 1;
  do {
    while (stage_ready_batch()) {
    }
    served = requests_.fetch_sub(served) - served;
  } while (served != 0);
}

/// Issues one copy, if a batch is ready and a slot is free; false: not now.
PENSTOCK_INLINE bool HandOver::stage_ready_batch() noexcept {
  if (paused_.load() || line_.ended() || options_.workers == 0) return false;
  if (producer_->at_end()) {
    line_.end();
    return false;
  }
  // Errors are handed on outside of the handlers: the consumer's thread is their only owner then.
  std::exception_ptr error;
  try {
    if (!producer_->ready() || !reserve_slot()) return false;
  } catch (...) {
    error = std::current_exception();
  }
  if (error) {
    line_.fail(std::move(error));
    return false;
  }
  try {
    stage(*producer_->next());
    return true;
  } catch (...) {
    error = std::current_exception();
  }
  stage(std::move(error));
  return true;
}

/// Reserves a slot for the next copy; the copy stream waits for the slot's last readers.
PENSTOCK_INLINE bool HandOver::reserve_slot() {
  // Without workers a slot is reserved before the batch is ready.
  if (options_.workers > 0) watch_.queue(copy_stream_.get());
  if (!reserved_) reserved_ = arena_.try_acquire(copies_);
  return reserved_.has_value();
}

PENSTOCK_INLINE Staged& HandOver::fill_reserved_slot() {
  Staged& staged = slots_[reserved_->index()];
  staged.memory = std::move(*reserved_);
  reserved_.reset();
  staged.error = nullptr;
  staged.next = producer_->position();
  return staged;
}

PENSTOCK_INLINE void HandOver::stage(HostBlock host) {
  Staged& staged = fill_reserved_slot();
  const auto& samples = host.ticket.samples;
  staged.samples.assign(samples.begin(), samples.end());
  staged.ticket = host.ticket;
  staged.ticket.samples = staged.samples;
  const cudaStream_t stream = copy_stream_.get();
  try {
    watch_.begin(stream);
    landing_.take_over(host.batch, staged);
    copy(host, landing_.target(staged));
    landing_.land(host.samples, staged, stream);
    staged.copied = watch_.end(stream);
  } catch (...) {
    staged.error = std::current_exception();
  }
  line_.push(staged);
}

/// An error takes the place of its batch, slot included, so that errors are bounded as batches are.
PENSTOCK_INLINE void HandOver::stage(std::exception_ptr&& error) {
  Staged& staged = fill_reserved_slot();
  staged.error = std::move(error);
  line_.push(staged);
}

PENSTOCK_INLINE void HandOver::copy(HostBlock& host, std::byte* target) {
  const ScopedRange range(markers::copy, host.ticket.batch);
  add_alone(copied_bytes_, std::uint64_t{copy_to(host, target, copies_)});
}

// ---- The consumer: line -> lease -> slot --------------------------------------------------------

/// The first batch in line, for `consumer`; nullptr at the end.
PENSTOCK_INLINE LeasedBatch* HandOver::take(cudaStream_t consumer) {
  constexpr const char* kCall = "Prefetcher::next";
  process_.require(kCall);
  const ResolvedStream stream = resolve_usable(consumer, kCall, arena_.device());
  const std::lock_guard lock(take_mutex_);
  const ConsumerClock::Visit visit(clock_);
  const ScopedRange range(markers::next, position_);
  add_alone(queued_, std::uint64_t{line_.size()});

  takes_.ask(consumer);
  if (options_.workers == 0) stage_inline();
  Staged* staged = wait_for_first();
  if (staged == nullptr) return nullptr;
  if (staged->error) throw_staged_error(*staged);
  // Where this throws, the batch stays first in line.
  takes_.arrive(consumer);
  check(cudaStreamWaitEvent(consumer, staged->copied, cudaEventWaitDefault), "cudaStreamWaitEvent");
  takes_.enter(consumer);
  staged->consumers.assign(1, stream);
  line_.pop_first();
  position_ = staged->next;
  leased_.fetch_add(1, std::memory_order_relaxed);
  add_alone(delivered_, std::uint64_t{1});
  return staged;
}

/// nullptr: the end.
PENSTOCK_INLINE Staged* HandOver::wait_for_first() {
  line_.throw_failure();
  if (line_.size() == 0) pump();  // A pump that failed is tried again.
  arena_.require_slot();
  if (!line_.wait(options_.stall_timeout, [this] { return line_.has_news(); })) throw_stall();
  line_.throw_failure();
  return line_.first();
}

PENSTOCK_INLINE void HandOver::throw_staged_error(Staged& staged) {
  const std::exception_ptr error = std::move(staged.error);
  line_.pop_first();
  position_ = staged.next;
  staged.memory = DeviceSlot();  // Its next writer comes after whatever was copied.
  pump();
  std::rethrow_exception(error);
}

/// With 0 workers: makes one batch on this thread and issues its copy.
PENSTOCK_INLINE void HandOver::stage_inline() {
  if (line_.size() != 0 || line_.ended()) return;
  line_.throw_failure();
  if (producer_->at_end()) return line_.end();
  const bool reserved = reserve_slot();
  arena_.require_slot();
  // Or a lease has ended in a failure: the slot that it did not give back may have been the last.
  const auto can_go_on = [this] { return arena_.free_slots() != 0 || line_.has_news(); };
  if (!reserved && !line_.wait(options_.stall_timeout, can_go_on)) throw_stall();
  line_.throw_failure();
  reserve_slot();
  std::optional<HostBlock> host;
  try {
    host = producer_->next();
  } catch (...) {
    position_ = producer_->position();
    throw;
  }
  if (host)
    stage(std::move(*host));
  else
    line_.end();
}

PENSTOCK_INLINE void HandOver::also_used_on(LeasedBatch& batch, cudaStream_t stream) {
  constexpr const char* kCall = "Lease::also_used_on";
  auto& staged = static_cast<Staged&>(batch);
  const ResolvedStream user = resolve_usable(stream, kCall, arena_.device());
  check(cudaStreamWaitEvent(stream, staged.copied, cudaEventWaitDefault), "cudaStreamWaitEvent");
  auto& users = staged.consumers;
  if (std::find(users.begin(), users.end(), user) == users.end()) users.push_back(user);
}

/// The end of a lease. What fails is told by the next next().
PENSTOCK_INLINE bool HandOver::give_back(LeasedBatch& batch, bool park) noexcept {
  auto& staged = static_cast<Staged&>(batch);
  watch_.look();
  std::exception_ptr error;
  try {
    if (!staged.memory.try_release_after(staged.consumers, park)) return false;
  } catch (...) {
    error = std::current_exception();
  }
  leased_.fetch_sub(1, std::memory_order_relaxed);
  if (error) line_.fail(std::move(error));
  pump_after_lease();
  if (options_.workers == 0) line_.notify();
  return true;
}

/// A copy of pageable memory blocks this thread: the consumer, for want of input.
PENSTOCK_INLINE void HandOver::pump_after_lease() noexcept {
  if (options_.host_memory == HostMemory::pinned) return pump();
  const auto begin = ConsumerClock::Clock::now();
  pump();
  clock_.hold_up(ConsumerClock::Clock::now() - begin);
}

PENSTOCK_INLINE void HandOver::throw_stall() {
  std::string stage = "consumer";
  std::string why = "all " + std::to_string(options_.device_depth) +
                    " device slots are leased: end a lease before next(), or raise device_depth";
  std::uint64_t number = position_;
  const std::size_t parked = arena_.parked_slots();
  if (parked != 0)
    why += "; " + std::to_string(parked) + " of them wait for the end of a stream capture";
  if (leased_.load(std::memory_order_relaxed) + parked < options_.device_depth) {
    const WorkerActivity activity = producer_->oldest_activity();
    stage = activity.state == WorkerState::memory ? "copy" : "source";
    number = activity.state == WorkerState::idle ? number : activity.number;
    const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(
        WorkerTrace::Clock::now() - activity.since);
    why = std::string("the worker with the oldest batch is ") + to_string(activity.state) +
          ", for " + std::to_string(since.count()) + " ms";
  }
  throw StallError(stage, number / batches_, number % batches_, options_.stall_timeout, why);
}

// ---- The whole ----------------------------------------------------------------------------------

/// From here on nobody pumps.
PENSTOCK_INLINE void HandOver::pause() noexcept {
  paused_.store(true);
  while (requests_.load() != 0) std::this_thread::yield();
}

/// A thread that finds the pause over finds all that was done in it.
PENSTOCK_INLINE void HandOver::go_on() noexcept {
  paused_.store(false, std::memory_order_release);
  pump();
}

PENSTOCK_INLINE void HandOver::close() noexcept {
  pause();
  if (producer_) producer_->stop();
}

PENSTOCK_INLINE State HandOver::state() const {
  if (!options_.ordered)
    throw std::logic_error(
        "batches that come unordered have no position to resume from: set ordered");
  State state = start_;
  if (batches_ == 0) return state;
  const std::uint64_t position = position_;
  state.epoch = position / batches_;
  state.batch = position % batches_;
  return state;
}

PENSTOCK_INLINE void HandOver::restore(const State& state) {
  if (const std::string why = misfit(state, start_); !why.empty()) throw std::invalid_argument(why);
  if (!options_.ordered)
    throw std::logic_error(
        "batches that come unordered have no position to resume from: set ordered");
  process_.require("Prefetcher::restore");
  const std::lock_guard lock(take_mutex_);
  pause();
  line_.clear();
  position_ = state.epoch * batches_ + state.batch;
  try {
    producer_->seek(state.epoch, state.batch);
  } catch (...) {
    line_.end();  // Nobody makes batches now: next() must not wait for any.
    throw;
  }
  go_on();
}

PENSTOCK_INLINE Stats HandOver::stats() {
  watch_.collect();
  const std::uint64_t delivered = delivered_.load(std::memory_order_relaxed);
  Stats stats;
  stats.source = producer_->stats();
  // StageStats named: nvcc 13.0 loses the designators of "= {.busy = ...}" in a template.
  stats.copy = StageStats{.busy = watch_.running(),
                          .waiting_for_input = watch_.idle(),
                          .waiting_for_room = watch_.held(),
                          .batches = watch_.issued(),
                          .bytes = copied_bytes_.load(std::memory_order_relaxed),
                          .capacity = options_.device_depth};
  if (delivered > 0)
    stats.copy.queued = static_cast<double>(queued_.load(std::memory_order_relaxed)) /
                        static_cast<double>(delivered);
  stats.consumer = StageStats{.busy = clock_.busy(),
                              .waiting_for_input = clock_.waiting(),
                              .batches = delivered,
                              .bytes = stats.copy.bytes};
  if (options_.device_times) stats.device = takes_.times(watch_.timed(), clock_.held_up());
  stats.first_batch = clock_.first();
  stats.longest_wait = clock_.longest();
  stats.skipped = producer_->skipped();
  stats.replaced = producer_->replaced();
  stats.workers = options_.workers;
  stats.host_depth = options_.host_depth;
  stats.device_depth = options_.device_depth;
  stats.host_bytes = pool_.stats().bytes;
  stats.device_bytes = arena_.slots() * arena_.slot_bytes() + landing_.passage_bytes();
  stats.pinned = options_.host_memory == HostMemory::pinned;
  return stats;
}

// ---- What a Prefetcher and a Lease call ---------------------------------------------------------

PENSTOCK_INLINE PrefetcherHandle make_prefetcher(const BlockLayout& layout, AnySampler sampler,
                                                 ErasedSource source, PrefetcherOptions options) {
  return std::make_shared<HandOver>(layout, std::move(sampler), std::move(source), std::nullopt,
                                    options);
}
PENSTOCK_INLINE PrefetcherHandle make_prefetcher(const BlockLayout& layout, AnySampler sampler,
                                                 ErasedSource source, ErasedTransform transform,
                                                 PrefetcherOptions options) {
  return std::make_shared<HandOver>(layout, std::move(sampler), std::move(source),
                                    std::move(transform), options);
}

PENSTOCK_INLINE void close(PrefetcherHandle prefetcher) noexcept {
  if (prefetcher->forked())
    leak(std::move(prefetcher));
  else
    prefetcher->close();
}

PENSTOCK_INLINE void give_back(PrefetcherHandle prefetcher, LeasedBatch& batch) noexcept {
  if (prefetcher->forked())
    leak(std::move(prefetcher));
  else
    prefetcher->give_back(batch, true);
}

PENSTOCK_INLINE void release(PrefetcherHandle& prefetcher, LeasedBatch*& batch) {
  if (prefetcher->forked())
    leak(std::move(prefetcher));
  else if (!prefetcher->give_back(*batch, false))
    throw_captured("Lease::release");
  prefetcher.reset();
  batch = nullptr;
}

}  // namespace penstock::detail
