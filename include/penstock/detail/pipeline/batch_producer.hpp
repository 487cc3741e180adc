// SPDX-License-Identifier: Apache-2.0
#pragma once

// ProducerCore: the inside of BatchProducer. A worker's life: claim a number, take a pinned block,
// fill it, publish.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <limits>
#include <penstock/batch_producer.hpp>
#include <penstock/cuda.hpp>
#include <penstock/detail/cores.hpp>
#include <penstock/detail/measure/worker_trace.hpp>
#include <penstock/detail/memory/batch_object.hpp>
#include <penstock/detail/memory/checks.hpp>
#include <penstock/detail/memory/copy_from.hpp>
#include <penstock/detail/memory/resolved_stream.hpp>
#include <penstock/detail/mix.hpp>
#include <penstock/detail/pipeline/batch_ring.hpp>
#include <penstock/detail/pipeline/failure_log.hpp>
#include <penstock/detail/process.hpp>
#include <penstock/detail/storage/file_reads.hpp>
#include <penstock/error.hpp>
#include <penstock/markers.hpp>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <variant>

namespace penstock::detail {

// A block holds the batch's fields, then what is not copied to the device: the ticket's sample
// numbers, and the batch itself.
inline std::size_t ticket_offset(const BlockLayout& layout) {
  return (layout.bytes() + 7) / 8 * 8;
}
inline std::size_t batch_offset(const BlockLayout& layout) {
  const std::size_t samples = static_cast<std::size_t>(layout.batch_size());
  const std::size_t end = ticket_offset(layout) + samples * sizeof(std::uint64_t);
  return (end + layout.batch_alignment() - 1) / layout.batch_alignment() * layout.batch_alignment();
}

PENSTOCK_INLINE std::size_t block_bytes(const BlockLayout& layout) {
  constexpr std::size_t kGranule = 256;  // the pool's
  return (batch_offset(layout) + layout.batch_bytes() + kGranule - 1) / kGranule * kGranule;
}

/// Behind what this thread has resolved. Returns the bytes.
inline std::size_t copy_to(HostBlock& host, std::byte* device, const ResolvedStream& stream) {
  std::size_t sum = 0;
  copy_from(host.block, stream, [&] {
    host.layout->for_each_range(host.samples, [&](std::size_t offset, std::size_t bytes) {
      check(cudaMemcpyAsync(device + offset, host.block.data() + offset, bytes,
                            cudaMemcpyHostToDevice, stream.handle),
            "cudaMemcpyAsync", bytes);
      sum += bytes;
    });
  });
  return sum;
}

PENSTOCK_INLINE void copy_to(HostBlock& host, std::byte* device, cudaStream_t stream) {
  if (!host.block) throw std::logic_error("HostBatch::copy_to: the batch was released");
  copy_to(host, device, resolve_usable(stream, "HostBatch::copy_to"));
}

/// a * b, or the largest number that a ring can count to.
inline std::uint64_t saturated_product(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max() >> 1;
  if (a != 0 && b > kMost / a) return kMost;
  return std::min(a * b, kMost);
}

inline ProducerOptions checked(ProducerOptions options) {
  if (options.workers < 0)
    throw std::invalid_argument("workers is " + std::to_string(options.workers) +
                                ", must be 0 (run the source in next) or more");
  if (options.depth == 0) options.depth = static_cast<std::size_t>(options.workers) + 2;
  return options;
}

class ProducerCore final : public AnyProducer {
 public:
  ProducerCore(const BlockLayout& layout, AnySampler sampler, ErasedSource source, PinnedPool& pool,
               ProducerOptions options);
  ProducerCore(const ProducerCore&) = delete;
  ProducerCore& operator=(const ProducerCore&) = delete;
  ~ProducerCore() override { stop(); }

  std::optional<HostBlock> next() override;
  bool ready() noexcept override;
  bool at_end() noexcept override;
  void stop() noexcept override;
  void seek(std::uint64_t epoch, std::uint64_t batch) override;

  std::uint64_t position() const noexcept override {
    return options_.workers == 0 ? inline_next_.load(std::memory_order_relaxed) : ring_.head();
  }
  std::uint64_t batches() const noexcept override { return batches_; }
  const ProducerOptions& options() const noexcept override { return options_; }
  StageStats stats() const override;
  std::vector<Failure> failures() const override { return log_.kept(); }
  std::uint64_t skipped() const noexcept override { return log_.skipped(); }
  std::uint64_t replaced() const noexcept override { return log_.replaced(); }
  /// What the worker with the oldest batch does, for StallError.
  WorkerActivity oldest_activity() const;

 private:
  struct Filled {
    HostBlock batch;
    std::unique_ptr<Failed> instead_of;
  };
  struct End {};  // the source returned false
  using Item = std::variant<Filled, Failed, End>;

  /// What one thread fills batches with.
  struct Tools {
    WorkerTrace& trace;
    std::stop_token stop;
    BatchObject batch;                     // that the source sees
    std::optional<ErasedSource> source{};  // its own copy
    std::vector<std::uint64_t> samples{};
  };

  void start();
  void work(std::size_t worker, const std::stop_token& stop);
  bool enter(WorkerTrace& trace);
  PinnedBlock acquire(WorkerTrace& trace, const std::stop_token& stop);
  Item make(std::uint64_t number, PinnedBlock block, Tools& tools) noexcept;
  Item attempt(std::uint64_t number, std::uint64_t samples_of, PinnedBlock& block, Tools& tools);
  void replace(Item& item, std::uint64_t number, PinnedBlock& block, Tools& tools);
  Item fill(PinnedBlock& block, const Ticket& ticket, Tools& tools);
  std::size_t bytes(const HostBlock& batch) const;
  Ticket write_ticket(std::uint64_t number, std::uint64_t samples_of, const PinnedBlock& block,
                      std::vector<std::uint64_t>& samples) const;
  bool is_dealt_with(Item& item) noexcept;
  HostBlock batch_in(Item&& item) const;
  void count_queue() noexcept;
  std::optional<HostBlock> next_inline();

  const std::shared_ptr<const BlockLayout> shared_layout_;  // with the batches that outlive this
  const BlockLayout& layout_ = *shared_layout_;
  const AnySampler sampler_;
  const ErasedSource source_;
  PinnedPool& pool_;
  const OwnerProcess process_;
  const bool checks_ = checks();
  ProducerOptions options_;
  std::uint64_t batches_;  // of an epoch
  std::uint64_t total_;    // of all epochs
  std::size_t block_bytes_;
  int device_;

  BatchRing<Item> ring_;
  FailureLog log_;
  std::atomic_flag in_next_;                         // some thread is
  bool finished_ = false;                            // of the consumer
  std::atomic<std::uint64_t> looks_{0}, queued_{0};  // at the queue; written by the consumer
  std::vector<WorkerTrace> traces_;
  std::atomic<std::uint64_t> inline_next_{0};  // with 0 workers: the next number,
  Tools inline_tools_;                         // and what next() fills it with
  std::vector<std::jthread> workers_;          // last: joined before anything they use goes away
};

PENSTOCK_INLINE std::unique_ptr<AnyProducer> make_producer(const BlockLayout& layout,
                                                           AnySampler sampler, ErasedSource source,
                                                           PinnedPool& pool,
                                                           ProducerOptions options) {
  return std::make_unique<ProducerCore>(layout, std::move(sampler), std::move(source), pool,
                                        std::move(options));
}

PENSTOCK_INLINE ProducerCore::ProducerCore(const BlockLayout& layout, AnySampler sampler,
                                           ErasedSource source, PinnedPool& pool,
                                           ProducerOptions options)
    : shared_layout_(std::make_shared<const BlockLayout>(layout)),
      sampler_(std::move(sampler)),
      source_(std::move(source)),
      pool_(pool),
      options_(checked(std::move(options))),
      batches_(sampler_.batches()),
      total_(saturated_product(batches_, options_.epochs)),
      block_bytes_(block_bytes(layout_)),
      device_(current_device()),
      ring_(options_.depth, options_.ordered),
      log_(options_.on_failure),
      traces_(static_cast<std::size_t>(std::max(1, options_.workers))),
      inline_tools_{traces_.front(), {}, BatchObject(layout_)} {
  if (layout_.bytes() == 0) throw std::invalid_argument("the layout has no field: call field()");
  seek(0, 0);
}

PENSTOCK_INLINE void ProducerCore::stop() noexcept {
  if (!process_.is_this()) return leak(std::move(workers_));
  for (auto& worker : workers_) worker.request_stop();
  ring_.close();
  workers_.clear();
}

PENSTOCK_INLINE void ProducerCore::seek(std::uint64_t epoch, std::uint64_t batch) {
  stop();
  const std::uint64_t first = std::min(total_, saturated_product(batches_, epoch) + batch);
  finished_ = false;
  ring_.reopen(first, total_);
  inline_next_ = first;
  inline_tools_.source.reset();
  start();
}

PENSTOCK_INLINE void ProducerCore::start() {
  const auto count = static_cast<std::size_t>(options_.workers);
  workers_.reserve(count);
  try {
    for (std::size_t i = 0; i < count; ++i)
      workers_.emplace_back([this, i](const std::stop_token& stop) { work(i, stop); });
  } catch (...) {
    stop();  // Those that run already.
    throw;
  }
}

PENSTOCK_INLINE void ProducerCore::work(std::size_t worker, const std::stop_token& stop) {
  markers::name_this_thread("penstock worker");
  Tools tools{traces_[worker], stop, BatchObject(layout_)};
  const WorkerTrace::Shift shift(tools.trace);
  // Captures on other threads forbid event queries to threads that have not opted out.
  const CaptureModeGuard capture_mode;
  // Where this fails, the calls that need the device say so, at a batch's place.
  cudaSetDevice(device_);

  while (enter(tools.trace)) {
    // The block comes before the number, so that the oldest number always has one.
    PinnedBlock block;
    std::exception_ptr no_block;
    try {
      block = acquire(tools.trace, stop);
      if (!block) return;
    } catch (...) {
      no_block = std::current_exception();
    }
    const std::optional<std::uint64_t> number = ring_.claim();
    if (!number) return;
    Item item =
        block ? make(*number, std::move(block), tools) : Item(Failed{std::move(no_block), {}});
    if (std::holds_alternative<End>(item)) ring_.close();
    ring_.publish(*number, std::move(item));
    if (options_.on_ready) {
      tools.trace.hand_on();
      options_.on_ready();
    }
  }
}

PENSTOCK_INLINE bool ProducerCore::enter(WorkerTrace& trace) {
  if (ring_.try_enter()) return true;  // Mostly, with a slow source; no clock is read.
  const WorkerTrace::Wait wait(trace, WorkerState::room, ring_.next_number());
  const ScopedRange range(markers::wait_for_room, ring_.next_number());
  return ring_.enter();
}

PENSTOCK_INLINE PinnedBlock ProducerCore::acquire(WorkerTrace& trace, const std::stop_token& stop) {
  if (PinnedBlock block = pool_.try_acquire(block_bytes_)) return block;
  const WorkerTrace::Wait wait(trace, WorkerState::memory, ring_.next_number());
  const ScopedRange range(markers::wait_for_memory, ring_.next_number());
  return pool_.acquire(block_bytes_, stop);
}

/// Makes batch `number` in `block`. The first call copies the source.
PENSTOCK_INLINE auto ProducerCore::make(std::uint64_t number, PinnedBlock block,
                                        Tools& tools) noexcept -> Item {
  try {
    if (!tools.source) {
      tools.samples.reserve(static_cast<std::size_t>(layout_.batch_size()));
      tools.source.emplace(source_);
    }
    tools.trace.work_on(number);
    const ScopedRange range(markers::fill, number % batches_);
    Item item = attempt(number, number, block, tools);
    if (std::holds_alternative<Failed>(item) &&
        options_.on_failure.action() == FailurePolicy::Action::replace)
      replace(item, number, block, tools);
    if (const auto* filled = std::get_if<Filled>(&item))
      tools.trace.count_batch(bytes(filled->batch));
    return item;
  } catch (...) {
    return Failed{std::current_exception(), {}};
  }
}

/// Fills batch `number` with the samples of batch `samples_of`; a failure is an Item too. Keeps
/// `block` unless it fills it.
PENSTOCK_INLINE auto ProducerCore::attempt(std::uint64_t number, std::uint64_t samples_of,
                                           PinnedBlock& block, Tools& tools) -> Item {
  const auto failed = [&](const char* what) {
    return Failed{std::current_exception(),
                  std::make_unique<Failure>(
                      Failure{number / batches_, number % batches_, tools.samples, what})};
  };
  try {
    tools.samples.clear();
    return fill(block, write_ticket(number, samples_of, block, tools.samples), tools);
  } catch (const std::exception& error) {
    return failed(error.what());
  } catch (...) {
    return failed("an exception that is no std::exception");
  }
}

/// Puts a batch made of other samples in the place of one that failed.
PENSTOCK_INLINE void ProducerCore::replace(Item& item, std::uint64_t number, PinnedBlock& block,
                                           Tools& tools) {
  constexpr std::uint64_t kAttempts = 3;
  const std::uint64_t first = number - number % batches_;  // of the epoch
  const std::uint64_t seed = batch_seed(sampler_.seed(), number / batches_, number % batches_);
  for (std::uint64_t i = 0; i < kAttempts && batches_ > 1; ++i) {
    const std::uint64_t step = 1 + mix64(seed + i) % (batches_ - 1);
    Item other = attempt(number, first + (number - first + step) % batches_, block, tools);
    if (auto* filled = std::get_if<Filled>(&other)) {
      filled->instead_of = std::make_unique<Failed>(std::move(std::get<Failed>(item)));
      item = std::move(other);
      return;
    }
  }
}

PENSTOCK_INLINE std::size_t ProducerCore::bytes(const HostBlock& batch) const {
  std::size_t sum = 0;
  layout_.for_each_range(batch.samples, [&](std::size_t, std::size_t part) { sum += part; });
  return sum;
}

/// The sample numbers stand behind the batch in its block, so they live exactly as long.
PENSTOCK_INLINE Ticket ProducerCore::write_ticket(std::uint64_t number, std::uint64_t samples_of,
                                                  const PinnedBlock& block,
                                                  std::vector<std::uint64_t>& samples) const {
  const std::uint64_t epoch = number / batches_, batch = number % batches_;
  sampler_.samples(epoch, samples_of % batches_, samples);
  if (samples.empty() || samples.size() > static_cast<std::size_t>(layout_.batch_size()))
    throw std::length_error("the sampler names " + std::to_string(samples.size()) +
                            " samples, the layout has room for 1 to " +
                            std::to_string(layout_.batch_size()));
  auto* tail = reinterpret_cast<std::uint64_t*>(block.data() + ticket_offset(layout_));
  std::copy(samples.begin(), samples.end(), tail);
  return {epoch, batch, batch_seed(sampler_.seed(), epoch, batch), {tail, samples.size()}};
}

PENSTOCK_INLINE auto ProducerCore::fill(PinnedBlock& block, const Ticket& ticket, Tools& tools)
    -> Item {
  if (checks_) std::memset(block.data(), blank, layout_.bytes());
  void* const batch = tools.batch.get();
  layout_.bind(batch, block.data(), static_cast<std::int64_t>(ticket.samples.size()));
  const auto call_source = [&] { return (*tools.source)(ticket, batch, tools.stop); };
  if (!with_whole_files(call_source)) return End{};
  const std::int64_t samples = layout_.samples(batch, block.data());
  if (checks_) check_fields(layout_, block.data(), samples);
  void* const kept = block.data() + batch_offset(layout_);
  std::memcpy(kept, batch, layout_.batch_bytes());
  return Filled{{std::move(block), kept, ticket, samples, shared_layout_}, nullptr};
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
  finished_ = finished_ || (options_.workers > 0 ? ring_.over() : inline_next_ == total_);
  return finished_;
}

/// Nothing in `item` is for the consumer.
PENSTOCK_INLINE bool ProducerCore::is_dealt_with(Item& item) noexcept {
  if (std::holds_alternative<End>(item)) {
    // In order, nothing behind it counts; as they come, batches that other workers had begun may
    // still follow.
    finished_ = options_.ordered;
    return true;
  }
  auto* filled = std::get_if<Filled>(&item);
  Failed* failed = filled == nullptr ? &std::get<Failed>(item) : filled->instead_of.get();
  if (failed == nullptr || !failed->failure || failed->decided) return false;
  const bool tolerated = log_.tolerates(*failed, filled != nullptr);
  if (filled == nullptr) {
    if (tolerated) log_.count_batch();
    return tolerated;
  }
  if (!tolerated) item = Failed(std::move(*failed));
  return false;
}

PENSTOCK_INLINE std::optional<HostBlock> ProducerCore::next() {
  if (in_next_.test_and_set(std::memory_order_acquire))
    throw std::logic_error("BatchProducer::next: another thread is in it");
  struct Leave {
    ~Leave() { flag.clear(std::memory_order_release); }
    std::atomic_flag& flag;
  } const leave{in_next_};
  if (options_.workers == 0) return next_inline();
  while (!ready()) {
    if (at_end()) return std::nullopt;
    process_.require("BatchProducer::next");
    ring_.wait();
  }
  count_queue();
  struct Pop {
    ~Pop() { ring.pop(); }
    BatchRing<Item>& ring;
  } const pop{ring_};
  log_.count_batch();
  return batch_in(std::move(ring_.front()));
}

/// Now and then only: the answer is on a cache line that the workers write for each batch.
PENSTOCK_INLINE void ProducerCore::count_queue() noexcept {
  constexpr std::uint64_t kTakesPerLook = 8;
  if (ring_.head() % kTakesPerLook != 0) return;
  add_alone(queued_, std::uint64_t{ring_.queued()});
  add_alone(looks_, std::uint64_t{1});
}

PENSTOCK_INLINE std::optional<HostBlock> ProducerCore::next_inline() {
  const WorkerTrace::Shift shift(inline_tools_.trace);
  while (!at_end()) {
    // Counted before it is made: after an exception the next call makes the batch behind it.
    const std::uint64_t number = inline_next_++;
    Item item = make(number, acquire(inline_tools_.trace, std::stop_token{}), inline_tools_);
    if (is_dealt_with(item)) {
      finished_ = finished_ || std::holds_alternative<End>(item);
      continue;
    }
    log_.count_batch();
    return batch_in(std::move(item));
  }
  return std::nullopt;
}

PENSTOCK_INLINE HostBlock ProducerCore::batch_in(Item&& item) const {
  if (const auto* failed = std::get_if<Failed>(&item)) failed->raise(log_.policy());
  return std::get<Filled>(std::move(item)).batch;
}

PENSTOCK_INLINE StageStats ProducerCore::stats() const {
  StageStats stats{.capacity = options_.depth};
  for (const WorkerTrace& trace : traces_) {
    stats.busy += trace.busy();
    stats.waiting_for_room += trace.waiting();
    stats.batches += trace.batches();
    stats.bytes += trace.bytes();
  }
  const auto looks = static_cast<double>(looks_.load(std::memory_order_relaxed));
  if (looks > 0)
    stats.queued = static_cast<double>(queued_.load(std::memory_order_relaxed)) / looks;
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

}  // namespace penstock::detail
