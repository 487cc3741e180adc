// SPDX-License-Identifier: Apache-2.0
#pragma once

// ProducerCore: the inside of BatchProducer. A worker takes a piece of the oldest batch that has
// rows left, or opens the next batch: memory first, then its number. Whoever fills the last row
// hands the batch on. A source that is asked for whole batches has batches of one piece.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <penstock/batch_producer.hpp>
#include <penstock/cuda.hpp>
#include <penstock/detail/cores.hpp>
#include <penstock/detail/measure/worker_trace.hpp>
#include <penstock/detail/memory/batch_object.hpp>
#include <penstock/detail/memory/checks.hpp>
#include <penstock/detail/memory/copy_from.hpp>
#include <penstock/detail/memory/fill_checks.hpp>
#include <penstock/detail/memory/resolved_stream.hpp>
#include <penstock/detail/mix.hpp>
#include <penstock/detail/pipeline/batch_ring.hpp>
#include <penstock/detail/pipeline/device_targets.hpp>
#include <penstock/detail/pipeline/failure_log.hpp>
#include <penstock/detail/pipeline/open_batches.hpp>
#include <penstock/detail/process.hpp>
#include <penstock/error.hpp>
#include <penstock/markers.hpp>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace penstock::detail {

// A block holds the batch's fields, then what is not copied to the device: the ticket's sample
// numbers, the batch itself, and what was assigned to ragged fields.
inline std::size_t ticket_offset(const BlockLayout& layout) {
  return (layout.bytes() + 7) / 8 * 8;
}
inline std::size_t batch_offset(const BlockLayout& layout) {
  const std::size_t samples = static_cast<std::size_t>(layout.batch_size());
  const std::size_t end = ticket_offset(layout) + samples * sizeof(std::uint64_t);
  return (end + layout.batch_alignment() - 1) / layout.batch_alignment() * layout.batch_alignment();
}

inline std::size_t scratch_offset(const BlockLayout& layout) {
  return (batch_offset(layout) + layout.batch_bytes() + 7) / 8 * 8;
}

PENSTOCK_INLINE std::size_t block_bytes(const BlockLayout& layout) {
  constexpr std::size_t kGranule = 256;  // the pool's
  const std::size_t end = scratch_offset(layout) + layout.scratch_bytes();
  return (end + kGranule - 1) / kGranule * kGranule;
}

/// Queues the copy of `batch`, and gives its block back behind it. On the thread that has resolved
/// the stream. Returns the bytes.
inline std::size_t copy_to(FilledBatch& batch, const BlockLayout& layout, std::byte* device,
                           const ResolvedStream& stream) {
  std::size_t sum = 0;
  copy_from(batch.block, stream, [&] {
    layout.for_each_range(batch.batch, batch.samples, [&](std::size_t offset, std::size_t bytes) {
      check(cudaMemcpyAsync(device + offset, batch.block.data() + offset, bytes,
                            cudaMemcpyHostToDevice, stream.handle),
            "cudaMemcpyAsync", bytes);
      sum += bytes;
    });
  });
  return sum;
}

PENSTOCK_INLINE void copy_to(FilledBatch& batch, const BlockLayout& layout, std::byte* device,
                             cudaStream_t stream) {
  if (!batch.block) throw std::logic_error("HostBatch::copy_to: the batch was released");
  copy_to(batch, layout, device, resolve_usable(stream, "HostBatch::copy_to"));
}

/// a * b, or the largest number that a ring can count to.
inline std::uint64_t saturated_product(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max() >> 1;
  if (a != 0 && b > kMost / a) return kMost;
  return std::min(a * b, kMost);
}

inline ProducerOptions checked(ProducerOptions options, const AnySampler& sampler,
                               const ErasedSource& source) {
  if (options.workers < 0)
    throw std::invalid_argument("workers is " + std::to_string(options.workers) +
                                ", must be 1 or more (or 0, for one)");
  if (options.epochs == 0) throw std::invalid_argument("epochs is 0, must be at least 1");
  if (options.workers == 0 || sampler.is_stream()) options.workers = 1;
  if (options.depth == 0)
    options.depth =
        source.kind == SourceKind::sample ? 4 : static_cast<std::size_t>(options.workers) + 2;
  return options;
}

/// What became of a batch, for the consumer. With its cell's flags it fills two cache lines: each
/// further one costs a hand-over as much as all of the rest.
struct ProducedItem {
  enum class State {
    filled,  ///< some rows may have failed
    failed,  ///< all of it
    thrown,  ///< the first failure is to be thrown
    ended,   ///< the source said that there is no more
  };

  FilledBatch batch;
  State state = State::filled;
  std::unique_ptr<std::vector<Failed>> failures{};
};

/// A batch that workers fill.
struct alignas(64) OpenBatch : OpenRows {
  std::uint64_t number = 0;
  std::uint64_t pattern = 0;  // of FillChecks
  FilledBatch filled;
  std::atomic<bool> ended{false};
  std::mutex mutex;  // of what follows
  std::vector<Failed> failures;

  void fail(Failed failed) {
    const std::lock_guard lock(mutex);
    failures.push_back(std::move(failed));
  }
};

static_assert(sizeof(std::optional<ProducedItem>) <= 128 - sizeof(std::uint64_t));

class ProducerCore final : public AnyProducer {
 public:
  /// `targets`: of a source that writes device memory, else nullptr.
  ProducerCore(const BlockLayout& layout, AnySampler sampler, ErasedSource source, PinnedPool& pool,
               ProducerOptions options, DeviceTargets* targets = nullptr);
  ProducerCore(const ProducerCore&) = delete;
  ProducerCore& operator=(const ProducerCore&) = delete;
  ~ProducerCore() override { stop(); }

  std::optional<FilledBatch> next() override;
  /// The batch at the head of a producer that is ready(), or `error` in its place; what the batch
  /// then has is its slot.
  FilledBatch take(std::exception_ptr& error);
  bool ready() noexcept override;
  bool at_end() noexcept override;
  void stop() noexcept override;
  void seek(std::uint64_t epoch, std::uint64_t batch) override;

  const std::shared_ptr<const BlockLayout>& layout() const noexcept override {
    return shared_layout_;
  }
  std::uint64_t position() const noexcept override { return ring_.head(); }
  std::uint64_t batches() const noexcept override { return batches_; }
  const ProducerOptions& options() const noexcept override { return options_; }
  StageStats stats() const override;
  std::vector<Failure> failures() const override { return log_.kept(); }
  std::uint64_t skipped() const noexcept override { return log_.skipped(); }
  std::uint64_t replaced() const noexcept override { return log_.replaced(); }
  /// What the worker with the oldest batch does, for StallError.
  WorkerActivity oldest_activity() const;

  /// There is a WorkerError to be thrown.
  bool has_lost_worker() const noexcept {
    return unreported_.load(std::memory_order_relaxed) > 0 || no_worker_left();
  }
  /// Throws it.
  void throw_lost_worker();

 private:
  using Piece = OpenBatches<OpenBatch>::Piece;
  using Item = ProducedItem;

  /// What one thread fills batches with.
  struct Tools {
    std::size_t worker;
    WorkerTrace& trace;
    std::stop_token stop;
    std::unique_ptr<WorkerSource> source;
    BatchObject batch;  // this worker's view of a batch that several fill
    std::vector<std::uint64_t> samples{};
    std::vector<std::int64_t> dropped{};
    std::vector<std::byte> spare{};  // to put rows in order
    std::int64_t rows_at_once = 1;
  };

  void start();
  void work(std::size_t worker, const std::stop_token& stop) noexcept;
  void run(Tools& tools);
  std::unique_ptr<WorkerSource> make_source(std::size_t worker) noexcept;

  Piece next_piece(Tools& tools);
  OpenBatch* open_next(Tools& tools);
  bool enter(WorkerTrace& trace);
  bool acquire(FilledBatch& memory, Tools& tools);
  void prepare(OpenBatch& open, std::uint64_t samples_of, Tools& tools);

  void fill(const Piece& piece, Tools& tools);
  void fill_whole(OpenBatch& open, Tools& tools);
  std::optional<Failed> attempt(OpenBatch& open, std::uint64_t samples_of, Tools& tools);
  void fill_rows(const Piece& piece, Tools& tools);
  void fill_row(OpenBatch& open, std::int64_t row, Tools& tools);
  bool replace_row(OpenBatch& open, Sample& sample, Tools& tools);
  std::uint64_t other_sample(const Sample& failed, std::uint64_t attempt, Tools& tools) const;
  void fail_batch(OpenBatch& open, const char* why) const;
  bool finish_rows(OpenBatch& open, Tools& tools);
  static void drop_from_ticket(FilledBatch& filled, std::span<const std::int64_t> dropped);
  void finish(OpenBatch& open, std::span<const std::int64_t> dropped, Tools& tools);
  static void check_launches(cudaError_t before);
  void finish_on_device(FilledBatch& filled, Tools& tools);
  Failed failure_of(const OpenBatch& open, std::vector<std::uint64_t> samples) const;

  void hand_on(OpenBatch& open, Tools& tools);
  Item item_of(OpenBatch& open, Tools& tools);
  std::size_t bytes(const FilledBatch& batch) const;
  bool is_dealt_with(Item& item) noexcept;
  std::uint64_t asked(const Item& item) const;
  void sample_queue() noexcept;
  bool no_worker_left() const noexcept {
    return lost_.load(std::memory_order_relaxed) == static_cast<std::size_t>(options_.workers);
  }

  const std::shared_ptr<const BlockLayout> shared_layout_;  // with batches that outlive this
  const BlockLayout& layout_ = *shared_layout_;
  const AnySampler sampler_;
  const ErasedSource source_;
  PinnedPool& pool_;
  DeviceTargets* const targets_;
  const OwnerProcess process_;
  std::optional<FillChecks> checks_;  // with PENSTOCK_CHECKS
  ProducerOptions options_;
  std::uint64_t batches_;  // of an epoch
  std::uint64_t total_;    // of all epochs
  std::size_t block_bytes_;
  int device_;

  BatchRing<Item> ring_;
  OpenBatches<OpenBatch> open_;
  FailureLog log_;
  std::atomic_flag in_next_;                             // some thread is
  bool finished_ = false;                                // of the consumer
  std::atomic<std::uint64_t> samplings_{0}, queued_{0};  // of the queue; written by the consumer
  std::vector<WorkerTrace> traces_;

  std::mutex lost_mutex_;
  std::vector<std::exception_ptr> lost_workers_;  // of each worker that has no source
  std::atomic<std::size_t> lost_{0}, unreported_{0};

  std::atomic<int> running_{0};  // workers
  EventCount stopped_;
  std::vector<std::jthread> workers_;  // last: joined before anything they use goes away
};

PENSTOCK_INLINE std::unique_ptr<AnyProducer> make_producer(const BlockLayout& layout,
                                                           AnySampler sampler, ErasedSource source,
                                                           PinnedPool& pool,
                                                           ProducerOptions options) {
  if (source.kind == SourceKind::device)
    throw std::invalid_argument(
        "BatchProducer fills page-locked memory: give an on_device source to a Prefetcher");
  return std::make_unique<ProducerCore>(layout, std::move(sampler), std::move(source), pool,
                                        std::move(options));
}

PENSTOCK_INLINE ProducerCore::ProducerCore(const BlockLayout& layout, AnySampler sampler,
                                           ErasedSource source, PinnedPool& pool,
                                           ProducerOptions options, DeviceTargets* targets)
    : shared_layout_(std::make_shared<const BlockLayout>(layout)),
      sampler_(std::move(sampler)),
      source_(std::move(source)),
      pool_(pool),
      targets_(targets),
      options_(checked(std::move(options), sampler_, source_)),
      batches_(sampler_.batches()),
      total_(saturated_product(batches_, options_.epochs)),
      block_bytes_(block_bytes(layout_)),
      device_(current_device()),
      ring_(options_.depth, options_.ordered),
      open_(static_cast<std::size_t>(options_.workers)),
      log_(options_.on_failure),
      traces_(static_cast<std::size_t>(options_.workers)) {
  layout_.require_fields();
  if (checks() && targets_ == nullptr) checks_.emplace(layout_);
  if (batches_ == 0)
    throw std::invalid_argument("the sampler has no batch: its batches() must be at least 1");
  seek(0, 0);
}

// ---- Start and stop -----------------------------------------------------------------------------

PENSTOCK_INLINE void ProducerCore::start() {
  const auto count = static_cast<std::size_t>(options_.workers);
  workers_.reserve(count);
  try {
    for (std::size_t i = 0; i < count; ++i) {
      running_.fetch_add(1, std::memory_order_relaxed);
      workers_.emplace_back([this, i](const std::stop_token& stop) { work(i, stop); });
    }
  } catch (...) {
    running_.fetch_sub(1, std::memory_order_relaxed);  // The one that could not be started.
    stop();
    throw;
  }
}

/// Says once, on stderr, for whom it waits for seconds: an exception that unwinds through here may
/// reach nobody.
PENSTOCK_INLINE void ProducerCore::stop() noexcept {
  if (!process_.is_this()) return leak(std::move(workers_));
  for (auto& worker : workers_) worker.request_stop();
  ring_.close();
  constexpr std::chrono::seconds kPatience(5);
  const auto none_runs = [this] { return running_.load(std::memory_order_acquire) == 0; };
  if (!stopped_.wait_until(EventCount::Clock::now() + kPatience, none_runs)) {
    const WorkerActivity activity = oldest_activity();
    std::fprintf(
        stderr,
        "penstock: the end of a pipeline waits for a worker, for %d s so far: at epoch %llu, "
        "batch %llu, %s. A source that waits should take a std::stop_token\n",
        static_cast<int>(kPatience.count()),
        static_cast<unsigned long long>(activity.number / batches_),
        static_cast<unsigned long long>(activity.number % batches_), to_string(activity.state));
  }
  workers_.clear();
}

PENSTOCK_INLINE void ProducerCore::seek(std::uint64_t epoch, std::uint64_t batch) {
  stop();
  const std::uint64_t first = std::min(total_, saturated_product(batches_, epoch) + batch);
  finished_ = false;
  ring_.reopen(first, total_);
  lost_workers_.clear();
  lost_ = 0;
  unreported_ = 0;
  start();
}

// ---- Workers ------------------------------------------------------------------------------------

PENSTOCK_INLINE void ProducerCore::work(std::size_t worker, const std::stop_token& stop) noexcept {
  markers::name_this_thread("penstock worker");
  {
    // Captures on other threads forbid event queries to threads that have not opted out.
    const CaptureModeGuard capture_mode;
    // Where this fails, the calls that need the device say so, at a batch's place.
    cudaSetDevice(device_);
    const WorkerTrace::Shift shift(traces_[worker]);
    Tools tools{worker, traces_[worker], stop, make_source(worker), BatchObject(layout_)};
    if (tools.source != nullptr) run(tools);
  }
  running_.fetch_sub(1, std::memory_order_release);
  stopped_.notify_one();
}

/// nullptr: it could not be made, and `next` says so.
PENSTOCK_INLINE std::unique_ptr<WorkerSource> ProducerCore::make_source(
    std::size_t worker) noexcept {
  std::string why = "an exception that is no std::exception";
  try {
    try {
      return source_.make();
    } catch (const std::exception& error) {
      why = error.what();
      throw;
    }
  } catch (...) {
    const std::lock_guard lock(lost_mutex_);
    lost_workers_.push_back(std::make_exception_ptr(WorkerError(static_cast<int>(worker), why)));
  }
  lost_.fetch_add(1, std::memory_order_relaxed);
  unreported_.fetch_add(1, std::memory_order_release);
  ring_.wake();
  if (options_.on_ready) options_.on_ready();
  return nullptr;
}

PENSTOCK_INLINE void ProducerCore::throw_lost_worker() {
  if (!has_lost_worker()) return;
  std::exception_ptr error;
  {
    const std::lock_guard lock(lost_mutex_);
    // A worker that is lost meanwhile adds to it without the lock.
    const std::size_t left = unreported_.load(std::memory_order_relaxed);
    if (left > 0) unreported_.fetch_sub(1, std::memory_order_relaxed);
    error = lost_workers_[lost_workers_.size() - std::max<std::size_t>(1, left)];
  }
  std::rethrow_exception(error);
}

PENSTOCK_INLINE void ProducerCore::run(Tools& tools) {
  tools.samples.reserve(static_cast<std::size_t>(layout_.batch_size()));
  while (const Piece piece = next_piece(tools)) {
    if (piece.rows > 0) fill(piece, tools);
    if (piece.batch->count_filled(piece.rows)) hand_on(*piece.batch, tools);
  }
}

PENSTOCK_INLINE auto ProducerCore::next_piece(Tools& tools) -> Piece {
  if (source_.kind != SourceKind::sample) {
    OpenBatch* const open = open_next(tools);
    return open == nullptr ? Piece{} : open_.whole(*open);
  }
  return open_.next(
      tools.rows_at_once, [&] { return open_next(tools); },
      [&](auto&& waiting) {
        tools.trace.hand_on();
        waiting();
      });
}

/// Opens the next batch. nullptr: there is none, or stop was requested.
PENSTOCK_INLINE OpenBatch* ProducerCore::open_next(Tools& tools) {
  if (!enter(tools.trace)) return nullptr;
  // The memory comes before the number, so that the oldest number always has some.
  FilledBatch memory;
  std::exception_ptr no_memory;
  try {
    if (!acquire(memory, tools)) return nullptr;
  } catch (...) {
    no_memory = std::current_exception();
  }
  const std::optional<std::uint64_t> number = ring_.claim();
  if (!number) return nullptr;

  OpenBatch& open = open_.open(tools.worker);
  open.number = *number;
  open.filled = std::move(memory);
  open.ended.store(false, std::memory_order_relaxed);
  open.failures.clear();
  open.set_rows(0);
  if (no_memory) {
    open.fail({std::move(no_memory), nullptr});
  } else if (source_.kind != SourceKind::sample) {
    open.set_rows(1);
  } else {
    try {
      prepare(open, open.number, tools);
      open.set_rows(static_cast<std::int64_t>(open.filled.ticket.samples.size()));
    } catch (...) {
      open.fail(failure_of(open, tools.samples));
    }
  }
  return &open;
}

PENSTOCK_INLINE bool ProducerCore::enter(WorkerTrace& trace) {
  if (ring_.try_enter()) return true;  // Mostly, with a slow source; no clock is read.
  const WorkerTrace::Wait wait(trace, WorkerState::room, ring_.next_number());
  const ScopedRange range(markers::wait_for_room, ring_.next_number());
  return ring_.enter();
}

/// A pinned block, or a device slot; false: stop was requested.
PENSTOCK_INLINE bool ProducerCore::acquire(FilledBatch& memory, Tools& tools) {
  const auto try_now = [&] {
    if (targets_ != nullptr)
      memory.slot.reset(targets_->try_acquire(tools.worker));
    else
      memory.block = pool_.try_acquire(block_bytes_);
    return memory.slot != nullptr || memory.block;
  };
  if (try_now()) return true;
  const WorkerState state = targets_ != nullptr ? WorkerState::slot : WorkerState::memory;
  const WorkerTrace::Wait wait(tools.trace, state, ring_.next_number());
  const ScopedRange range(markers::wait_for_memory, ring_.next_number());
  if (targets_ != nullptr)
    memory.slot.reset(targets_->acquire(tools.worker, tools.stop));
  else
    memory.block = pool_.acquire(block_bytes_, tools.stop);
  return memory.slot != nullptr || memory.block;
}

/// Gives the batch its ticket, with the samples of batch `samples_of`, and binds it to its memory.
PENSTOCK_INLINE void ProducerCore::prepare(OpenBatch& open, std::uint64_t samples_of,
                                           Tools& tools) {
  const std::uint64_t epoch = open.number / batches_, batch = open.number % batches_;
  std::vector<std::uint64_t>& samples = tools.samples;
  samples.clear();
  sampler_.samples(epoch, samples_of % batches_, samples);
  if (samples.empty() || samples.size() > static_cast<std::size_t>(layout_.batch_size()))
    throw std::length_error("the sampler names " + std::to_string(samples.size()) +
                            " samples, the layout has room for 1 to " +
                            std::to_string(layout_.batch_size()));

  FilledBatch& filled = open.filled;
  const bool on_device = filled.slot != nullptr;
  std::byte* const memory = on_device ? filled.slot->memory.data() : filled.block.data();
  // On the host the sample numbers and the batch stand behind the fields, so they live as long.
  std::uint64_t* numbers = nullptr;
  if (on_device) {
    filled.slot->samples.assign(samples.begin(), samples.end());
    numbers = filled.slot->samples.data();
    filled.batch = filled.slot->object.get();
  } else {
    numbers = reinterpret_cast<std::uint64_t*>(memory + ticket_offset(layout_));
    std::copy(samples.begin(), samples.end(), numbers);
    filled.batch = memory + batch_offset(layout_);
    if (checks_) open.pattern = checks_->blank(memory);
  }
  filled.ticket = {epoch,
                   batch,
                   batch_seed(sampler_.seed(), epoch, batch),
                   {numbers, samples.size()},
                   sampler_.seed()};
  const auto rows = static_cast<std::int64_t>(samples.size());
  if (on_device)
    layout_.bind(filled.batch, memory, rows);
  else
    layout_.bind_for_source(filled.batch, memory, memory + scratch_offset(layout_), rows);
}

PENSTOCK_INLINE void ProducerCore::fill(const Piece& piece, Tools& tools) {
  tools.trace.work_on(piece.batch->number);
  const ScopedRange range(markers::fill, piece.batch->number % batches_);
  if (source_.kind == SourceKind::sample)
    fill_rows(piece, tools);
  else
    fill_whole(*piece.batch, tools);
}

// ---- Whole batches ------------------------------------------------------------------------------

PENSTOCK_INLINE void ProducerCore::fill_whole(OpenBatch& open, Tools& tools) {
  std::optional<Failed> failed = attempt(open, open.number, tools);
  if (!failed) return;
  if (failed->failure && options_.on_failure.action() == FailurePolicy::Action::replace) {
    // In its place, other batches of the epoch.
    constexpr std::uint64_t kAttempts = 3;
    const std::uint64_t first = open.number - open.number % batches_;
    const std::uint64_t seed =
        batch_seed(sampler_.seed(), open.number / batches_, open.number % batches_);
    for (std::uint64_t i = 0; i < kAttempts && batches_ > 1 && !failed->failure->replaced; ++i) {
      const std::uint64_t step = 1 + mix64(seed + i) % (batches_ - 1);
      const std::uint64_t other = first + (open.number - first + step) % batches_;
      failed->failure->replaced = !attempt(open, other, tools);
    }
  }
  open.fail(std::move(*failed));
}

/// Fills the batch with the samples of batch `samples_of`; returns what failed.
PENSTOCK_INLINE std::optional<Failed> ProducerCore::attempt(OpenBatch& open,
                                                            std::uint64_t samples_of,
                                                            Tools& tools) {
  FilledBatch& filled = open.filled;
  try {
    prepare(open, samples_of, tools);
    const cudaStream_t stream =
        targets_ != nullptr ? targets_->stream(tools.worker) : cudaStream_t{};
    const cudaError_t before = targets_ != nullptr ? cudaPeekAtLastError() : cudaSuccess;
    const bool more = tools.source->fill_batch(filled.ticket, filled.batch, stream, tools.stop);
    if (targets_ != nullptr) check_launches(before);
    if (!more)
      open.ended.store(true, std::memory_order_relaxed);
    else
      finish(open, {}, tools);
    return std::nullopt;
  } catch (...) {
    return failure_of(open, tools.samples);
  }
}

/// A kernel that was not launched leaves no other trace than this thread's last error.
PENSTOCK_INLINE void ProducerCore::check_launches(cudaError_t before) {
  const cudaError_t now = cudaPeekAtLastError();
  if (now == before) return;
  cudaGetLastError();
  check(now, "what the on_device source called without a check of its own");
}

/// The source is through with the batch, but for the rows in `dropped`, which ascend.
PENSTOCK_INLINE void ProducerCore::finish(OpenBatch& open, std::span<const std::int64_t> dropped,
                                          Tools& tools) {
  FilledBatch& filled = open.filled;
  if (filled.slot != nullptr) return finish_on_device(filled, tools);
  std::byte* const block = filled.block.data();
  const auto asked = static_cast<std::int64_t>(filled.ticket.samples.size());
  if (checks_) checks_->check(filled.batch, block, asked, open.pattern, dropped);
  filled.samples = layout_.finish(filled.batch, block, dropped, tools.spare);
}

PENSTOCK_INLINE void ProducerCore::finish_on_device(FilledBatch& filled, Tools& tools) {
  filled.samples = layout_.samples(filled.batch, filled.slot->memory.data());
  filled.slot->written.record(targets_->stream(tools.worker));
}

/// Of the exception that is being handled.
PENSTOCK_INLINE Failed ProducerCore::failure_of(const OpenBatch& open,
                                                std::vector<std::uint64_t> samples) const {
  std::string what = "an exception that is no std::exception";
  try {
    throw;
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
  }
  return {std::current_exception(),
          std::make_unique<Failure>(Failure{open.number / batches_, open.number % batches_,
                                            std::move(samples), std::move(what)})};
}

// ---- Rows ---------------------------------------------------------------------------------------

/// Fills the rows of a piece, and sets how many to take next: as many as take long against the cost
/// of taking them.
PENSTOCK_INLINE void ProducerCore::fill_rows(const Piece& piece, Tools& tools) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::nanoseconds kPiece = std::chrono::microseconds(50);
  OpenBatch& open = *piece.batch;
  // The worker's own view: what one source sets in it is nothing that another one reads.
  std::memcpy(tools.batch.get(), open.filled.batch, layout_.batch_bytes());
  const auto begin = Clock::now();
  for (std::int64_t row = piece.first; row < piece.first + piece.rows; ++row) {
    if (tools.stop.stop_requested()) return open.ended.store(true, std::memory_order_relaxed);
    fill_row(open, row, tools);
  }
  const auto each = std::max((Clock::now() - begin) / piece.rows, std::chrono::nanoseconds(1));
  tools.rows_at_once = std::max<std::int64_t>(1, kPiece / each);
  if (std::memcmp(tools.batch.get(), open.filled.batch, layout_.batch_bytes()) != 0)
    fail_batch(open,
               "a per_sample source changed the batch itself: it may only write its row of the "
               "fields. A source that is asked for whole batches can set other members");
}

/// A failure that no policy for samples covers.
PENSTOCK_INLINE void ProducerCore::fail_batch(OpenBatch& open, const char* why) const {
  const SourceError error(open.number / batches_, open.number % batches_, why);
  open.fail({std::make_exception_ptr(error), nullptr, -1});
}

PENSTOCK_INLINE void ProducerCore::fill_row(OpenBatch& open, std::int64_t row, Tools& tools) {
  const Ticket& ticket = open.filled.ticket;
  const std::uint64_t index = ticket.samples[static_cast<std::size_t>(row)];
  Sample sample{index, row, sample_seed(ticket.run_seed, ticket.epoch, index), ticket.epoch,
                ticket.batch};
  try {
    tools.source->fill_row(sample, tools.batch.get(), tools.stop);
  } catch (const RaggedFull& error) {
    fail_batch(open, error.what());  // Another order of the rows would blame another one.
  } catch (...) {
    Failed failed = failure_of(open, {index});
    failed.row = row;
    failed.failure->what = "sample " + std::to_string(index) + ": " + failed.failure->what;
    failed.failure->replaced = options_.on_failure.action() == FailurePolicy::Action::replace &&
                               replace_row(open, sample, tools);
    open.fail(std::move(failed));
  }
}

/// Fills the row with another sample; false: three of them failed too, or there is none.
PENSTOCK_INLINE bool ProducerCore::replace_row(OpenBatch& open, Sample& sample, Tools& tools) {
  constexpr std::uint64_t kAttempts = 3;
  const Sample failed = sample;
  for (std::uint64_t i = 0; i < kAttempts; ++i) try {
      sample.index = other_sample(failed, i, tools);
      if (sample.index == failed.index) continue;
      layout_.clear_row(open.filled.batch, sample.row);
      sample.seed = sample_seed(open.filled.ticket.run_seed, sample.epoch, sample.index);
      tools.source->fill_row(sample, tools.batch.get(), tools.stop);
      // The numbers lie in the block, behind the fields; the row is this worker's.
      const_cast<std::uint64_t&>(open.filled.ticket.samples[static_cast<std::size_t>(sample.row)]) =
          sample.index;
      return true;
    } catch (const RaggedFull& error) {
      fail_batch(open, error.what());
      return false;
    } catch (...) {  // The first failure is the one that is reported.
    }
  return false;
}

/// A pure function of (run seed, epoch, index) and `attempt`: any sample of the data set, or, where
/// the sampler does not say how large that is, of the epoch's batches.
PENSTOCK_INLINE std::uint64_t ProducerCore::other_sample(const Sample& failed,
                                                         std::uint64_t attempt,
                                                         Tools& tools) const {
  const std::uint64_t draw = mix64(failed.seed + attempt);
  if (const std::uint64_t all = sampler_.start().samples; all > 0) return draw % all;
  tools.samples.clear();
  sampler_.samples(failed.epoch, draw % batches_, tools.samples);
  return tools.samples.at(mix64(draw) % std::max<std::size_t>(tools.samples.size(), 1));
}

/// After the last row: leaves out what failed. False: there is no batch.
PENSTOCK_INLINE bool ProducerCore::finish_rows(OpenBatch& open, Tools& tools) {
  std::vector<Failed>& failures = open.failures;
  std::stable_sort(failures.begin(), failures.end(),
                   [](const Failed& a, const Failed& b) { return a.row < b.row; });
  const bool skips = options_.on_failure.action() == FailurePolicy::Action::skip;
  const auto fatal = std::find_if(failures.begin(), failures.end(), [&](const Failed& failed) {
    return !failed.failure || !(failed.failure->replaced || skips);
  });
  if (fatal != failures.end()) {
    std::swap(failures.front(), *fatal);
    failures.erase(failures.begin() + 1, failures.end());
    return false;
  }
  tools.dropped.clear();
  if (skips)
    for (const Failed& failed : failures) tools.dropped.push_back(failed.row);
  if (tools.dropped.size() == open.filled.ticket.samples.size()) return false;
  finish(open, tools.dropped, tools);
  if (!tools.dropped.empty()) drop_from_ticket(open.filled, tools.dropped);
  return true;
}

PENSTOCK_INLINE void ProducerCore::drop_from_ticket(FilledBatch& filled,
                                                    std::span<const std::int64_t> dropped) {
  // The numbers lie in the block, behind the fields.
  auto* const numbers = const_cast<std::uint64_t*>(filled.ticket.samples.data());
  std::size_t kept = 0;
  for (std::size_t row = 0; row < filled.ticket.samples.size(); ++row) {
    if (!dropped.empty() && static_cast<std::size_t>(dropped.front()) == row)
      dropped = dropped.subspan(1);
    else
      numbers[kept++] = numbers[row];
  }
  filled.ticket.samples = {numbers, kept};
}

// ---- From the workers to the consumer -----------------------------------------------------------

PENSTOCK_INLINE void ProducerCore::hand_on(OpenBatch& open, Tools& tools) {
  const std::uint64_t number = open.number;
  Item item = item_of(open, tools);
  open_.close(open);
  if (item.state == Item::State::ended) ring_.close();
  ring_.publish(number, std::move(item));
  if (options_.on_ready) {
    tools.trace.hand_on();
    options_.on_ready();
  }
}

/// What has become of a batch whose last row is filled.
PENSTOCK_INLINE auto ProducerCore::item_of(OpenBatch& open, Tools& tools) -> Item {
  const bool by_sample = source_.kind == SourceKind::sample;
  Item item;
  std::vector<Failed>& failures = open.failures;
  const auto is_there = [&] {
    if (by_sample && !open.filled.ticket.samples.empty()) return finish_rows(open, tools);
    return failures.empty() || (failures.front().failure && failures.front().failure->replaced);
  };
  try {
    if (open.ended.load(std::memory_order_relaxed))
      item.state = Item::State::ended;
    else if (!is_there())
      item.state = Item::State::failed;
  } catch (...) {
    item.state = Item::State::failed;
    failures.clear();
    failures.push_back(failure_of(open, tools.samples));
  }
  if (!failures.empty()) item.failures = std::make_unique<std::vector<Failed>>(std::move(failures));
  if (item.state == Item::State::filled) tools.trace.count_batch(bytes(open.filled));
  // A failed batch keeps its slot, in which the error is staged.
  if (item.state != Item::State::filled) open.filled.block = PinnedBlock();
  if (item.state == Item::State::ended) open.filled.slot.reset();
  item.batch = std::move(open.filled);
  return item;
}

PENSTOCK_INLINE std::size_t ProducerCore::bytes(const FilledBatch& batch) const {
  std::size_t sum = 0;
  layout_.for_each_range(batch.batch, batch.samples,
                         [&](std::size_t, std::size_t part) { sum += part; });
  return sum;
}

PENSTOCK_INLINE bool ProducerCore::ready() noexcept {
  while (!finished_ && ring_.full()) {
    if (!is_dealt_with(ring_.front())) return true;
    ring_.pop();
  }
  return false;
}

PENSTOCK_INLINE bool ProducerCore::at_end() noexcept {
  if (ready()) return false;
  finished_ = finished_ || ring_.over();
  return finished_;
}

/// Nothing in `item` is for the consumer.
PENSTOCK_INLINE bool ProducerCore::is_dealt_with(Item& item) noexcept {
  if (item.state == Item::State::ended) {
    // In order, nothing behind it counts; as they come, batches that other workers had begun may
    // still follow.
    finished_ = options_.ordered;
    return true;
  }
  if (item.failures == nullptr || item.state == Item::State::thrown) return false;
  const bool is_there = item.state == Item::State::filled;
  std::uint64_t left_out = 0;
  if (is_there)
    for (const Failed& failed : *item.failures) left_out += failed.failure->replaced ? 0 : 1;
  for (Failed& failed : *item.failures) {
    if (log_.tolerates(failed, asked(item) + left_out)) continue;
    std::swap(item.failures->front(), failed);
    item.state = Item::State::thrown;
    break;
  }
  log_.count(left_out);
  if (item.state == Item::State::thrown) return false;
  item.failures.reset();
  if (is_there) return false;
  log_.count(asked(item));
  return true;
}

PENSTOCK_INLINE std::optional<FilledBatch> ProducerCore::next() {
  if (in_next_.test_and_set(std::memory_order_acquire))
    throw std::logic_error("BatchProducer::next: another thread is in it");
  struct Leave {
    ~Leave() { flag.clear(std::memory_order_release); }
    std::atomic_flag& flag;
  } const leave{in_next_};
  throw_lost_worker();
  while (!ready()) {
    if (at_end()) return std::nullopt;
    ring_.wait([this] { return has_lost_worker(); });
    throw_lost_worker();
  }
  std::exception_ptr error;
  FilledBatch batch = take(error);
  if (error) std::rethrow_exception(error);
  return batch;
}

PENSTOCK_INLINE FilledBatch ProducerCore::take(std::exception_ptr& error) {
  sample_queue();
  Item& item = ring_.front();
  log_.count(asked(item));
  FilledBatch batch = std::move(item.batch);
  if (item.state != Item::State::filled) error = item.failures->front().as_error(log_.policy());
  ring_.pop();
  return batch;
}

/// What the policy counts: batches, or the samples of a per_sample source, but for those that were
/// left out.
PENSTOCK_INLINE std::uint64_t ProducerCore::asked(const Item& item) const {
  if (source_.kind != SourceKind::sample) return 1;
  return std::max<std::uint64_t>(1, item.batch.ticket.samples.size());
}

/// At some takes only: the answer is on a cache line that the workers write for each batch.
PENSTOCK_INLINE void ProducerCore::sample_queue() noexcept {
  constexpr std::uint64_t kTakesPerSample = 8;
  if (ring_.head() % kTakesPerSample != 0) return;
  add_alone(queued_, std::uint64_t{ring_.queued()});
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

PENSTOCK_INLINE WorkerActivity ProducerCore::oldest_activity() const {
  WorkerActivity oldest;
  for (const WorkerTrace& trace : traces_) {
    const WorkerActivity activity = trace.activity();
    if (activity.state == WorkerState::idle) continue;
    if (oldest.state == WorkerState::idle || activity.number < oldest.number) oldest = activity;
  }
  return oldest;
}

PENSTOCK_INLINE void ReleaseSlot::operator()(WrittenSlot* slot) const noexcept {
  slot->memory = DeviceSlot();  // Its next writer comes after what was queued.
}

}  // namespace penstock::detail
