// SPDX-License-Identifier: Apache-2.0
#pragma once

// BatchFiller: what a worker does to an open batch: it gives the batch its ticket, calls the source
// for the whole of it or for its rows, applies the failure policy to what fails, and makes of it
// what the consumer gets. It has no threads and waits for nothing: ProducerCore does.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <penstock/any_sampler.hpp>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/batch_object.hpp>
#include <penstock/detail/memory/checks.hpp>
#include <penstock/detail/memory/fill_checks.hpp>
#include <penstock/detail/mix.hpp>
#include <penstock/detail/observe/batch_times.hpp>
#include <penstock/detail/observe/ticks.hpp>
#include <penstock/detail/observe/worker_trace.hpp>
#include <penstock/detail/pipeline/device_targets.hpp>
#include <penstock/detail/pipeline/failure_log.hpp>
#include <penstock/detail/pipeline/filled_batch.hpp>
#include <penstock/detail/pipeline/open_batches.hpp>
#include <penstock/error.hpp>
#include <penstock/failure.hpp>
#include <penstock/markers.hpp>
#include <penstock/sampler.hpp>
#include <penstock/source.hpp>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace penstock::detail {

/// What became of a batch, for the consumer. With the flags of its cell it must fit two cache
/// lines: each further line costs as much as the rest of a hand-over.
struct ProducedItem {
  enum class State {
    filled,  ///< some rows may have failed
    failed,  ///< all of it
    thrown,  ///< the first failure is to be thrown
    ended,   ///< the source said that there is no more
  };

  FilledBatch batch;
  State state = State::filled;
  std::unique_ptr<std::vector<FailureNode>> failures{};
};

/// A batch that workers fill.
struct alignas(64) OpenBatch : OpenRows {
  std::uint64_t number = 0;
  std::uint64_t pattern = 0;  // of FillChecks
  FilledBatch filled;
  BatchTimes times;
  std::atomic<std::uint64_t> work{0};  // of `times`, by the workers that are through with rows
  std::atomic<bool> ended{false};
  std::mutex mutex;  // of what follows
  std::vector<FailureNode> failures;

  void fail(FailureNode failed) {
    const std::lock_guard lock(mutex);
    failures.push_back(std::move(failed));
  }
};

static_assert(sizeof(std::optional<ProducedItem>) <= 128 - sizeof(std::uint64_t));

/// What one worker fills batches with.
struct WorkerTools {
  std::size_t worker;
  WorkerTrace& trace;
  std::stop_token stop;
  std::unique_ptr<WorkerSource> source;
  BatchObject batch;  // this worker's view of a batch that several fill
  std::vector<std::uint64_t> samples{};
  std::vector<std::int64_t> dropped{};
  std::vector<std::byte> spare{};  // to put rows in order
  FilledBatch memory{};            // for the batch that it opens; empty between two of them
  std::int64_t rows_at_once = 1;
  Ticks now = ticks();  // when it last was through with something, or had waited
  bool is_new = true;   // it has filled nothing yet

  /// The time since `now`, which begins anew.
  Ticks lap() noexcept {
    const Ticks before = std::exchange(now, ticks());
    return std::max<Ticks>(0, now - before);
  }
};

/// Used by all workers at the same time.
class BatchFiller {
 public:
  using Piece = OpenBatches<OpenBatch>::Piece;

  /// `targets`: of a source that writes device memory, else nullptr. The layout has to outlive
  /// this.
  BatchFiller(const BlockLayout& layout, AnySampler sampler, SourceKind kind,
              FailurePolicy::Action on_failure, DeviceTargets* targets)
      : layout_(layout),
        parts_(layout),
        sampler_(std::move(sampler)),
        kind_(kind),
        on_failure_(on_failure),
        targets_(targets),
        batches_(sampler_.batches()) {
    layout_.require_fields();
    if (checks()) checks_.emplace(layout_);
  }

  /// What a worker needs later is allocated here.
  void equip(WorkerTools& tools) const;
  /// Gives an open batch, which has its number and its memory, its rows. What fails is on record in
  /// `open`.
  void begin(OpenBatch& open, WorkerTools& tools);
  void fill(const Piece& piece, WorkerTools& tools);
  /// What has become of a batch whose last row is filled.
  ProducedItem finish(OpenBatch& open, WorkerTools& tools);

 private:
  void prepare(OpenBatch& open, std::uint64_t samples_of, WorkerTools& tools);
  void fill_whole(OpenBatch& open, WorkerTools& tools);
  void replace_batch(OpenBatch& open, FailureNode& failed, WorkerTools& tools);
  std::uint64_t first_batch(std::uint64_t epoch) const;
  std::optional<FailureNode> attempt(OpenBatch& open, std::uint64_t samples_of, WorkerTools& tools);
  void fill_rows(const Piece& piece, WorkerTools& tools);
  void fill_row(OpenBatch& open, std::int64_t row, WorkerTools& tools);
  bool replace_row(OpenBatch& open, Sample& sample, std::string& why_not, WorkerTools& tools);
  std::uint64_t other_sample(const Sample& failed, std::uint64_t attempt, WorkerTools& tools) const;
  void fail_batch(OpenBatch& open, const char* why) const;
  bool finish_rows(OpenBatch& open, WorkerTools& tools);
  static void drop_from_ticket(FilledBatch& filled, std::span<const std::int64_t> dropped);
  void complete(OpenBatch& open, std::span<const std::int64_t> dropped, WorkerTools& tools);
  static void check_launches(cudaError_t before);
  FailureNode failure_of(const OpenBatch& open, std::vector<std::uint64_t> samples) const;

  const BlockLayout& layout_;
  const BlockParts parts_;
  const AnySampler sampler_;
  const SourceKind kind_;
  const FailurePolicy::Action on_failure_;
  DeviceTargets* const targets_;
  const std::uint64_t batches_;       // of an epoch
  std::optional<FillChecks> checks_;  // with PENSTOCK_CHECKS
};

// ---- Begin --------------------------------------------------------------------------------------

PENSTOCK_INLINE void BatchFiller::equip(WorkerTools& tools) const {
  const auto rows = static_cast<std::size_t>(layout_.batch_size());
  layout_.reserve_samples(tools.samples);
  if (kind_ == SourceKind::sample) tools.dropped.reserve(rows);
  tools.spare.reserve(layout_.spare_bytes());
}

PENSTOCK_INLINE void BatchFiller::begin(OpenBatch& open, WorkerTools& tools) {
  if (kind_ != SourceKind::sample) return open.set_rows(1);
  try {
    prepare(open, open.number % batches_, tools);
    open.set_rows(static_cast<std::int64_t>(open.filled.ticket.samples.size()));
  } catch (...) {
    open.fail(failure_of(open, tools.samples));
  }
}

/// Gives the batch its ticket, with the samples of batch `samples_of` of its epoch, and binds it to
/// its memory.
PENSTOCK_INLINE void BatchFiller::prepare(OpenBatch& open, std::uint64_t samples_of,
                                          WorkerTools& tools) {
  const std::uint64_t epoch = open.number / batches_, batch = open.number % batches_;
  std::vector<std::uint64_t>& samples = tools.samples;
  samples.clear();
  sampler_.samples(epoch, samples_of, samples);
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
    if (checks_) open.pattern = checks_->blank_slot(memory, targets_->stream(tools.worker));
  } else {
    numbers = reinterpret_cast<std::uint64_t*>(memory + parts_.samples);
    std::copy(samples.begin(), samples.end(), numbers);
    filled.batch = memory + parts_.batch;
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
    layout_.bind_for_source(filled.batch, memory, memory + parts_.scratch, rows);
}

PENSTOCK_INLINE void BatchFiller::fill(const Piece& piece, WorkerTools& tools) {
  const ScopedRange range(markers::fill, piece.batch->number % batches_);
  if (std::exchange(tools.is_new, false))
    piece.batch->work.fetch_or(BatchTimes::kFirstOfWorker, std::memory_order_relaxed);
  if (kind_ == SourceKind::sample)
    fill_rows(piece, tools);
  else
    fill_whole(*piece.batch, tools);
}

// ---- Whole batches ------------------------------------------------------------------------------

PENSTOCK_INLINE void BatchFiller::fill_whole(OpenBatch& open, WorkerTools& tools) {
  std::optional<FailureNode> failed = attempt(open, open.number % batches_, tools);
  if (!failed) return;
  if (on_failure_ == FailurePolicy::Action::replace) replace_batch(open, *failed, tools);
  open.fail(std::move(*failed));
}

/// Fills the batch with the samples of another one that its epoch has.
PENSTOCK_INLINE void BatchFiller::replace_batch(OpenBatch& open, FailureNode& failed,
                                                WorkerTools& tools) {
  constexpr std::uint64_t kAttempts = 3;
  const std::uint64_t epoch = open.number / batches_, batch = open.number % batches_;
  const std::uint64_t begin = first_batch(epoch), number = batches_ - begin;
  const std::uint64_t seed = batch_seed(sampler_.seed(), epoch, batch);
  failed.why_not_replaced = "the epoch has no other batch";
  for (std::uint64_t i = 0; i < kAttempts && number > 1; ++i) {
    const std::uint64_t step = 1 + mix64(seed + i) % (number - 1);
    const std::uint64_t other = begin + (batch - begin + step) % number;
    const std::optional<FailureNode> again = attempt(open, other, tools);
    const bool ended = open.ended.load(std::memory_order_relaxed);
    if (ended && tools.stop.stop_requested()) return;
    if (!again && !ended) {
      failed.failure->replaced = true;
      return;
    }
    // The end of the data is behind this batch, whatever the source says of another one.
    open.ended.store(false, std::memory_order_relaxed);
    failed.why_not_replaced = "three other batches failed too, the last, batch " +
                              std::to_string(other) + ": " +
                              (again ? again->failure->what : "the source has no data for it");
  }
}

/// The number of the first batch that the epoch has: not 0 where the sampler continues it.
PENSTOCK_INLINE std::uint64_t BatchFiller::first_batch(std::uint64_t epoch) const {
  const State& start = sampler_.start();
  return epoch == start.epoch ? std::min(start.part_batch, batches_ - 1) : 0;
}

/// Fills the batch with the samples of batch `samples_of` of its epoch; returns what failed.
PENSTOCK_INLINE std::optional<FailureNode> BatchFiller::attempt(OpenBatch& open,
                                                                std::uint64_t samples_of,
                                                                WorkerTools& tools) {
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
      complete(open, {}, tools);
    return std::nullopt;
  } catch (...) {
    return failure_of(open, tools.samples);
  }
}

/// A kernel that was not launched leaves no other trace than this thread's last error.
PENSTOCK_INLINE void BatchFiller::check_launches(cudaError_t before) {
  const cudaError_t now = cudaPeekAtLastError();
  if (now == before) return;
  cudaGetLastError();
  check(now, "what the on_device source called without a check of its own");
}

/// The source is through with the batch, but for the rows in `dropped`, which ascend.
PENSTOCK_INLINE void BatchFiller::complete(OpenBatch& open, std::span<const std::int64_t> dropped,
                                           WorkerTools& tools) {
  FilledBatch& filled = open.filled;
  if (filled.slot != nullptr) {
    const std::byte* const slot = filled.slot->memory.data();
    if (checks_)
      checks_->check_slot(filled.batch, slot, open.pattern, targets_->stream(tools.worker));
    filled.samples = layout_.samples(filled.batch, slot);
    return;
  }
  std::byte* const block = filled.block.data();
  const auto asked = static_cast<std::int64_t>(filled.ticket.samples.size());
  if (checks_) checks_->check(filled.batch, block, asked, open.pattern, dropped);
  filled.samples = layout_.finish(filled.batch, block, dropped, tools.spare);
}

/// Of the exception that is being handled.
PENSTOCK_INLINE FailureNode BatchFiller::failure_of(const OpenBatch& open,
                                                    std::vector<std::uint64_t> samples) const {
  return {std::current_exception(),
          std::make_unique<Failure>(Failure{open.number / batches_, open.number % batches_,
                                            std::move(samples), what_is_handled()})};
}

// ---- Rows ---------------------------------------------------------------------------------------

/// Fills the rows of a piece, and sets the size of the next one: about 50 us of work, long against
/// the cost of taking a piece.
PENSTOCK_INLINE void BatchFiller::fill_rows(const Piece& piece, WorkerTools& tools) {
  constexpr Ticks kPiece = 50'000;
  OpenBatch& open = *piece.batch;
  // Each worker has its own copy of the Batch object: no source reads what another one sets.
  std::memcpy(tools.batch.get(), open.filled.batch, layout_.batch_bytes());
  const Ticks begin = ticks();
  for (std::int64_t row = piece.first; row < piece.first + piece.rows; ++row) {
    if (tools.stop.stop_requested()) return open.ended.store(true, std::memory_order_relaxed);
    fill_row(open, row, tools);
  }
  open.work.fetch_add(static_cast<std::uint64_t>(tools.lap()), std::memory_order_relaxed);
  const Ticks each = std::max<Ticks>((tools.now - begin) / piece.rows, 1);
  tools.rows_at_once = std::max<std::int64_t>(1, kPiece / each);
  if (std::memcmp(tools.batch.get(), open.filled.batch, layout_.batch_bytes()) != 0)
    fail_batch(open,
               "a per_sample source changed the batch itself: it may only write its row of the "
               "fields. A source that is asked for whole batches can set other members");
}

/// A failure that no policy for samples covers.
PENSTOCK_INLINE void BatchFiller::fail_batch(OpenBatch& open, const char* why) const {
  const SourceError error(open.number / batches_, open.number % batches_, why);
  open.fail({std::make_exception_ptr(error), nullptr, -1});
}

PENSTOCK_INLINE void BatchFiller::fill_row(OpenBatch& open, std::int64_t row, WorkerTools& tools) {
  const Ticket& ticket = open.filled.ticket;
  const std::uint64_t index = ticket.samples[static_cast<std::size_t>(row)];
  Sample sample{index, row, sample_seed(ticket.run_seed, ticket.epoch, index), ticket.epoch,
                ticket.batch};
  try {
    tools.source->fill_row(sample, tools.batch.get(), tools.stop);
  } catch (const RaggedFull& error) {
    fail_batch(open, error.what());  // Which row finds no room depends on the workers' order.
  } catch (...) {
    // A source may end its work by an exception: the sample is none that has failed.
    if (tools.stop.stop_requested()) return open.ended.store(true, std::memory_order_relaxed);
    FailureNode failed = failure_of(open, {index});
    failed.row = row;
    failed.failure->what = "sample " + std::to_string(index) + ": " + failed.failure->what;
    failed.failure->replaced = on_failure_ == FailurePolicy::Action::replace &&
                               replace_row(open, sample, failed.why_not_replaced, tools);
    open.fail(std::move(failed));
  }
}

/// Fills the row with another sample. False: three of them failed too, or there is none; `why_not`
/// says so.
PENSTOCK_INLINE bool BatchFiller::replace_row(OpenBatch& open, Sample& sample, std::string& why_not,
                                              WorkerTools& tools) {
  constexpr std::uint64_t kAttempts = 3;
  const Sample failed = sample;
  why_not = "there is no other sample";
  for (std::uint64_t i = 0; i < kAttempts; ++i) try {
      sample.index = other_sample(failed, i, tools);
      if (sample.index == failed.index) continue;
      if (checks_) checks_->blank_row(open.filled.block.data(), sample.row, open.pattern);
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
      why_not = "three others failed too, the last, sample " + std::to_string(sample.index) + ": " +
                what_is_handled();
    }
  return false;
}

/// A pure function of (run seed, epoch, index) and `attempt`: any other sample of the data set, or,
/// where the sampler does not say how large that is, of the epoch's batches. The failed one: there
/// is no other.
PENSTOCK_INLINE std::uint64_t BatchFiller::other_sample(const Sample& failed, std::uint64_t attempt,
                                                        WorkerTools& tools) const {
  const std::uint64_t draw = mix64(failed.seed + attempt);
  if (const std::uint64_t all = sampler_.start().samples; all > 0) {
    const std::uint64_t other = draw % all;
    return other != failed.index ? other : (other + 1) % all;
  }
  const std::uint64_t begin = first_batch(failed.epoch);
  std::vector<std::uint64_t>& samples = tools.samples;
  samples.clear();
  sampler_.samples(failed.epoch, begin + draw % (batches_ - begin), samples);
  const std::size_t at = mix64(draw) % std::max<std::size_t>(samples.size(), 1);
  return samples.at(at) != failed.index ? samples[at] : samples[(at + 1) % samples.size()];
}

/// After the last row: leaves out what failed. False: there is no batch.
PENSTOCK_INLINE bool BatchFiller::finish_rows(OpenBatch& open, WorkerTools& tools) {
  std::vector<FailureNode>& failures = open.failures;
  const bool is_fatal = std::any_of(failures.begin(), failures.end(),
                                    [](const FailureNode& failed) { return !failed.failure; });
  if (const char* const field = layout_.refused_room(open.filled.batch);
      field != nullptr && !is_fatal)
    fail_batch(open,
               (std::string("the ragged field ") + field +
                " had no room for a row, and the source did not pass on the std::length_error "
                "that says so. Which row it is depends on the order of the workers: raise "
                "the field's Capacity")
                   .c_str());
  std::stable_sort(failures.begin(), failures.end(),
                   [](const FailureNode& a, const FailureNode& b) { return a.row < b.row; });
  const bool skips = on_failure_ == FailurePolicy::Action::skip;
  const auto fatal = std::find_if(failures.begin(), failures.end(), [&](const FailureNode& failed) {
    return !failed.failure || !(failed.failure->replaced || skips);
  });
  if (fatal != failures.end()) {
    std::swap(failures.front(), *fatal);
    failures.erase(failures.begin() + 1, failures.end());
    return false;
  }
  tools.dropped.clear();
  if (skips)
    for (const FailureNode& failed : failures) tools.dropped.push_back(failed.row);
  if (tools.dropped.size() == open.filled.ticket.samples.size()) return false;
  complete(open, tools.dropped, tools);
  if (!tools.dropped.empty()) drop_from_ticket(open.filled, tools.dropped);
  return true;
}

PENSTOCK_INLINE void BatchFiller::drop_from_ticket(FilledBatch& filled,
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

// ---- End ----------------------------------------------------------------------------------------

PENSTOCK_INLINE ProducedItem BatchFiller::finish(OpenBatch& open, WorkerTools& tools) {
  const bool by_sample = kind_ == SourceKind::sample;
  using State = ProducedItem::State;
  State state = State::filled;
  std::vector<FailureNode>& failures = open.failures;
  const auto is_there = [&] {
    if (by_sample && !open.filled.ticket.samples.empty()) return finish_rows(open, tools);
    return failures.empty() || (failures.front().failure && failures.front().failure->replaced);
  };
  try {
    if (open.ended.load(std::memory_order_relaxed))
      state = State::ended;
    else if (!is_there())
      state = State::failed;
  } catch (...) {
    state = State::failed;
    failures.clear();
    failures.push_back(failure_of(open, tools.samples));
  }
  if (state == State::filled && open.filled.slot != nullptr) try {
      targets_->record_written(*open.filled.slot, open.number, tools.worker);
    } catch (...) {  // CUDA's, not the source's: no policy covers it.
      state = State::failed;
      failures.clear();
      failures.push_back({std::current_exception(), nullptr});
    }
  open.times.work =
      open.work.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(tools.lap());
  open.times.filled = tools.now;
  tools.trace.count_work(open.times.source_time());
  if (state == State::filled) tools.trace.count_batch(copied_bytes(open.filled, layout_));
  // A failed batch keeps its slot, in which the error is staged.
  if (state != State::filled) open.filled.block = PinnedBlock();
  if (state == State::ended) open.filled.slot.reset();
  ProducedItem item{std::move(open.filled), state};
  if (!failures.empty())
    item.failures = std::make_unique<std::vector<FailureNode>>(std::move(failures));
  return item;
}

}  // namespace penstock::detail
