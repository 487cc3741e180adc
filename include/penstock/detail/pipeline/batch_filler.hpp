// SPDX-License-Identifier: Apache-2.0
#pragma once

// BatchFiller: fills an open batch, on a worker. It gives the batch its ticket, calls the source
// for the whole batch or for its rows, applies the failure policy to what fails, and finishes the
// batch as the consumer gets it. It has no threads and never waits: its Pipeline does.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
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
#include <penstock/detail/pipeline/batch_record.hpp>
#include <penstock/detail/pipeline/block_parts.hpp>
#include <penstock/detail/pipeline/device_targets.hpp>
#include <penstock/detail/pipeline/row_dispenser.hpp>
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

namespace penstock::inline PENSTOCK_ABI::detail {

/// The tools of one worker.
struct WorkerTools {
  std::size_t worker;
  WorkerTrace& trace;
  const CaptureModeGuard& capture_mode;  // The worker is in this mode all its life.
  std::stop_token stop;
  std::unique_ptr<WorkerSource> source;
  BatchObject batch;                     // this worker's copy of a batch that several fill
  std::vector<std::uint64_t> samples{};  // those of another batch, for a replacement
  std::vector<std::int64_t> dropped{};   // rows that the policy leaves out
  std::vector<std::byte> spare{};        // room to put rows in order
  std::int64_t rows_at_once = 1;
  Ticks now = ticks();  // when it last finished something, or ended a wait
  bool is_new = true;   // It has filled nothing yet.

  /// Returns the time since `now`, and sets `now`.
  Ticks lap() noexcept {
    const Ticks before = std::exchange(now, ticks());
    return std::max<Ticks>(0, now - before);
  }
};

/// All workers use it at the same time.
class BatchFiller {
 public:
  using Piece = RowDispenser<BatchRecord>::Piece;

  /// `targets` is nullptr unless the source writes device memory. With `to_blocks` a filled batch
  /// becomes a BlockBatch, with all of it in its block. The layout has to outlive this.
  BatchFiller(const BlockLayout& layout, AnySampler sampler, SourceKind kind,
              FailurePolicy::Action on_failure, DeviceTargets* targets, bool to_blocks)
      : layout_(layout),
        parts_(layout),
        sampler_(std::move(sampler)),
        kind_(kind),
        on_failure_(on_failure),
        targets_(targets),
        to_blocks_(to_blocks),
        batches_(sampler_.batches()) {
    layout_.require_fields();
    if (checks()) checks_.emplace(layout_);
  }

  /// Allocates what a worker needs later.
  void equip(WorkerTools& tools) const;
  /// Prepares the rows of an open batch, which has its number and its memory. Records what fails.
  void begin(BatchRecord& record, WorkerTools& tools);
  void fill(const Piece& piece, WorkerTools& tools);
  /// Sets the stage of a batch whose last row is filled.
  void finish(BatchRecord& record, WorkerTools& tools);

 private:
  void prepare(BatchRecord& record, std::uint64_t samples_of, cudaStream_t stream);
  void fill_whole(BatchRecord& record, WorkerTools& tools);
  void replace_batch(BatchRecord& record, BatchFailure& failed, WorkerTools& tools);
  std::uint64_t first_batch(std::uint64_t epoch) const;
  std::optional<BatchFailure> attempt(BatchRecord& record, std::uint64_t samples_of,
                                      WorkerTools& tools);
  void fill_rows(const Piece& piece, WorkerTools& tools);
  void fill_row(BatchRecord& record, std::int64_t row, WorkerTools& tools);
  bool replace_row(BatchRecord& record, Sample& sample, std::string& why_not, WorkerTools& tools);
  std::uint64_t other_sample(const Sample& failed, std::uint64_t attempt, WorkerTools& tools) const;
  void fail_batch(BatchRecord& record, const char* why) const;
  bool finish_rows(BatchRecord& record, WorkerTools& tools);
  static void drop_numbers(BatchRecord& record, std::span<const std::int64_t> dropped);
  void complete(BatchRecord& record, std::span<const std::int64_t> dropped, WorkerTools& tools);
  static void check_launches(cudaError_t before);
  BatchFailure failure_of(const BatchRecord& record, std::vector<std::uint64_t> samples) const;
  Stage outcome(BatchRecord& record, WorkerTools& tools);
  bool is_there(BatchRecord& record, WorkerTools& tools);
  void move_to_block(BatchRecord& record) const;

  const BlockLayout& layout_;
  const BlockParts parts_;
  const AnySampler sampler_;
  const SourceKind kind_;
  const FailurePolicy::Action on_failure_;
  DeviceTargets* const targets_;
  const bool to_blocks_;
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

PENSTOCK_INLINE void BatchFiller::begin(BatchRecord& record, WorkerTools& tools) {
  if (kind_ == SourceKind::device) try {
      record.sample = targets_->begin(tools.worker);
    } catch (...) {
      return record.fail({std::current_exception(), nullptr});
    }
  if (kind_ != SourceKind::sample) return record.to_fill.open(1);
  try {
    prepare(record, record.number % batches_, cudaStream_t{});
    record.to_fill.open(static_cast<std::int64_t>(record.numbers.size()));
  } catch (...) {
    record.fail(failure_of(record, record.numbers));
  }
}

/// Gives the batch its ticket, with the samples of batch `samples_of` of its epoch, and binds it to
/// its memory. `stream` is used only for device memory.
PENSTOCK_INLINE void BatchFiller::prepare(BatchRecord& record, std::uint64_t samples_of,
                                          cudaStream_t stream) {
  const std::uint64_t epoch = record.number / batches_, batch = record.number % batches_;
  std::vector<std::uint64_t>& samples = record.numbers;
  samples.clear();
  sampler_.samples(epoch, samples_of, samples);
  if (samples.empty() || samples.size() > static_cast<std::size_t>(layout_.batch_size()))
    throw std::length_error("the sampler names " + std::to_string(samples.size()) +
                            " samples, the layout has room for 1 to " +
                            std::to_string(layout_.batch_size()));

  record.batch = record.object.get();
  const auto rows = static_cast<std::int64_t>(samples.size());
  std::byte* const memory = record.memory.data();
  if (targets_ != nullptr) {
    if (checks_) record.pattern = checks_->blank_slot(memory, stream);
    layout_.bind(record.object.get(), memory, rows);
  } else {
    if (checks_) record.pattern = checks_->blank(memory);
    layout_.bind_for_source(record.object.get(), memory, record.scratch.data(), rows);
  }
  record.ticket = {epoch, batch, batch_seed(sampler_.seed(), epoch, batch), samples,
                   sampler_.seed()};
}

PENSTOCK_INLINE void BatchFiller::fill(const Piece& piece, WorkerTools& tools) {
  const ScopedRange range(markers::fill, piece.record->number % batches_);
  if (std::exchange(tools.is_new, false))
    piece.record->work.fetch_or(BatchTimes::kFirstOfWorker, std::memory_order_relaxed);
  if (kind_ == SourceKind::sample)
    fill_rows(piece, tools);
  else
    fill_whole(*piece.record, tools);
}

// ---- Whole batches ------------------------------------------------------------------------------

PENSTOCK_INLINE void BatchFiller::fill_whole(BatchRecord& record, WorkerTools& tools) {
  std::optional<BatchFailure> failed = attempt(record, record.number % batches_, tools);
  if (!failed) return;
  if (on_failure_ == FailurePolicy::Action::replace) replace_batch(record, *failed, tools);
  record.fail(std::move(*failed));
}

/// Fills the batch with the samples of another one that its epoch has.
PENSTOCK_INLINE void BatchFiller::replace_batch(BatchRecord& record, BatchFailure& failed,
                                                WorkerTools& tools) {
  constexpr std::uint64_t kAttempts = 3;
  const std::uint64_t epoch = record.number / batches_, batch = record.number % batches_;
  const std::uint64_t begin = first_batch(epoch), number = batches_ - begin;
  const std::uint64_t seed = batch_seed(sampler_.seed(), epoch, batch);
  failed.why_not_replaced = "the epoch has no other batch";
  for (std::uint64_t i = 0; i < kAttempts && number > 1; ++i) {
    const std::uint64_t step = 1 + mix64(seed + i) % (number - 1);
    const std::uint64_t other = begin + (batch - begin + step) % number;
    const std::optional<BatchFailure> again = attempt(record, other, tools);
    const bool ended = record.ended.load(std::memory_order_relaxed);
    if (ended && tools.stop.stop_requested()) return;
    if (!again && !ended) {
      failed.failure->replaced = true;
      return;
    }
    // The data do not end at this batch, whatever the source says of another one.
    record.ended.store(false, std::memory_order_relaxed);
    failed.why_not_replaced = "three other batches failed too, the last, batch " +
                              std::to_string(other) + ": " +
                              (again ? again->failure->what : "the source has no data for it");
  }
}

/// Returns the first batch of the epoch. It is not 0 where the sampler continues an epoch.
PENSTOCK_INLINE std::uint64_t BatchFiller::first_batch(std::uint64_t epoch) const {
  const State& start = sampler_.start();
  return epoch == start.epoch ? std::min(start.part_batch, batches_ - 1) : 0;
}

/// Fills the batch with the samples of batch `samples_of` of its epoch. Returns what failed.
PENSTOCK_INLINE std::optional<BatchFailure> BatchFiller::attempt(BatchRecord& record,
                                                                 std::uint64_t samples_of,
                                                                 WorkerTools& tools) {
  try {
    const cudaStream_t stream =
        targets_ != nullptr ? targets_->stream(tools.worker) : cudaStream_t{};
    prepare(record, samples_of, stream);
    const cudaError_t before = targets_ != nullptr ? cudaPeekAtLastError() : cudaSuccess;
    const bool more =
        tools.source->fill_batch(record.ticket, record.object.get(), stream, tools.stop);
    if (targets_ != nullptr) check_launches(before);
    if (!more)
      record.ended.store(true, std::memory_order_relaxed);
    else
      complete(record, {}, tools);
    return std::nullopt;
  } catch (...) {
    return failure_of(record, record.numbers);
  }
}

/// A kernel that was not launched leaves no other trace than this thread's last error.
PENSTOCK_INLINE void BatchFiller::check_launches(cudaError_t before) {
  const cudaError_t now = cudaPeekAtLastError();
  if (now == before) return;
  cudaGetLastError();
  check(now, "what the on_device source called without a check of its own");
}

/// Checks and completes a batch that the source has finished, except the rows in `dropped`
/// (ascending).
PENSTOCK_INLINE void BatchFiller::complete(BatchRecord& record,
                                           std::span<const std::int64_t> dropped,
                                           WorkerTools& tools) {
  if (targets_ != nullptr) {
    const std::byte* const slot = record.memory.data();
    if (checks_)
      checks_->check_slot(record.batch, slot, record.pattern, targets_->stream(tools.worker));
    record.rows = layout_.samples(record.batch, slot);
    return;
  }
  std::byte* const block = record.memory.data();
  const auto asked = static_cast<std::int64_t>(record.numbers.size());
  if (checks_) checks_->check(record.batch, block, asked, record.pattern, dropped);
  record.rows = layout_.finish(record.object.get(), block, dropped, tools.spare);
}

/// Describes the exception that is being handled.
PENSTOCK_INLINE BatchFailure BatchFiller::failure_of(const BatchRecord& record,
                                                     std::vector<std::uint64_t> samples) const {
  return {std::current_exception(),
          std::make_unique<Failure>(Failure{record.number / batches_, record.number % batches_,
                                            std::move(samples), what_is_handled()})};
}

// ---- Rows ---------------------------------------------------------------------------------------

/// Fills the rows of a piece, and sets the size of the next one to about 50 us of work, which is
/// much more than taking a piece costs.
PENSTOCK_INLINE void BatchFiller::fill_rows(const Piece& piece, WorkerTools& tools) {
  constexpr Ticks kPiece = 50'000;
  BatchRecord& record = *piece.record;
  // Each worker has its own copy of the Batch object: no source reads what another one sets.
  std::memcpy(tools.batch.get(), record.batch, layout_.batch_bytes());
  for (std::int64_t row = piece.first; row < piece.first + piece.rows; ++row) {
    if (tools.stop.stop_requested()) return record.ended.store(true, std::memory_order_relaxed);
    fill_row(record, row, tools);
  }
  const Ticks took = tools.lap();
  record.work.fetch_add(static_cast<std::uint64_t>(took), std::memory_order_relaxed);
  const Ticks each = std::max<Ticks>(took / piece.rows, 1);
  tools.rows_at_once = std::max<std::int64_t>(1, kPiece / each);
  if (std::memcmp(tools.batch.get(), record.batch, layout_.batch_bytes()) != 0)
    fail_batch(record,
               "a per_sample source changed the batch itself: it may only write its row of the "
               "fields. A source that is asked for whole batches can set other members");
}

/// Records a failure that no policy for samples covers.
PENSTOCK_INLINE void BatchFiller::fail_batch(BatchRecord& record, const char* why) const {
  const SourceError error(record.number / batches_, record.number % batches_, why);
  record.fail({std::make_exception_ptr(error), nullptr, -1});
}

PENSTOCK_INLINE void BatchFiller::fill_row(BatchRecord& record, std::int64_t row,
                                           WorkerTools& tools) {
  const Ticket& ticket = record.ticket;
  const std::uint64_t index = ticket.samples[static_cast<std::size_t>(row)];
  Sample sample{index, row, sample_seed(ticket.run_seed, ticket.epoch, index), ticket.epoch,
                ticket.batch};
  try {
    tools.source->fill_row(sample, tools.batch.get(), tools.stop);
  } catch (const RaggedFull& error) {
    fail_batch(record, error.what());  // Which row finds no room depends on the workers' order.
  } catch (...) {
    // A source may end its work by an exception when stop is requested. No sample has failed then.
    if (tools.stop.stop_requested()) return record.ended.store(true, std::memory_order_relaxed);
    BatchFailure failed = failure_of(record, {index});
    failed.row = row;
    failed.failure->what = "sample " + std::to_string(index) + ": " + failed.failure->what;
    failed.failure->replaced = on_failure_ == FailurePolicy::Action::replace &&
                               replace_row(record, sample, failed.why_not_replaced, tools);
    record.fail(std::move(failed));
  }
}

/// Fills the row with another sample. False: three of them failed too, or there is no other one.
/// `why_not` says which.
PENSTOCK_INLINE bool BatchFiller::replace_row(BatchRecord& record, Sample& sample,
                                              std::string& why_not, WorkerTools& tools) {
  constexpr std::uint64_t kAttempts = 3;
  const Sample failed = sample;
  why_not = "there is no other sample";
  for (std::uint64_t i = 0; i < kAttempts; ++i) try {
      sample.index = other_sample(failed, i, tools);
      if (sample.index == failed.index) continue;
      if (checks_) checks_->blank_row(record.memory.data(), sample.row, record.pattern);
      layout_.clear_row(record.object.get(), sample.row);
      sample.seed = sample_seed(record.ticket.run_seed, sample.epoch, sample.index);
      tools.source->fill_row(sample, tools.batch.get(), tools.stop);
      record.numbers[static_cast<std::size_t>(sample.row)] = sample.index;  // This worker's row.
      return true;
    } catch (const RaggedFull& error) {
      fail_batch(record, error.what());
      return false;
    } catch (...) {  // The first failure is the one that is reported.
      why_not = "three others failed too, the last, sample " + std::to_string(sample.index) + ": " +
                what_is_handled();
    }
  return false;
}

/// Draws another sample of the data set, or of the epoch's batches where the sampler does not say
/// how many samples there are. Returns the failed one if there is no other. It is a pure function
/// of (run seed, epoch, index) and `attempt`.
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

/// Leaves out the rows that failed, after the last row is filled. False: the batch has failed.
PENSTOCK_INLINE bool BatchFiller::finish_rows(BatchRecord& record, WorkerTools& tools) {
  BatchFailures& failures = record.failures;
  bool is_fatal = false;
  for (const BatchFailure& failed : failures.all()) is_fatal |= !failed.failure;
  if (const char* const field = layout_.refused_room(record.batch); field != nullptr && !is_fatal)
    fail_batch(record,
               (std::string("the ragged field ") + field +
                " had no room for a row, and the source did not pass on the std::length_error "
                "that says so. Which row it is depends on the order of the workers: raise "
                "the field's Capacity")
                   .c_str());
  failures.sort_by_row();
  const bool skips = on_failure_ == FailurePolicy::Action::skip;
  tools.dropped.clear();
  for (BatchFailure& failed : failures.all()) {
    if (!failed.failure || !(failed.failure->replaced || skips)) {
      failures.keep_only(failed);
      return false;
    }
    if (skips) tools.dropped.push_back(failed.row);
  }
  if (tools.dropped.size() == record.numbers.size()) return false;
  complete(record, tools.dropped, tools);
  if (!tools.dropped.empty()) drop_numbers(record, tools.dropped);
  return true;
}

PENSTOCK_INLINE void BatchFiller::drop_numbers(BatchRecord& record,
                                               std::span<const std::int64_t> dropped) {
  std::vector<std::uint64_t>& numbers = record.numbers;
  std::size_t kept = 0;
  for (std::size_t row = 0; row < numbers.size(); ++row) {
    if (!dropped.empty() && static_cast<std::size_t>(dropped.front()) == row)
      dropped = dropped.subspan(1);
    else
      numbers[kept++] = numbers[row];
  }
  numbers.resize(kept);
  record.ticket.samples = numbers;
}

// ---- End ----------------------------------------------------------------------------------------

PENSTOCK_INLINE void BatchFiller::finish(BatchRecord& record, WorkerTools& tools) {
  record.set(outcome(record, tools));
  record.times.work =
      record.work.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(tools.lap());
  record.times.filled = tools.now;
  tools.trace.count_work(record.times.source_time());
  if (record.is(Stage::filled)) {
    tools.trace.count_batch(copied_bytes(record.batch, record.rows, layout_));
    if (to_blocks_) move_to_block(record);
    return;
  }
  record.memory = RecordMemory();
}

PENSTOCK_INLINE Stage BatchFiller::outcome(BatchRecord& record, WorkerTools& tools) {
  try {
    if (record.ended.load(std::memory_order_relaxed)) return Stage::ended;
    if (!is_there(record, tools)) return Stage::failed;
  } catch (...) {
    record.failures.clear();
    record.fail(failure_of(record, record.numbers));
    return Stage::failed;
  }
  if (targets_ != nullptr) try {
      targets_->end(*record.written, record.sample, tools.worker);
    } catch (...) {  // CUDA's, not the source's: no policy covers it.
      record.failures.clear();
      record.fail({std::current_exception(), nullptr});
      return Stage::failed;
    }
  return Stage::filled;
}

PENSTOCK_INLINE bool BatchFiller::is_there(BatchRecord& record, WorkerTools& tools) {
  if (kind_ == SourceKind::sample && !record.ticket.samples.empty())
    return finish_rows(record, tools);
  if (record.failures.empty()) return true;
  const BatchFailure& failed = record.failures.all().front();
  return failed.failure && failed.failure->replaced;
}

/// Moves the sample numbers and the object into the block, since the next batch of the record
/// overwrites them.
PENSTOCK_INLINE void BatchFiller::move_to_block(BatchRecord& record) const {
  std::byte* const block = record.memory.data();
  auto* const numbers = reinterpret_cast<std::uint64_t*>(block + parts_.samples);
  std::copy(record.numbers.begin(), record.numbers.end(), numbers);
  record.ticket.samples = {numbers, record.numbers.size()};
  record.batch = std::memcpy(block + parts_.batch, record.object.get(), layout_.batch_bytes());
}

}  // namespace penstock::detail
