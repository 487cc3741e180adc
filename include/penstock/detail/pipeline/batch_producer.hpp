// SPDX-License-Identifier: Apache-2.0
#pragma once

// ProducerCore: the inside of BatchProducer, and the first half of a Prefetcher's.
//
//   worker -> record, memory, number -> rows -> [finish, publish] -> ring -> [take] -> consumer
//
// A worker takes a piece of the oldest batch that has rows left, or opens the next batch: a free
// record, memory for it, and then its number. Whoever fills the last row finishes the batch, and
// publishes its record. A source that is asked for whole batches has batches of one piece. The
// consumer takes the records in order, or as they come, and gives each back.

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <penstock/batch_producer.hpp>
#include <penstock/cuda.hpp>
#include <penstock/detail/cores.hpp>
#include <penstock/detail/observe/worker_trace.hpp>
#include <penstock/detail/pipeline/batch_filler.hpp>
#include <penstock/detail/pipeline/batch_memory.hpp>
#include <penstock/detail/pipeline/batch_record.hpp>
#include <penstock/detail/pipeline/block_batch.hpp>
#include <penstock/detail/pipeline/device_targets.hpp>
#include <penstock/detail/pipeline/failure_log.hpp>
#include <penstock/detail/pipeline/free_records.hpp>
#include <penstock/detail/pipeline/producer_options.hpp>
#include <penstock/detail/pipeline/read_ahead_cursor.hpp>
#include <penstock/detail/pipeline/record_ring.hpp>
#include <penstock/detail/pipeline/row_dispenser.hpp>
#include <penstock/detail/pipeline/thread_placement.hpp>
#include <penstock/detail/pipeline/tuner.hpp>
#include <penstock/detail/pipeline/worker_errors.hpp>
#include <penstock/detail/pipeline/worker_threads.hpp>
#include <penstock/detail/sync/event_count.hpp>
#include <penstock/detail/sync/owner_process.hpp>
#include <penstock/detail/sync/pending_error.hpp>
#include <penstock/detail/sync/worker_permits.hpp>
#include <penstock/error.hpp>
#include <penstock/markers.hpp>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace penstock::detail {

/// What a Prefetcher adds to its producer.
struct OfPrefetcher {
  HostBlocks& blocks;             ///< unless `targets` are there
  DeviceTargets* targets;         ///< of a source that writes device memory, else nullptr
  const ThreadPlacement* placed;  ///< lives longer than the producer
  TuneSettings start;             ///< of the workers those that run, of the depth what is in use
};

class ProducerCore final : public AnyProducer, private WaitAhead {
 public:
  /// `pool`: where no Prefetcher gives the memory.
  ProducerCore(const BlockLayout& layout, AnySampler sampler, ErasedSource source, PinnedPool* pool,
               ProducerOptions options, std::optional<OfPrefetcher> prefetcher = std::nullopt);
  ProducerCore(const ProducerCore&) = delete;
  ProducerCore& operator=(const ProducerCore&) = delete;
  ~ProducerCore() override { stop(); }

  std::optional<BlockBatch> next() override;
  /// Takes the record at the head of a producer that is ready(). With an `error` in its place, what
  /// the batch has is its slot. Give it back.
  BatchRecord& take(std::exception_ptr& error);
  /// The record may have another batch from now on.
  void give_back(BatchRecord& record) noexcept;
  bool ready() noexcept override;
  bool at_end() noexcept override;
  void stop() noexcept override;
  /// The same without a join. Any thread.
  void request_stop() noexcept;
  /// Somebody has asked for it since the last start. Any thread.
  bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }
  bool close() noexcept override;
  void seek(std::uint64_t epoch, std::uint64_t batch) override;

  const std::shared_ptr<const BlockLayout>& layout() const noexcept override {
    return shared_layout_;
  }
  std::uint64_t position() const noexcept override { return ring_.position(); }
  std::uint64_t batches() const noexcept override { return batches_; }
  const ProducerOptions& options() const noexcept override { return options_; }
  StageStats stats() const override;
  /// Whether a worker runs on the calling thread.
  bool is_of_this_thread() const noexcept;
  /// Throws std::logic_error, which names `call`, on a thread of a worker: `call` waits for it.
  void require_other_thread(const char* call) const;
  /// For a destructor that runs inside a function which the pipeline has called: ends the other
  /// workers as far as they end soon, and joins nobody. The pipeline must live for ever.
  void abandon() noexcept;
  /// Whether that was on the calling thread, which comes back only now: at the end of a process it
  /// never does.
  bool abandoned_here() const noexcept;
  /// Says on stderr what has happened. From now on `next` ends.
  void come_back() noexcept;
  /// For a consumer: at the end of a process this never returns.
  void wait_while_abandoned() {
    returned_.wait([this] { return !abandoned(); });
  }
  /// So many workers run, and so many batches have memory, from now on. Within what the options
  /// reserve. Any thread.
  void use(const TuneSettings& settings);
  /// Adds what the workers did to `counts`.
  void add_to(TuneCounts& counts) const;
  /// Sets what is the workers'.
  void add_to(Stats& stats) const;
  /// Batches that are ready, up to `most`. Any thread: the one that takes from a prefetcher is not
  /// always the one that takes from its producer.
  std::size_t queued(std::size_t most) const { return ring_.filled(most); }
  std::vector<Failure> failures() const override { return log_.kept(); }
  std::uint64_t skipped() const noexcept override { return log_.skipped(); }
  std::uint64_t replaced() const noexcept override { return log_.replaced(); }
  /// The last failure that the policy has handled, in words.
  std::string last_failure() const { return log_.last(); }
  /// Of a batch, over all epochs.
  std::uint64_t number_of(const Ticket& ticket) const {
    return ticket.epoch * batches_ + ticket.batch;
  }
  bool counts_samples() const { return together(); }
  /// What the worker with the oldest batch does, for StallError.
  WorkerActivity oldest_activity() const;

  /// There is a WorkerError to be thrown.
  bool has_lost_worker() const noexcept { return lost_.has_error(); }
  /// Throws it.
  void throw_lost_worker() { lost_.throw_error(); }

 private:
  using Piece = BatchFiller::Piece;
  static constexpr std::uint64_t kNobody = ~std::uint64_t{0}, kReturned = kNobody - 1;
  using Dispenser = RowDispenser<BatchRecord>;

  // The members of WaitAhead, for a BatchProducer's pool.
  std::uint64_t held_up() const noexcept override;
  void timed_out(std::uint64_t call, std::exception_ptr error) noexcept override;

  void start();
  void end_run() noexcept;
  void wait_for_workers(int left) noexcept;
  void join() noexcept;
  void work(std::size_t worker, const std::stop_token& stop) noexcept;
  void run(WorkerTools& tools);
  bool equip(WorkerTools& tools) noexcept;
  std::unique_ptr<WorkerSource> make_source(std::size_t worker) noexcept;

  /// Several workers fill one batch.
  bool together() const { return source_.kind == SourceKind::sample; }
  /// A destructor has run on a thread that has not come back from it yet.
  bool abandoned() const noexcept {
    return abandoned_by_.load(std::memory_order_relaxed) < kReturned;
  }
  Piece next_piece(WorkerTools& tools);
  BatchRecord* open_next(WorkerTools& tools);
  bool enter(std::uint32_t& taken, WorkerTools& tools);
  void hand_on(BatchRecord& record, WorkerTools& tools);
  void close_ring() noexcept;
  void leave_ring() noexcept;
  bool is_dealt_with(BatchRecord& record) noexcept;
  std::uint64_t asked(const BatchRecord& record) const;
  void sample_queue() noexcept;

  // Shared with batches, which may outlive this. Its reference count changes with each batch, on
  // the cache line of the layout: so the workers read a copy, layout_.
  const std::shared_ptr<const BlockLayout> shared_layout_;
  const BlockLayout layout_;
  const AnySampler sampler_;
  const ErasedSource source_;
  BatchFiller filler_;
  ReadAheadCursor read_ahead_;
  const ThreadPlacement* const placed_;
  const OwnerProcess process_;
  ProducerOptions options_;
  std::uint64_t batches_;  // of an epoch
  std::uint64_t total_;    // of all epochs
  int device_;

  std::deque<BatchRecord> records_;  // by index; it never changes
  FreeRecords free_records_;
  RecordRing<BatchRecord*> ring_;
  WorkerPermits permits_;
  BatchMemory memory_;
  Dispenser rows_;
  FailureLog log_;
  std::mutex end_mutex_;   // a new run against the end of the last one; never held in a join
  std::stop_source stop_;  // of this run
  std::atomic<bool> stopped_{false};
  std::mutex join_mutex_;  // One thread at a time starts and joins workers.
  std::atomic<std::uint64_t> abandoned_by_{kNobody};  // a thread
  EventCount returned_;                               // after that

  alignas(64) EventCount room_;      // Workers wait for a record.
  alignas(64) EventCount delivery_;  // The consumer waits for a batch.

  // The consumer writes these at each call of next().
  alignas(64) std::atomic_flag in_next_;  // some thread is
  std::atomic<std::uint64_t> calls_{0};
  bool finished_ = false;
  std::atomic<std::uint64_t> samplings_{0}, queued_{0};  // of the queue
  alignas(64) std::vector<WorkerTrace> traces_;

  WorkerErrors lost_;
  PendingError no_memory_;

  WorkerThreads threads_;  // last: joined before anything they use goes away
};

PENSTOCK_INLINE std::unique_ptr<AnyProducer> make_producer(const BlockLayout& layout,
                                                           AnySampler sampler, ErasedSource source,
                                                           PinnedPool& pool,
                                                           ProducerOptions options) {
  if (source.kind == SourceKind::device)
    throw std::invalid_argument(
        "BatchProducer fills page-locked memory: give an on_device source to a Prefetcher");
  return std::make_unique<ProducerCore>(layout, std::move(sampler), std::move(source), &pool,
                                        std::move(options));
}

PENSTOCK_INLINE void close(std::unique_ptr<AnyProducer>& producer) noexcept {
  if (producer->close())
    producer.reset();
  else
    leak(std::move(producer));
}

PENSTOCK_INLINE ProducerCore::ProducerCore(const BlockLayout& layout, AnySampler sampler,
                                           ErasedSource source, PinnedPool* pool,
                                           ProducerOptions options,
                                           std::optional<OfPrefetcher> prefetcher)
    : shared_layout_(std::make_shared<const BlockLayout>(layout)),
      layout_(layout),
      sampler_(std::move(sampler)),
      source_(std::move(source)),
      filler_(layout_, sampler_, source_.kind, options.on_failure.action(),
              prefetcher ? prefetcher->targets : nullptr, !prefetcher),
      read_ahead_(options.read_ahead, sampler_, static_cast<std::size_t>(layout_.batch_size())),
      placed_(prefetcher ? prefetcher->placed : nullptr),
      options_(checked(std::move(options), sampler_, source_)),
      batches_(sampler_.batches()),
      total_(saturated_product(batches_, options_.epochs)),
      device_(current_device()),
      free_records_(options_.depth, options_.ordered),
      ring_(options_.depth, options_.ordered),
      permits_(options_.workers),
      memory_(prefetcher ? BatchMemory(prefetcher->blocks, prefetcher->targets, options_.depth)
                         : BatchMemory(*pool, block_bytes(layout_), *this)),
      log_(options_.on_failure),
      traces_(static_cast<std::size_t>(options_.workers)),
      lost_(static_cast<std::size_t>(options_.workers)) {
  if (batches_ == 0)
    throw std::invalid_argument("the sampler has no batch: its batches() must be at least 1");
  if (sampler_.start().batch_size > static_cast<std::uint64_t>(layout_.batch_size()))
    throw std::invalid_argument(
        "the sampler has batches of " + std::to_string(sampler_.start().batch_size) +
        " samples, the layout has room for " + std::to_string(layout_.batch_size()));
  for (std::size_t i = 0; i < options_.depth; ++i)
    records_.emplace_back(layout_, static_cast<std::uint32_t>(i));
  if (prefetcher) use(prefetcher->start);
  seek(sampler_.start().epoch, sampler_.start().batch);
}

// ---- Start and stop -----------------------------------------------------------------------------

PENSTOCK_INLINE void ProducerCore::start() {
  try {
    threads_.start(static_cast<std::size_t>(options_.workers), stop_.get_token(),
                   [this](std::size_t worker, const std::stop_token& stop) { work(worker, stop); });
  } catch (...) {
    end_run();
    join();
    throw;
  }
}

PENSTOCK_INLINE bool ProducerCore::is_of_this_thread() const noexcept {
  return std::any_of(traces_.begin(), traces_.end(), std::mem_fn(&WorkerTrace::is_of_this_thread));
}

PENSTOCK_INLINE void ProducerCore::require_other_thread(const char* call) const {
  if (is_of_this_thread())
    throw std::logic_error(std::string(call) +
                           " was called by a source, for which it would wait: call it where the "
                           "batches are taken. A source ends the data by returning false");
}

/// No batch is begun any more, and sources are asked to stop. Workers that are parked see it when
/// one that runs ends.
PENSTOCK_INLINE void ProducerCore::end_run() noexcept {
  std::stop_source stop = [this] {
    const std::lock_guard lock(end_mutex_);
    close_ring();
    return stop_;
  }();
  stop.request_stop();  // It calls functions of the user's: not under the lock.
}

PENSTOCK_INLINE void ProducerCore::request_stop() noexcept {
  {
    const std::lock_guard lock(end_mutex_);
    stopped_.store(true, std::memory_order_relaxed);
  }
  end_run();
}

/// Waits until no more than `left` workers run. After 5 s it prints on stderr, once, which worker
/// it waits for: the exception that unwinds through here may not be reported until it returns.
PENSTOCK_INLINE void ProducerCore::wait_for_workers(int left) noexcept {
  constexpr std::chrono::seconds kPatience(5);
  if (!threads_.wait_for_ends(kPatience, left)) {
    const WorkerActivity activity = oldest_activity();
    std::fprintf(
        stderr,
        "penstock: the end of a pipeline waits for a worker, for %d s so far: at epoch %llu, "
        "batch %llu, %s. A source that waits should take a std::stop_token\n",
        static_cast<int>(kPatience.count()),
        static_cast<unsigned long long>(activity.number / batches_),
        static_cast<unsigned long long>(activity.number % batches_), to_string(activity.state));
  }
}

PENSTOCK_INLINE void ProducerCore::join() noexcept {
  wait_for_workers(0);
  threads_.join();
}

PENSTOCK_INLINE void ProducerCore::stop() noexcept {
  if (!process_.is_this()) return threads_.leak();
  request_stop();
  if (is_of_this_thread()) return;  // A source called this. The destructor joins its thread.
  const std::lock_guard lock(join_mutex_);
  request_stop();  // A seek that was under way has started workers.
  join();
}

/// False: a worker is on the stack of this thread, and returns into the producer, which must live
/// for ever.
PENSTOCK_INLINE bool ProducerCore::close() noexcept {
  if (!process_.is_this()) return true;
  if (is_of_this_thread()) {
    abandon();
    static_cast<void>(in_next_.test(std::memory_order_acquire));  // It has read the handle.
    return false;
  }
  stop();
  while (in_next_.test(std::memory_order_acquire)) std::this_thread::yield();
  return true;
}

PENSTOCK_INLINE void ProducerCore::abandon() noexcept {
  const bool is_worker = is_of_this_thread();
  abandoned_by_.store(static_cast<std::uint64_t>(pthread_self()), std::memory_order_relaxed);
  end_run();
  // Whoever has the lock joins this thread, maybe.
  const std::unique_lock lock(join_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  wait_for_workers(is_worker ? 1 : 0);
  threads_.detach();
}

PENSTOCK_INLINE bool ProducerCore::abandoned_here() const noexcept {
  return abandoned_by_.load(std::memory_order_relaxed) ==
         static_cast<std::uint64_t>(pthread_self());
}

PENSTOCK_INLINE void ProducerCore::come_back() noexcept {
  std::fputs(
      "penstock: a pipeline was destroyed by a function that it had called (its source, sampler, "
      "transform ...), which returns into it: its memory is never freed. Destroy it where its "
      "batches are taken; a source ends the data by returning false, or by stop()\n",
      stderr);
  abandoned_by_.store(kReturned, std::memory_order_relaxed);
  request_stop();
  returned_.notify_all();
  if (options_.on_ready) options_.on_ready();
}

PENSTOCK_INLINE void ProducerCore::seek(std::uint64_t epoch, std::uint64_t batch) {
  require_other_thread("BatchProducer::seek");
  const std::lock_guard one_at_a_time(join_mutex_);
  end_run();
  join();
  const std::uint64_t first = std::min(total_, batch_number(batches_, epoch, batch));
  finished_ = false;
  read_ahead_.restart(first, total_);
  lost_.clear();
  for (BatchRecord& record : records_) record.clear();
  free_records_.restart(first);
  {
    const std::lock_guard lock(end_mutex_);
    ring_.reopen(first, total_);
    stop_ = std::stop_source();
    stopped_.store(false, std::memory_order_relaxed);
  }
  start();
}

// ---- Workers ------------------------------------------------------------------------------------

PENSTOCK_INLINE void ProducerCore::work(std::size_t worker, const std::stop_token& stop) noexcept {
  markers::name_this_thread("penstock worker");
  if (placed_ != nullptr) placed_->bind_worker(worker);
  {
    // Captures on other threads forbid event queries to threads that have not opted out.
    const CaptureModeGuard capture_mode;
    // Where this fails, the calls that need the device say so, at a batch's place.
    cudaSetDevice(device_);
    const WorkerTrace::Shift shift(traces_[worker]);
    WorkerTools tools{worker,
                      traces_[worker],
                      capture_mode,
                      stop,
                      make_source(worker),
                      BatchObject(layout_),
                      placed_ != nullptr};
    if (tools.source != nullptr) run(tools);
    if (abandoned_here()) come_back();
  }
  permits_.wake();  // The data have ended, or stop was requested: parked workers end, too.
}

/// nullptr: it could not be made, and `next` says so.
PENSTOCK_INLINE std::unique_ptr<WorkerSource> ProducerCore::make_source(
    std::size_t worker) noexcept {
  try {
    return source_.make();
  } catch (...) {
    lost_.add(worker);
  }
  delivery_.notify_one();
  if (options_.on_ready) options_.on_ready();
  return nullptr;
}

/// False: there is no memory for what the worker needs, and `next` says so.
PENSTOCK_INLINE bool ProducerCore::equip(WorkerTools& tools) noexcept {
  try {
    filler_.equip(tools);
    return true;
  } catch (...) {
    lost_.add(tools.worker);
  }
  delivery_.notify_one();
  if (options_.on_ready) options_.on_ready();
  return false;
}

PENSTOCK_INLINE void ProducerCore::run(WorkerTools& tools) {
  if (!equip(tools)) return;
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
    if (piece.rows > 0) tools.trace.work_on(piece.record->number);
    if (piece.first == 0)
      read_ahead_.begun(piece.record->number, tools.stop, tools.trace);  // It has opened it.
    if (piece.rows > 0) filler_.fill(piece, tools);
    if (piece.record->to_fill.count_filled(piece.rows)) hand_on(*piece.record, tools);
  }
  permits_.give_back();
}

PENSTOCK_INLINE auto ProducerCore::next_piece(WorkerTools& tools) -> Piece {
  if (!together()) {
    BatchRecord* const record = open_next(tools);
    return record == nullptr ? Piece{} : Dispenser::whole(*record);
  }
  return rows_.next(
      tools.rows_at_once, [&] { return open_next(tools); },
      [&](auto&& waiting) {
        tools.trace.hand_on();
        waiting();
        tools.lap();
      });
}

/// Opens the next batch. nullptr: there is none, or stop was requested.
PENSTOCK_INLINE BatchRecord* ProducerCore::open_next(WorkerTools& tools) {
  const Ticks wanted = tools.now;
  std::uint32_t taken = 0;
  if (!enter(taken, tools)) return nullptr;
  // Record and memory come before the number, so that the oldest number always has both.
  RecordMemory memory;
  bool is_stopped = false;
  std::exception_ptr no_memory;
  try {
    is_stopped = !memory_.acquire(memory, tools, ring_.next_number(),
                                  [this] { return ring_.closed(); });
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
    filler_.begin(record);
  return &record;
}

/// Waits until there is a free record for one of the numbers that are left. False: none is left.
/// All who wait wait for the same: a record that comes back wakes one of them.
PENSTOCK_INLINE bool ProducerCore::enter(std::uint32_t& taken, WorkerTools& tools) {
  bool has_turn = false, has_record = false;
  const auto try_enter = [&] {
    has_turn = has_turn ||
               ring_.reserve([this](std::uint64_t turn) { return free_records_.has_room(turn); });
    has_record = has_turn && free_records_.try_take(taken);
    return has_record;
  };
  if (try_enter()) return true;  // Mostly, with a slow source; no clock is read.
  const auto ended = [&] { return has_turn ? ring_.closed() : ring_.all_reserved(); };
  if (!ended()) {
    const WorkerTrace::Wait wait(tools.trace, WorkerState::room, ring_.next_number());
    const ScopedRange range(markers::wait_for_room, ring_.next_number());
    room_.wait([&] { return try_enter() || ended(); });
    tools.lap();
  }
  if (!has_record) room_.notify_one();  // The others who wait end, too.
  return has_record;
}

PENSTOCK_INLINE void ProducerCore::give_back(BatchRecord& record) noexcept {
  record.clear();
  free_records_.give_back(record.index);
  room_.notify_one();
}

// ---- From the workers to the consumer -----------------------------------------------------------

PENSTOCK_INLINE void ProducerCore::hand_on(BatchRecord& record, WorkerTools& tools) {
  filler_.finish(record, tools);
  if (record.stage == Stage::ended) close_ring();
  ring_.publish(record.number, &record);
  delivery_.notify_one();
  if (options_.on_ready) {
    tools.trace.hand_on();
    options_.on_ready();
    tools.lap();
  }
}

/// No number is claimed any more.
PENSTOCK_INLINE void ProducerCore::close_ring() noexcept {
  ring_.close();
  room_.notify_all();
  memory_.wake();
  delivery_.notify_one();
}

/// The first filled batch leaves the ring.
PENSTOCK_INLINE void ProducerCore::leave_ring() noexcept {
  ring_.stage();
  ring_.take();
}

PENSTOCK_INLINE bool ProducerCore::ready() noexcept {
  while (!finished_ && ring_.has_filled()) {
    BatchRecord& record = *ring_.filled_head();
    if (!is_dealt_with(record)) return true;
    leave_ring();
    give_back(record);
  }
  return false;
}

PENSTOCK_INLINE bool ProducerCore::at_end() noexcept {
  if (ready()) return false;
  // While a function of the pipeline ends the process, or destroys the pipeline, the consumer must
  // not take that for the end of the data: it could end the process as if all were well.
  if (abandoned()) return false;
  finished_ = finished_ || ring_.all_staged();
  return finished_;
}

/// Nothing of the batch is for the consumer. The failure policy is applied once to each batch.
PENSTOCK_INLINE bool ProducerCore::is_dealt_with(BatchRecord& record) noexcept {
  if (record.stage == Stage::ended) {
    // In order, nothing behind it counts; as they come, batches that other workers had begun may
    // still follow.
    finished_ = options_.ordered;
    return true;
  }
  if (record.failures.empty() || record.stage == Stage::thrown) return false;
  const bool is_there = record.stage == Stage::filled;
  std::uint64_t left_out = 0;
  FailureNode* const first = record.failures.first();
  if (is_there)
    for (const FailureNode* failed = first; failed != nullptr; failed = failed->next)
      left_out += failed->failure->replaced ? 0U : 1U;
  for (FailureNode* failed = first; failed != nullptr; failed = failed->next) {
    if (log_.tolerates(*failed, asked(record) + left_out)) continue;
    record.failures.keep_only(*failed);
    record.stage = Stage::thrown;
    break;
  }
  log_.count(left_out);
  if (record.stage == Stage::thrown) return false;
  record.failures.clear();
  if (is_there) return false;
  log_.count(asked(record));
  return true;
}

PENSTOCK_INLINE std::optional<BlockBatch> ProducerCore::next() {
  if (in_next_.test_and_set(std::memory_order_acq_rel))
    throw std::logic_error("BatchProducer::next: another thread is in it");
  struct Leave {
    ~Leave() { flag.clear(std::memory_order_release); }
    std::atomic_flag& flag;
  } const leave{in_next_};
  throw_lost_worker();
  add_alone(calls_, std::uint64_t{1});
  const std::uint64_t call = calls_.load(std::memory_order_relaxed);
  while (!ready()) {
    if (at_end()) return std::nullopt;
    delivery_.wait([&] {
      return ring_.has_filled() || ring_.all_staged() || has_lost_worker() || no_memory_.any(call);
    });
    wait_while_abandoned();
    throw_lost_worker();
    if (!ring_.has_filled()) no_memory_.throw_error(call);
  }
  std::exception_ptr error;
  BatchRecord& record = take(error);
  if (error) {
    give_back(record);
    std::rethrow_exception(error);
  }
  BlockBatch batch{std::move(record.memory.block), record.batch, record.ticket, record.rows};
  give_back(record);
  return batch;
}

/// A worker waits for memory, has no number yet, and all batches with numbers were taken.
PENSTOCK_INLINE std::uint64_t ProducerCore::held_up() const noexcept {
  if (!in_next_.test(std::memory_order_relaxed) || ring_.next_number() != ring_.position())
    return 0;
  return calls_.load(std::memory_order_relaxed);
}

PENSTOCK_INLINE void ProducerCore::timed_out(std::uint64_t call,
                                             std::exception_ptr error) noexcept {
  no_memory_.set(call, std::move(error));
  delivery_.notify_one();
}

PENSTOCK_INLINE BatchRecord& ProducerCore::take(std::exception_ptr& error) {
  sample_queue();
  BatchRecord& record = *ring_.filled_head();
  log_.count(asked(record));
  if (record.stage == Stage::thrown) error = record.failures.first()->as_error(log_.policy());
  leave_ring();
  return record;
}

/// What the policy counts: batches, or the samples of a per_sample source, but for those that were
/// left out.
PENSTOCK_INLINE std::uint64_t ProducerCore::asked(const BatchRecord& record) const {
  if (!together()) return 1;
  return std::max<std::uint64_t>(1, record.ticket.samples.size());
}

/// At every eighth take: counting reads cache lines that the workers write for each batch.
PENSTOCK_INLINE void ProducerCore::sample_queue() noexcept {
  constexpr std::uint64_t kTakesPerSample = 8;
  if (ring_.position() % kTakesPerSample != 0) return;
  add_alone(queued_, std::uint64_t{ring_.count_filled()});
  add_alone(samplings_, std::uint64_t{1});
}

PENSTOCK_INLINE StageStats ProducerCore::stats() const {
  StageStats stats{.capacity = options_.depth};
  for (const WorkerTrace& trace : traces_) {
    stats.busy += trace.busy();
    stats.waiting_for_room += trace.waiting();
    stats.batches += trace.batches();
    stats.bytes += trace.bytes();
  }
  const auto samplings = static_cast<double>(samplings_.load(std::memory_order_relaxed));
  if (samplings > 0)
    stats.queued = static_cast<double>(queued_.load(std::memory_order_relaxed)) / samplings;
  return stats;
}

PENSTOCK_INLINE void ProducerCore::use(const TuneSettings& settings) {
  memory_.use(settings.depth);
  permits_.allow(settings.workers);
}

PENSTOCK_INLINE void ProducerCore::add_to(TuneCounts& counts) const {
  // Workers that fill a batch together do not rest between two of them.
  for (const WorkerTrace& trace : traces_) {
    counts.filling += together() ? trace.busy() : trace.busy_until_its_last_rest();
    counts.filled += trace.batches();
    counts.workers_waiting += trace.waiting();
    counts.cpu += trace.cpu();
  }
}

PENSTOCK_INLINE void ProducerCore::add_to(Stats& stats) const {
  stats.source = this->stats();
  stats.source_reads = ReadCounts{};
  for (const WorkerTrace& trace : traces_) {
    add_known(stats.source_reads, trace.reads());
    stats.worker_cpu += trace.cpu();
    stats.longest_fill = std::max(stats.longest_fill, trace.longest());
  }
}

PENSTOCK_INLINE WorkerActivity ProducerCore::oldest_activity() const {
  WorkerActivity oldest;
  // A worker gets its number when it has all that it needs to fill the batch. One that waits shows
  // the number that was next when its wait began: so workers inside the source count as older.
  const auto age = [](const WorkerActivity& activity) {
    return std::tuple(!is_work(activity.state), activity.number, activity.since);
  };
  for (const WorkerTrace& trace : traces_) {
    const WorkerActivity activity = trace.activity();
    if (activity.state == WorkerState::idle) continue;
    if (oldest.state == WorkerState::idle || age(activity) < age(oldest)) oldest = activity;
  }
  return oldest;
}

}  // namespace penstock::detail
