// SPDX-License-Identifier: Apache-2.0
#pragma once

// Pipeline: the route of a batch, from a free record to the end of its lease. A Prefetcher has one,
// and so has a BatchProducer, without a DeviceRoute.
//
//   worker    open_next: a record, memory, then a number -> the source fills the rows -> finish
//   stage     the failure policy; a slot, the copy into it, the transform
//   next      the first staged record that is for the consumer, whose stream waits for the copy
//   end_lease the slot's next writer waits for the consumer's streams; the record is free
//
// A worker takes a piece of the oldest batch that has rows left, or opens the next batch. Whoever
// fills the last row finishes the batch, and publishes its record. A source that is asked for whole
// batches has batches of one piece.
//
// No thread owns the staging: whoever makes a copy possible (a worker with a filled batch, or the
// thread that ends a lease) stages every batch for which there is a slot. So a copy is issued at
// once. A BatchProducer's consumer stages, which is then only the failure policy.
//
// How a pipeline starts, ends and begins anew is in pipeline_control.hpp; how it follows its tuner,
// in pipeline_tune.hpp; what it tells of itself, in pipeline_stats.hpp.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/observe/ticks.hpp>
#include <penstock/detail/observe/worker_trace.hpp>
#include <penstock/detail/order/state.hpp>
#include <penstock/detail/pipeline/batch_filler.hpp>
#include <penstock/detail/pipeline/batch_memory.hpp>
#include <penstock/detail/pipeline/batch_record.hpp>
#include <penstock/detail/pipeline/block_parts.hpp>
#include <penstock/detail/pipeline/device_route.hpp>
#include <penstock/detail/pipeline/failure_log.hpp>
#include <penstock/detail/pipeline/free_records.hpp>
#include <penstock/detail/pipeline/pipeline_handle.hpp>
#include <penstock/detail/pipeline/producer_options.hpp>
#include <penstock/detail/pipeline/read_ahead_cursor.hpp>
#include <penstock/detail/pipeline/record_ring.hpp>
#include <penstock/detail/pipeline/row_dispenser.hpp>
#include <penstock/detail/pipeline/worker_errors.hpp>
#include <penstock/detail/pipeline/worker_threads.hpp>
#include <penstock/detail/sync/callers.hpp>
#include <penstock/detail/sync/event_count.hpp>
#include <penstock/detail/sync/owner_process.hpp>
#include <penstock/detail/sync/pending_error.hpp>
#include <penstock/detail/sync/serial_task.hpp>
#include <penstock/detail/sync/time_out.hpp>
#include <penstock/detail/sync/worker_permits.hpp>
#include <penstock/error.hpp>
#include <penstock/markers.hpp>
#include <stdexcept>
#include <stop_token>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

class Pipeline final : public std::enable_shared_from_this<Pipeline>, private WaitAhead {
 public:
  /// A Prefetcher gives a `route`, a BatchProducer a `pool`. Call start() then.
  Pipeline(const BlockLayout& layout, AnySampler sampler, ErasedSource source,
           std::unique_ptr<DeviceRoute> route, PinnedPool* pool, ProducerOptions options);
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  ~Pipeline() { stop_and_join(); }

  /// Allocates the blocks of pinned memory and starts the workers.
  void start();

  // ---- For the consumers of a Prefetcher: see Prefetcher and Lease

  /// nullptr: there are no more batches. Sets `owner`, which the lease keeps, since the Prefetcher
  /// may be destroyed before the lease ends.
  BatchRecord* next(cudaStream_t consumer, PipelineHandle& owner);
  void also_use(BatchRecord& record, cudaStream_t stream);
  /// False: a consumer's stream is being captured, and the lease continues. With `park` it always
  /// ends, and the arena keeps the slot until the capture is over. next() reports what fails here.
  bool end_lease(BatchRecord& record, bool park) noexcept;
  /// See Prefetcher::stop.
  void stop() noexcept;
  State state() const;
  void restore(const State& state);
  Stats stats();

  // ---- For the consumer of a BatchProducer

  std::optional<BlockBatch> next_filled();
  bool ready() noexcept;
  bool at_end() noexcept;
  /// See BatchProducer::stop.
  void stop_and_join() noexcept;
  void seek(std::uint64_t epoch, std::uint64_t batch);
  /// Shared with batches, which may outlive the pipeline.
  const std::shared_ptr<const BlockLayout>& layout() const noexcept { return shared_layout_; }
  const ProducerOptions& options() const noexcept { return options_; }
  /// The number of the next batch, over all epochs.
  std::uint64_t position() const noexcept { return ring_.position(); }
  std::uint64_t batches() const noexcept { return batches_; }
  StageStats source_stats() const;

  // ---- For both

  /// Ends everything. A destructor calls this. False: the pipeline itself has called the function
  /// that destroys it on this thread, which will return into the pipeline.
  bool close() noexcept;
  bool forked() const noexcept { return !process_.is_this(); }
  const FailureLog& failure_log() const noexcept { return log_; }

 private:
  using Piece = BatchFiller::Piece;
  static constexpr std::uint64_t kNobody = ~std::uint64_t{0}, kReturned = kNobody - 1;

  // The worker
  void run(WorkerTools& tools);
  Piece next_piece(WorkerTools& tools);
  BatchRecord* open_next(WorkerTools& tools);
  bool take_record(std::uint32_t& taken, WorkerTools& tools);
  void finish(BatchRecord& record, WorkerTools& tools);
  void end_record(BatchRecord& record) noexcept;

  // Staging
  void stage() noexcept;
  bool stage_next() noexcept;
  bool copy(BatchRecord& record) noexcept;
  void end() noexcept;

  // The consumer
  BatchRecord* staged_head() noexcept;
  BatchRecord* next(const ResolvedStream& stream, cudaStream_t consumer);
  BatchRecord* wait_for_staged(std::unique_lock<std::mutex>& lock, bool& has_waited);
  bool wait_for_news(TimeOut& left, std::uint64_t& since, std::uint32_t calls);
  void stamp(BatchRecord& record, ConsumerCalls::Call& call, int stream, bool has_waited);
  [[noreturn]] void throw_in_place_of(BatchRecord& record);

  // The tuner: pipeline_tune.hpp
  void tune() noexcept;
  void use_tuned();
  void use(const TuneSettings& settings);
  void tune_slots();
  void tune_after(const std::exception_ptr& error);

  // Start and end: pipeline_control.hpp
  void work(std::size_t worker, const std::stop_token& stop) noexcept;
  bool equip(WorkerTools& tools) noexcept;
  void start_workers();
  void restart(std::uint64_t first);
  void end_run(bool is_stopped) noexcept;
  void close_ring() noexcept;
  void join() noexcept;
  void wait_for_workers(int left) noexcept;
  bool stopped() const noexcept;
  void report(std::exception_ptr error) noexcept;
  void call_all() noexcept;
  bool is_of_this_thread() const noexcept;
  void require_other_thread(const char* call) const;
  void require_order() const;
  void abandon() noexcept;
  bool abandoned() const noexcept;
  bool abandoned_here() const noexcept;
  void come_back() noexcept;
  void wait_while_abandoned();
  std::uint64_t held_up() const noexcept override;
  void timed_out(std::uint64_t call, std::exception_ptr error) noexcept override;

  // What it tells of itself: pipeline_stats.hpp
  void sample_queue() noexcept;
  void add_device(Stats& stats);
  void add_ended(Stats& stats) const;
  WorkerActivity oldest_activity() const;
  [[noreturn]] void throw_stall() const;
  static std::string why_busy(const WorkerActivity& activity);
  std::string why_skipped() const;

  /// Several workers fill one batch.
  bool together() const { return source_.kind == SourceKind::sample; }

  // Shared with batches, which may outlive this. Its reference count changes with each batch, on
  // the cache line of the layout: so the workers read a copy, layout_.
  const std::shared_ptr<const BlockLayout> shared_layout_;
  const BlockLayout layout_;
  const std::unique_ptr<DeviceRoute> route_;  // of a Prefetcher, else nullptr; waits for the device
  const AnySampler sampler_;
  const ErasedSource source_;
  const ProducerOptions options_;
  const std::uint64_t batches_, total_;  // of an epoch, and of all
  const OwnerProcess process_;
  const int device_;

  BatchFiller filler_;
  ReadAheadCursor read_ahead_;
  BatchMemory memory_;
  RowDispenser<BatchRecord> rows_;
  std::deque<BatchRecord> records_;  // by index; it never changes
  FreeRecords free_records_;
  RecordRing<BatchRecord*> ring_;
  WorkerPermits permits_;
  FailureLog log_;
  WorkerErrors lost_;
  std::vector<WorkerTrace> traces_;

  alignas(64) EventCount room_;          // Workers wait for a record.
  alignas(64) EventCount delivery_;      // Consumers wait for a batch.
  std::atomic<std::uint32_t> calls_{0};  // of all that wait there

  // The thread that stages writes these:
  alignas(64) SerialTask stage_task_;  // of a Prefetcher
  std::uint64_t admitted_ = 0;         // The failure policy was applied up to this position.
  std::atomic<std::uint64_t> samplings_{0}, queued_{0};  // of the queue
  std::atomic<bool> ended_{false};                       // Nothing more will be staged.

  // The consumers of a Prefetcher use these:
  alignas(64) mutable Callers callers_;
  std::mutex take_mutex_;                   // One thread at a time is in next(), but for its waits.
  std::atomic<std::uint64_t> position_{0};  // number of the next batch, over all epochs
  std::uint64_t skipped_before_ = 0;        // up to the last batch that was delivered
  std::uint64_t order_ = 0;                 // of the next batch
  const ConsumerCalls::Call* requested_by_ = nullptr;  // the last call that has told the samples
  PendingError reported_;                              // for the next call

  // The consumer of a BatchProducer uses these:
  alignas(64) std::atomic_flag in_next_;  // some thread is
  std::atomic<std::uint64_t> next_calls_{0};
  PendingError no_memory_;

  // These are about the end:
  std::atomic<bool> stopped_{false}, closed_{false};
  std::mutex end_mutex_;   // a new run against the end of the last one; never held in a join
  std::stop_source stop_;  // of this run
  std::mutex join_mutex_;  // One thread at a time starts and joins workers.
  std::atomic<std::uint64_t> abandoned_by_{kNobody};  // a thread
  EventCount returned_;                               // after that

  WorkerThreads threads_;  // last: joined before anything they use goes away
};

// ---- The worker ---------------------------------------------------------------------------------

PENSTOCK_INLINE void Pipeline::run(WorkerTools& tools) {
  const auto ended = [this] { return ring_.all_reserved(); };
  if (!permits_.take(ended)) return;
  tools.lap();
  while (true) {
    if (permits_.lose()) {  // Parked: this time is no part of what it did.
      tools.trace.rest();
      if (!permits_.take(ended)) return;
      tools.lap();
    }
    const Piece piece = next_piece(tools);
    if (!piece) break;
    if (piece.rows > 0) tools.trace.work_on(piece.record->number, tools.now);
    if (piece.first == 0)
      read_ahead_.begun(piece.record->number, tools.stop, tools.trace);  // It has opened it.
    if (piece.rows > 0) filler_.fill(piece, tools);
    if (piece.record->to_fill.count_filled(piece.rows)) finish(*piece.record, tools);
  }
  permits_.give_back();
}

PENSTOCK_INLINE auto Pipeline::next_piece(WorkerTools& tools) -> Piece {
  if (!together()) {
    BatchRecord* const record = open_next(tools);
    return record == nullptr ? Piece{} : RowDispenser<BatchRecord>::whole(*record);
  }
  return rows_.next(
      tools.rows_at_once, [&] { return open_next(tools); },
      [&](auto&& waiting) {
        const WorkerTrace::Wait wait(tools.trace, tools.now, WorkerState::idle, 0);
        waiting();
      });
}

/// Opens the next batch. nullptr: there is none, or stop was requested.
PENSTOCK_INLINE BatchRecord* Pipeline::open_next(WorkerTools& tools) {
  const Ticks wanted = tools.now;
  std::uint32_t taken = 0;
  if (!take_record(taken, tools)) return nullptr;
  // Record and memory come before the number, so that the oldest number always has both.
  RecordMemory memory;
  bool is_stopped = false;
  std::exception_ptr no_memory;
  try {
    is_stopped =
        !memory_.acquire(memory, tools, ring_.next_number(), [this] { return ring_.closed(); });
  } catch (...) {
    no_memory = std::current_exception();
  }
  const std::optional<std::uint64_t> number = is_stopped ? std::nullopt : ring_.claim();
  if (!number) {
    free_records_.put_back(taken);
    return nullptr;
  }
  BatchRecord& record = records_[free_records_.index(*number, taken)];
  record.open(*number);
  record.memory = std::move(memory);
  record.times.wanted = wanted;
  record.times.opened = tools.now;
  if (no_memory)
    record.fail({std::move(no_memory), nullptr});
  else
    filler_.begin(record, tools);
  return &record;
}

/// Waits until there is a free record for one of the numbers that are left. False: none is left.
/// All workers wait for the same here, so a record that comes back wakes one of them.
PENSTOCK_INLINE bool Pipeline::take_record(std::uint32_t& taken, WorkerTools& tools) {
  bool has_turn = false, has_record = false;
  const auto try_take = [&] {
    has_turn = has_turn ||
               ring_.reserve([this](std::uint64_t turn) { return free_records_.has_room(turn); });
    has_record = has_turn && free_records_.try_take(taken);
    return has_record;
  };
  if (try_take()) return true;  // Mostly, with a slow source; no clock is read.
  const auto ended = [&] { return has_turn ? ring_.closed() : ring_.all_reserved(); };
  if (!ended()) {
    const WorkerTrace::Wait wait(tools.trace, tools.now, WorkerState::room, ring_.next_number());
    const ScopedRange range(markers::wait_for_room, ring_.next_number());
    room_.wait([&] { return try_take() || ended(); });
  }
  if (!has_record) room_.notify_one();  // The others who wait end, too.
  return has_record;
}

/// Hands the record of a batch whose last row is filled to the thread that stages.
PENSTOCK_INLINE void Pipeline::finish(BatchRecord& record, WorkerTools& tools) {
  filler_.finish(record, tools);
  if (record.is(Stage::ended)) close_ring();
  ring_.publish(record.number, &record);
  if (!route_) delivery_.notify_one();
  tools.trace.rest();
  if (route_) {
    stage();
  } else if (options_.on_ready) {
    const WorkerTrace::Wait wait(tools.trace, tools.now, WorkerState::idle, 0);
    options_.on_ready();
  }
  if (route_ && route_->tuner && route_->tuner->is_due()) tune();
  if (route_ || options_.on_ready) tools.lap();
}

/// Gives the record of a batch that is over to another batch. Any thread may call this.
PENSTOCK_INLINE void Pipeline::end_record(BatchRecord& record) noexcept {
  record.clear();
  free_records_.give_back(record.index);
  room_.notify_one();
}

// ---- Staging ------------------------------------------------------------------------------------

/// Stages what it can, for a Prefetcher. A thread that finds another one here leaves a request.
PENSTOCK_INLINE void Pipeline::stage() noexcept {
  stage_task_.run([this] { return stage_next(); });
}

/// Stages one batch, if one is filled and there is a slot for it. False: not now.
PENSTOCK_INLINE bool Pipeline::stage_next() noexcept {
  if (ended_.load(std::memory_order_relaxed)) return false;
  if (!ring_.has_filled()) {
    if (ring_.all_staged()) end();
    return false;
  }
  BatchRecord& record = *ring_.filled_head();
  if (admitted_ == ring_.staged_position()) {
    log_.admit(record);
    ++admitted_;
  }
  if (record.is(Stage::ended)) {  // Nothing behind it counts.
    end();
    return false;
  }
  if (route_ && record.is(Stage::filled) && !copy(record)) return false;
  sample_queue();
  ring_.stage();
  if (route_) delivery_.notify_one();
  return true;
}

/// False: there is no slot now, or there was an error, which the next call of next() throws.
PENSTOCK_INLINE bool Pipeline::copy(BatchRecord& record) noexcept {
  // The error is handed on outside of the catch block, so that no other thread holds it.
  std::exception_ptr error;
  bool is_staged = false;
  record.skipped = log_.skipped();
  try {
    is_staged = route_->stage.stage(record);
  } catch (...) {
    error = std::current_exception();
  }
  if (error) report(std::move(error));
  if (abandoned_here()) come_back();  // A transform has destroyed this.
  return is_staged;
}

/// Marks the end of what is staged. It does not while a function that the pipeline has called ends
/// the process, or destroys the pipeline: the consumer would take that for the end of the data, and
/// could end the process as if all were well.
PENSTOCK_INLINE void Pipeline::end() noexcept {
  if (abandoned()) return;
  ended_.store(true, std::memory_order_release);  // behind the last batch
  if (route_) call_all();
}

// ---- The consumer of a Prefetcher ---------------------------------------------------------------

/// Returns the first staged record that is for the consumer; nullptr: none is staged.
PENSTOCK_INLINE BatchRecord* Pipeline::staged_head() noexcept {
  while (ring_.has_staged()) {
    BatchRecord* const record = ring_.staged_head();
    if (!record->is(Stage::passed)) return record;
    ring_.take();
    end_record(*record);
  }
  return nullptr;
}

PENSTOCK_INLINE BatchRecord* Pipeline::next(cudaStream_t consumer, PipelineHandle& owner) {
  const Callers::Call call(callers_);
  constexpr const char* kCall = "Prefetcher::next";
  const ResolvedStream stream = resolve_usable(consumer, kCall, route_->stage.arena().device());
  try {
    BatchRecord* const record = next(stream, consumer);
    if (record != nullptr) owner = shared_from_this();
    return record;
  } catch (...) {
    delivery_.notify_one();  // If a batch has woken this thread, it is there for another one.
    wait_while_abandoned();
    throw;
  }
}

PENSTOCK_INLINE BatchRecord* Pipeline::next(const ResolvedStream& stream, cudaStream_t consumer) {
  DeviceSamples& samples = route_->samples;
  std::unique_lock lock(take_mutex_);
  ConsumerCalls::Call call(route_->calls);
  const ScopedRange range(markers::next, position_);
  add_alone(route_->queued, std::uint64_t{ring_.staged()});
  samples.ask(consumer, order_);
  requested_by_ = &call;

  bool has_waited = false;
  BatchRecord* const record = wait_for_staged(lock, has_waited);
  if (record == nullptr) return nullptr;
  if (record->is(Stage::thrown)) throw_in_place_of(*record);
  // Another thread has made its request while this one waited. Its marks replaced this one's.
  if (requested_by_ != &call) samples.ask(consumer, order_);
  // If one of these calls throws, the batch stays the first.
  samples.find(consumer);
  route_->make_wait(consumer, *record);
  stamp(*record, call, samples.take(consumer, record->order), has_waited);
  record->consumers.assign(1, stream);
  record->set(Stage::leased);
  ring_.take();
  position_ = ring_.position();
  skipped_before_ = record->skipped;
  route_->count_delivery(record->times.taken);
  return record;
}

/// Waits for the first staged batch, without the lock. nullptr: all epochs are done, or somebody
/// has called stop().
PENSTOCK_INLINE BatchRecord* Pipeline::wait_for_staged(std::unique_lock<std::mutex>& lock,
                                                       bool& has_waited) {
  std::optional<TimeOut> left;
  std::uint64_t since = position_;
  while (true) {
    const std::uint32_t calls = calls_.load(std::memory_order_acquire);
    wait_while_abandoned();
    if (stopped()) return nullptr;
    lost_.throw_error();
    route_->stage.arena().require_slot();  // It may give slots back, which are then filled.
    if (route_->tuner) tune_slots();
    if (!ring_.has_staged()) stage();  // What failed is tried again.
    reported_.throw_error();
    // This is read before the batch is looked for, since the end is set after the last batch.
    const bool ended = ended_.load(std::memory_order_acquire);
    if (BatchRecord* const record = staged_head()) return record;
    if (ended) {
      lost_.throw_error();
      return nullptr;
    }
    if (!left) left.emplace(route_->stall_timeout());
    has_waited = true;
    lock.unlock();
    const bool any = wait_for_news(*left, since, calls);
    lock.lock();
    if (!any) throw_stall();
  }
}

/// `left` counts from the last time that any thread got a batch; `since` is the position then.
PENSTOCK_INLINE bool Pipeline::wait_for_news(TimeOut& left, std::uint64_t& since,
                                             std::uint32_t calls) {
  const auto any = [&] {
    return ring_.has_staged() || ended_.load(std::memory_order_relaxed) || reported_.any() ||
           calls_.load(std::memory_order_acquire) != calls;
  };
  while (true) {
    if (std::exchange(since, position_) != since) left = TimeOut(route_->stall_timeout());
    if (delivery_.wait_until(left.next_step(), any)) return true;
    if (position_ == since && left.over()) return false;
  }
}

PENSTOCK_INLINE void Pipeline::throw_in_place_of(BatchRecord& record) {
  const std::exception_ptr error = record.failures.all().front().as_error(log_.policy());
  ring_.take();
  position_ = ring_.position();
  end_record(record);  // The next writer of its slot waits for whatever was copied.
  stage();
  if (route_->tuner) tune_after(error);
  std::rethrow_exception(error);
}

/// Stamps a batch that is taken. Only the thread that takes it calls this.
PENSTOCK_INLINE void Pipeline::stamp(BatchRecord& record, ConsumerCalls::Call& call, int stream,
                                     bool has_waited) {
  BatchTimes& times = record.times;
  times.asked = call.asked();
  times.taken = has_waited ? ticks() : std::max(times.asked, times.staged);
  call.taken(times.taken);
  times.work |= static_cast<std::uint64_t>(stream) << BatchTimes::kStreamShift;
  order_ = record.order + 1;
}

PENSTOCK_INLINE void Pipeline::also_use(BatchRecord& record, cudaStream_t stream) {
  constexpr const char* kCall = "Lease::also_used_on";
  const ResolvedStream user = resolve_usable(stream, kCall, route_->stage.arena().device());
  auto& users = record.consumers;
  if (std::find(users.begin(), users.end(), user) != users.end()) return;  // It waits already.
  route_->make_wait(stream, record);
  users.push_back(user);
  record.times.work |= BatchTimes::kSecondStream;
  route_->second_stream.store(true, std::memory_order_relaxed);
}

PENSTOCK_INLINE bool Pipeline::end_lease(BatchRecord& record, bool park) noexcept {
  record.times.released = ticks();
  std::exception_ptr error;
  try {
    if (!record.memory.slot.try_release_after(record.consumers, park)) return false;
  } catch (...) {
    error = std::current_exception();
  }
  route_->timeline.add(record.order, record.number, record.times);
  route_->samples.collect_now_and_then(record.times.released);
  if (error) report(std::move(error));
  end_record(record);
  stage();
  return true;
}

// ---- The consumer of a BatchProducer ------------------------------------------------------------

PENSTOCK_INLINE bool Pipeline::ready() noexcept {
  while (staged_head() == nullptr)
    if (!stage_next()) return false;
  return true;
}

PENSTOCK_INLINE bool Pipeline::at_end() noexcept {
  return !ready() && ended_.load(std::memory_order_relaxed);
}

PENSTOCK_INLINE std::optional<BlockBatch> Pipeline::next_filled() {
  if (in_next_.test_and_set(std::memory_order_acq_rel))
    throw std::logic_error("BatchProducer::next: another thread is in it");
  const auto leave = [](std::atomic_flag* flag) { flag->clear(std::memory_order_release); };
  const std::unique_ptr<std::atomic_flag, decltype(leave)> inside(&in_next_, leave);
  lost_.throw_error();
  add_alone(next_calls_, std::uint64_t{1});
  const std::uint64_t call = next_calls_.load(std::memory_order_relaxed);
  while (!ready()) {
    if (ended_.load(std::memory_order_relaxed)) return std::nullopt;
    delivery_.wait([&] {
      return ring_.has_filled() || ring_.all_staged() || lost_.has_error() || no_memory_.any(call);
    });
    wait_while_abandoned();
    lost_.throw_error();
    if (!ring_.has_filled()) no_memory_.throw_error(call);
  }
  BatchRecord& record = *ring_.staged_head();
  std::exception_ptr error;
  if (record.is(Stage::thrown)) error = record.failures.all().front().as_error(log_.policy());
  BlockBatch batch{std::move(record.memory.block), record.batch, record.ticket, record.rows};
  ring_.take();
  end_record(record);
  if (error) std::rethrow_exception(error);
  return batch;
}

}  // namespace penstock::detail
