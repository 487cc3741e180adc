// SPDX-License-Identifier: Apache-2.0
#pragma once

// HandOver: how a batch gets from the producer into a lease. It joins a producer, a device stage
// and the queue of staged batches:
//
//   workers -> ProducerCore -> [stage_ready] -> DeviceStage -> StagedQueue -> take() -> lease, slot
//
// No thread owns the hand-over: the thread that makes a copy possible (a worker with a batch, or
// the one that ends a lease) stages every batch for which there is a slot. So a copy is issued at
// once, whatever other threads do.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <penstock/detail/cores.hpp>
#include <penstock/detail/memory/host_blocks.hpp>
#include <penstock/detail/observe/consumer_watch.hpp>
#include <penstock/detail/observe/device_samples.hpp>
#include <penstock/detail/observe/ticks.hpp>
#include <penstock/detail/observe/timeline.hpp>
#include <penstock/detail/order/state.hpp>
#include <penstock/detail/pipeline/autotuner.hpp>
#include <penstock/detail/pipeline/batch_producer.hpp>
#include <penstock/detail/pipeline/device_stage.hpp>
#include <penstock/detail/pipeline/staged_queue.hpp>
#include <penstock/detail/pipeline/thread_placement.hpp>
#include <penstock/detail/pipeline/tune_plan.hpp>
#include <penstock/detail/sync/callers.hpp>
#include <penstock/detail/sync/serial_task.hpp>
#include <penstock/detail/sync/time_out.hpp>
#include <penstock/pinned_pool.hpp>
#include <penstock/prefetcher.hpp>
#include <stdexcept>
#include <string>

namespace penstock::detail {

class HandOver final : public AnyPrefetcher, public std::enable_shared_from_this<HandOver> {
 public:
  HandOver(const BlockLayout& layout, AnySampler sampler, ErasedSource source,
           TransformStage::Transform transform, PrefetcherOptions options);
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;

  LeasedBatch* take(cudaStream_t consumer, PrefetcherHandle& owner) override;
  void also_used_on(LeasedBatch& batch, cudaStream_t stream) override;
  bool is_used_on(const LeasedBatch& batch, cudaStream_t stream) const noexcept override;
  bool give_back(LeasedBatch& batch, bool park) noexcept override;
  void stop() noexcept override;
  bool close() noexcept override;
  bool forked() const noexcept override { return !process_.is_this(); }

  State state() const override;
  void restore(const State& state) override;
  Stats stats() override;
  std::vector<Failure> failures() const override {
    const Callers::Call call(callers_);
    return producer_->failures();
  }

 private:
  /// Lives as long as a call that wants a batch. Several live and end under the lock.
  struct Asking {
    explicit Asking(HandOver& hand_over) : calls(hand_over.asking_) {
      if (calls++ == 0) hand_over.asked_ = ticks();
    }
    ~Asking() { --calls; }
    Asking(const Asking&) = delete;
    Asking& operator=(const Asking&) = delete;
    int& calls;
  };
  static DeviceSamples::Kind sampled(SourceKind kind, bool transforms) {
    if (kind == SourceKind::device) return DeviceSamples::Kind::on_device;
    return transforms ? DeviceSamples::Kind::transforms : DeviceSamples::Kind::copies;
  }

  static PipelinePlan planned(PrefetcherOptions options, const AnySampler& sampler,
                              const ErasedSource& source, bool transforms, std::size_t block);
  static PinnedPoolOptions block_options(const PrefetcherOptions& options, std::size_t block);
  void reserve_blocks(const std::function<void()>& start);
  PipelineSetup make_setup(SourceKind kind, bool unbounded);

  void note_take(Staged& staged, int stream, bool has_waited);
  void tune();
  void tune_slots();
  void stage_ready() noexcept;
  bool stage_next() noexcept;
  bool stopped() const { return closed_ || producer_->stopped(); }
  LeasedBatch* take(const ResolvedStream& stream, cudaStream_t consumer);
  Staged* first_staged(std::unique_lock<std::mutex>& lock, bool& has_waited);
  bool wait_for_news(TimeOut& left, std::uint64_t& since, std::uint32_t calls);
  [[noreturn]] void throw_in_place_of(Staged& staged);
  [[noreturn]] void throw_stall() const;
  static std::string why_busy(const WorkerActivity& activity);
  std::string why_skipped() const;
  /// 0 stands for none.
  std::chrono::milliseconds stall_timeout() const {
    constexpr auto kEver = std::chrono::milliseconds::max();
    return options_.stall_timeout.count() == 0 ? kEver : options_.stall_timeout;
  }
  void require_order() const;

  const OwnerProcess process_;
  const bool deepens_;  // host_depth is not set
  const BlockLayout layout_;
  const PipelinePlan plan_;
  const PrefetcherOptions& options_ = plan_.options;
  const State start_;
  const std::uint64_t batches_;  // of an epoch
  const bool on_device_;         // the source is
  const std::shared_ptr<const ThreadPlacement> placed_;

  HostBlocks blocks_;  // none is allocated where the source writes the slots
  Timeline timeline_;
  DeviceSamples samples_;
  DeviceStage stage_;
  SerialTask stage_task_;
  StagedQueue queue_;  // from the thread that stages to the consumer

  mutable Callers callers_;  // of the members that a Prefetcher calls
  std::atomic<bool> closed_{false};
  std::mutex take_mutex_;                   // One thread at a time is in take(), but for its waits.
  std::atomic<std::uint64_t> position_{0};  // number of the next batch, over all epochs
  std::uint64_t skipped_before_ = 0;        // up to the last batch that was delivered
  ConsumerWatch watch_;
  int asking_ = 0;           // calls that want a batch
  Ticks asked_ = 0;          // since then there are some, and none has got one
  std::uint64_t order_ = 0;  // of the next batch
  const ConsumerClock::Visit* requested_by_ = nullptr;  // the last call that has told the samples
  std::optional<Autotuner> tuner_;
  const PipelineSetup setup_;  // as stats() tells it

  std::optional<ProducerCore> producer_;  // last: its workers stage
};

// ---- From the workers to the queue --------------------------------------------------------------

PENSTOCK_INLINE void HandOver::stage_ready() noexcept {
  stage_task_.run([this] { return stage_next(); });
}

/// Stages one batch, if one is ready and there is a slot for it; false: not now.
PENSTOCK_INLINE bool HandOver::stage_next() noexcept {
  if (queue_.ended()) return false;
  if (producer_->at_end()) {
    queue_.end();
    return false;
  }
  // Handed on outside of the catch block: then no other thread holds the exception.
  std::exception_ptr error;
  try {
    if (!producer_->ready() || !stage_.reserve()) return false;
  } catch (...) {
    error = std::current_exception();
  }
  if (error) {
    queue_.fail(std::move(error));
    return false;
  }
  BatchRecord& record = producer_->take(error);
  const std::uint64_t next = producer_->position();
  if (on_device_ && record.memory.slot == nullptr) {  // There was no slot: an error alone.
    producer_->give_back(record);
    queue_.fail(std::move(error));
    return true;
  }
  Staged& staged = stage_.stage(record, std::move(error));
  producer_->give_back(record);
  if (producer_->abandoned_here()) producer_->come_back();  // A transform has destroyed this.
  staged.next = next;
  staged.skipped = producer_->skipped();
  queue_.push(staged);
  return true;
}

// ---- From the queue to the consumer, and back ---------------------------------------------------

/// The first staged batch, for `consumer`; none at the end.
PENSTOCK_INLINE LeasedBatch* HandOver::take(cudaStream_t consumer, PrefetcherHandle& owner) {
  const Callers::Call call(callers_);
  constexpr const char* kCall = "Prefetcher::next";
  const ResolvedStream stream = resolve_usable(consumer, kCall, stage_.arena().device());
  try {
    LeasedBatch* const batch = take(stream, consumer);
    if (batch != nullptr) owner = shared_from_this();
    return batch;
  } catch (...) {
    queue_.notify();  // If a batch has woken this thread, it is there for another one.
    producer_->wait_while_abandoned();
    throw;
  }
}

PENSTOCK_INLINE LeasedBatch* HandOver::take(const ResolvedStream& stream, cudaStream_t consumer) {
  std::unique_lock lock(take_mutex_);
  const ConsumerClock::Visit visit(watch_.clock);
  const Asking asking(*this);
  const ScopedRange range(markers::next, position_);
  watch_.count_take(queue_.size());
  samples_.ask(consumer, order_);
  requested_by_ = &visit;

  bool has_waited = false;
  Staged* const staged = first_staged(lock, has_waited);
  if (staged == nullptr) return nullptr;
  if (staged->error) throw_in_place_of(*staged);
  // Another thread has made its request while this one waited: the marks are one thread's.
  if (requested_by_ != &visit) samples_.ask(consumer, order_);
  // Where this throws, the batch stays the first.
  samples_.find(consumer);
  check(cudaStreamWaitEvent(consumer, staged->copied, cudaEventWaitDefault), "cudaStreamWaitEvent");
  note_take(*staged, samples_.take(consumer, staged->order), has_waited);
  staged->consumers.assign(1, stream);
  queue_.pop_first();
  position_ = staged->next;
  skipped_before_ = staged->skipped;
  watch_.count_delivery();
  if (tuner_) tune();
  return staged;
}

/// Stamps a batch that is taken. Only the thread that takes it calls this.
PENSTOCK_INLINE void HandOver::note_take(Staged& staged, int stream, bool has_waited) {
  BatchTimes& times = staged.times;
  times.asked = asked_;
  times.taken = asked_ = has_waited ? ticks() : std::max(asked_, times.staged);
  times.work |= static_cast<std::uint64_t>(stream) << BatchTimes::kStreamShift;
  order_ = staged.order + 1;
}

/// Only the thread that takes a batch calls this.
PENSTOCK_INLINE void HandOver::tune() {
  const std::size_t staged = queue_.size();
  tuner_->note_ready([&](std::size_t most) {
    return staged + (staged < most ? producer_->queued(most - staged) : 0);
  });
  if (!tuner_->count_take(watch_.clock.busy(), watch_.clock.waiting())) return;
  TuneCounts counts;
  samples_.collect();
  watch_.add_to(counts, samples_.sums());
  producer_->add_to(counts);
  if (!on_device_) stage_.add_to(counts);
  if (tuner_->look(counts)) producer_->use(tuner_->settings());
}

/// Takes one more slot into use if the consumer has leased all of them, or if one was lost.
PENSTOCK_INLINE void HandOver::tune_slots() {
  const DeviceArena& arena = stage_.arena();
  const std::size_t lost = arena.lost_slots();
  const std::size_t gone = watch_.leased() + arena.parked_slots() + lost;
  const TuneReason reason = lost > 0 ? TuneReason::lost : TuneReason::leases;
  if (gone < tuner_->slots() || !tuner_->add_slot(watch_.delivered(), reason)) return;
  if (on_device_)
    producer_->use(tuner_->settings());
  else
    stage_.use(tuner_->slots());
  stage_ready();
}

/// Waits for the first staged batch, without the lock. nullptr: all epochs are done, or somebody
/// has called stop().
PENSTOCK_INLINE Staged* HandOver::first_staged(std::unique_lock<std::mutex>& lock,
                                               bool& has_waited) {
  std::optional<TimeOut> left;
  std::uint64_t since = position_;
  while (true) {
    const std::uint32_t calls = queue_.calls();
    producer_->wait_while_abandoned();
    if (stopped()) return nullptr;
    producer_->throw_lost_worker();
    stage_.arena().require_slot();  // It may give slots back, which are then filled.
    if (tuner_) tune_slots();
    if (queue_.size() == 0) stage_ready();  // What failed is tried again.
    queue_.throw_failure();
    const bool ended = queue_.ended();  // Before the look: the end comes behind the last batch.
    if (Staged* const staged = queue_.first()) return staged;
    if (ended) {
      producer_->throw_lost_worker();
      return nullptr;
    }
    if (!left) left.emplace(stall_timeout());
    has_waited = true;
    lock.unlock();
    const bool any = wait_for_news(*left, since, calls);
    lock.lock();
    if (!any) throw_stall();
  }
}

/// Counts `left` from the last time that any thread got a batch, with `since` the position then.
PENSTOCK_INLINE bool HandOver::wait_for_news(TimeOut& left, std::uint64_t& since,
                                             std::uint32_t calls) {
  while (true) {
    if (std::exchange(since, position_) != since) left = TimeOut(stall_timeout());
    if (queue_.wait_until(left.next_step(), calls)) return true;
    if (position_ == since && left.over()) return false;
  }
}

PENSTOCK_INLINE void HandOver::throw_in_place_of(Staged& staged) {
  const std::exception_ptr error = std::move(staged.error);
  queue_.pop_first();
  position_ = staged.next;
  order_ = staged.order + 1;
  staged.memory = DeviceSlot();  // Its next writer comes after whatever was copied.
  stage_ready();
  if (!tuner_) std::rethrow_exception(error);
  try {
    std::rethrow_exception(error);
  } catch (const CudaError&) {  // Maybe it has cost a block.
    if (tuner_->add_depth(watch_.delivered(), TuneReason::lost)) producer_->use(tuner_->settings());
    throw;
  }
}

PENSTOCK_INLINE void HandOver::also_used_on(LeasedBatch& batch, cudaStream_t stream) {
  constexpr const char* kCall = "Lease::also_used_on";
  auto& staged = static_cast<Staged&>(batch);
  const ResolvedStream user = resolve_usable(stream, kCall, stage_.arena().device());
  auto& users = staged.consumers;
  if (std::find(users.begin(), users.end(), user) != users.end()) return;  // It waits already.
  check(cudaStreamWaitEvent(stream, staged.copied, cudaEventWaitDefault), "cudaStreamWaitEvent");
  users.push_back(user);
  staged.times.work |= BatchTimes::kSecondStream;
  watch_.note_second_stream();
}

PENSTOCK_INLINE bool HandOver::is_used_on(const LeasedBatch& batch,
                                          cudaStream_t stream) const noexcept {
  const auto& users = static_cast<const Staged&>(batch).consumers;
  return std::any_of(users.begin(), users.end(), [&](const ResolvedStream& user) {
    return user.handle == stream && !user.is_default();
  });
}

/// The end of a lease. What fails is reported by the next take().
PENSTOCK_INLINE bool HandOver::give_back(LeasedBatch& batch, bool park) noexcept {
  auto& staged = static_cast<Staged&>(batch);
  stage_.sample();
  // Once the slot is released, another batch may have `staged`.
  const std::uint64_t order = staged.order, number = producer_->number_of(staged.ticket);
  BatchTimes times = staged.times;
  times.released = ticks();
  std::exception_ptr error;
  try {
    if (!staged.memory.try_release_after(staged.consumers, park)) return false;
  } catch (...) {
    error = std::current_exception();
  }
  timeline_.add(order, number, times);
  samples_.collect_now_and_then(times.released);
  watch_.count_end_of_lease();
  if (error) queue_.fail(std::move(error));
  stage_ready();
  return true;
}

PENSTOCK_INLINE void HandOver::throw_stall() const {
  const std::size_t parked = stage_.arena().parked_slots();
  const bool has_slot = watch_.leased() + parked < options_.device_depth;
  const WorkerActivity activity = has_slot ? producer_->oldest_activity() : WorkerActivity{};
  const std::string skips = has_slot ? why_skipped() : std::string();
  std::string stage = "consumer", why;
  std::uint64_t number = position_;
  if (!has_slot) {
    why = "all " + std::to_string(options_.device_depth) +
          " device slots are leased: end a lease before next(), or raise " +
          (tuner_ ? "Tune::device_slots" : "device_depth");
    if (parked != 0)
      why += "; " + std::to_string(parked) + " of them wait for the end of a stream capture";
  } else {
    stage = activity.state == WorkerState::ahead && skips.empty()    ? "read ahead"
            : activity.state == WorkerState::memory && skips.empty() ? "copy"
            : on_device_                                             ? "device source"
                                                                     : "source";
    if (activity.state != WorkerState::idle) number = activity.number;
    why = skips;
    // Beside skips a worker that waits says nothing more: there is always one.
    if (skips.empty() || is_work(activity.state)) {
      if (!why.empty()) why += "; ";
      why += why_busy(activity);
    }
  }
  const ScopedRange range(markers::stall, number % batches_);  // asks penstock-trace for a dump
  throw StallError(stage, number / batches_, number % batches_, options_.stall_timeout, why);
}

PENSTOCK_INLINE std::string HandOver::why_busy(const WorkerActivity& activity) {
  if (activity.state == WorkerState::idle)
    return "no worker is inside a batch: is one in the sampler, or in the function that makes its "
           "source (per_worker)?";
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(
      WorkerTrace::Clock::now() - activity.since);
  return std::string("the worker with the oldest batch is ") + to_string(activity.state) +
         ", for " + std::to_string(since.count()) + " ms";
}

/// What the failure policy has skipped behind the batch that was delivered last. Empty: nothing.
PENSTOCK_INLINE std::string HandOver::why_skipped() const {
  const std::uint64_t all = producer_->skipped(), before = skipped_before_;
  if (all <= before) return {};
  const char* const what = producer_->counts_samples() ? " samples" : " batches";
  return "the failure policy has skipped " + std::to_string(all - before) + what +
         (before == 0 ? " and nothing was left" : " since the last batch") +
         ", the last time: " + producer_->last_failure();
}

// ---- Start, end, resume, statistics -------------------------------------------------------------

PENSTOCK_INLINE PipelinePlan HandOver::planned(PrefetcherOptions options, const AnySampler& sampler,
                                               const ErasedSource& source, bool transforms,
                                               std::size_t block) {
  require_time_out("stall_timeout", options.stall_timeout);
  if (transforms && source.kind == SourceKind::device)
    throw std::invalid_argument(
        "an on_device source writes the slots itself, so a DeviceTransform has nothing to read: "
        "let the "
        "source queue the transform's work on its stream");
  return plan(std::move(options), {source.kind, sampler.is_stream(), block});
}

/// Throws PoolExhausted where host_depth blocks are more than the cap.
PENSTOCK_INLINE PinnedPoolOptions HandOver::block_options(const PrefetcherOptions& options,
                                                          std::size_t block) {
  const std::size_t cap = host_bytes_limit(options);
  if (block > cap / options.host_depth)
    throw PoolExhausted(std::to_string(options.host_depth) + " batches of " +
                            std::to_string(block) +
                            " bytes do not fit the cap on host memory: lower host_depth (unless "
                            "set, a little more than device_depth) or the batch size, or raise "
                            "max_host_bytes",
                        block * options.host_depth, 0, cap);
  return {
      .flags = options.host_flags, .numa_node = options.numa_node, .upstream = options.host_memory};
}

PENSTOCK_INLINE HandOver::HandOver(const BlockLayout& layout, AnySampler sampler,
                                   ErasedSource source, TransformStage::Transform transform,
                                   PrefetcherOptions options)
    : deepens_(options.host_depth == 0),
      layout_(layout),
      plan_(planned(std::move(options), sampler, source, transform.has_value(),
                    block_bytes(layout_))),
      start_(sampler.start()),
      batches_(sampler.batches()),
      on_device_(source.kind == SourceKind::device),
      placed_(std::make_shared<const ThreadPlacement>(
          choose_placement(options_.placement, options_.numa_node))),
      blocks_(options_.host_depth, block_bytes(layout_),
              block_options(options_, block_bytes(layout_)), plan_.limits.has_value()),
      timeline_(options_.host_depth + options_.device_depth),
      samples_(timeline_, sampled(source.kind, transform.has_value()),
               options_.host_depth + options_.device_depth, options_.device_times),
      stage_(layout_, source.kind, std::move(transform), options_, samples_),
      queue_(options_.device_depth),
      setup_(make_setup(source.kind, sampler.is_stream())) {
  position_ = batch_number(batches_, start_.epoch, start_.batch);
  if (plan_.limits) {
    tuner_.emplace(plan_);
    if (!on_device_) stage_.use(plan_.device_depth);
  }
  const auto start = [&] {
    producer_.emplace(
        layout_, std::move(sampler), std::move(source), nullptr,
        ProducerOptions{.workers = options_.workers,
                        .depth = options_.host_depth,
                        .epochs = options_.epochs,
                        .ordered = options_.ordered,
                        .on_failure = options_.on_failure,
                        .read_ahead = options_.read_ahead,
                        .on_ready =
                            [this] {
                              stage_ready();
                              if (stage_task_.paused()) return;
                              // Nobody else tells take() of these.
                              if (producer_->has_lost_worker() || producer_->stopped())
                                queue_.call_all();
                            }},
        OfPrefetcher{blocks_,
                     stage_.targets(),
                     placed_.get(),
                     {plan_.start.workers, on_device_ ? plan_.start.depth : options_.host_depth}});
    stage_task_.end_pause();
    stage_ready();
  };
  if (on_device_) {
    start();
  } else {
    reserve_blocks(start);
    producer_->use(plan_.start);  // With tune, the other blocks are held back from now on.
  }
}

/// Page-locking is slow: the workers fill the first block while the others are allocated.
PENSTOCK_INLINE void HandOver::reserve_blocks(const std::function<void()>& start) {
  const BoundHere near(placed_->cpus);
  try {
    blocks_.allocate([&] {
      const BoundHere anywhere(near.before());  // A new thread inherits the CPUs of its maker.
      start();
    });
  } catch (...) {
    close();  // Workers may run already, and stage.
    throw;
  }
}

PENSTOCK_INLINE PipelineSetup HandOver::make_setup(SourceKind kind, bool unbounded) {
  PipelineSetup setup{.unbounded = unbounded,
                      .per_sample = kind == SourceKind::sample,
                      .transforms = stage_.transforms(),
                      .ordered = options_.ordered,
                      .batch_size = layout_.batch_size(),
                      .deepens = deepens_,
                      .cores = usable_cores(),
                      .batches = unbounded ? 0 : saturated_product(batches_, options_.epochs),
                      .host_limit = host_bytes_limit(options_),
                      .device_limit = stage_.bytes_limit()};
  bool any_float = false;
  for (const BlockLayout::Field& field : layout_.fields()) {
    using Element = BlockLayout::Element;
    const auto values = field.is_ragged() ? field.capacity : layout_.batch_size();
    const std::size_t bytes = static_cast<std::size_t>(values) * field.sample_bytes;
    const bool halves = field.element == Element::integer && field.element_bytes >= 4;
    const bool floats = field.element == Element::floating;
    any_float |= floats && field.element_bytes < 8;
    setup.doubles |= floats && field.element_bytes == 8;
    setup.batch_bytes += bytes;
    setup.as_uint8_bytes += floats ? bytes / field.element_bytes : bytes;
    setup.as_half_integers_bytes += halves ? bytes / 2 : bytes;
  }
  setup.doubles &= !any_float;
  return setup;
}

PENSTOCK_INLINE void HandOver::stop() noexcept {
  const Callers::Call call(callers_);
  producer_->request_stop();
  queue_.call_all();
}

/// False: a function that the pipeline has called, on this thread, destroys it. It returns into the
/// pipeline, which has to live for ever.
PENSTOCK_INLINE bool HandOver::close() noexcept {
  if (producer_ && (producer_->is_of_this_thread() || stage_task_.is_run_by_this_thread())) {
    producer_->abandon();
    callers_.see_entries();
    return false;
  }
  closed_ = true;
  if (producer_) producer_->request_stop();
  queue_.call_all();
  callers_.wait_until_left();
  stage_task_.pause();
  if (producer_) producer_->stop();
  return true;
}

PENSTOCK_INLINE void HandOver::require_order() const {
  if (!options_.ordered)
    throw std::logic_error(
        "batches that come unordered have no position to resume from: set ordered");
}

PENSTOCK_INLINE State HandOver::state() const {
  const Callers::Call call(callers_);
  require_order();
  const std::uint64_t position = position_;
  return state_at(start_, position / batches_, position % batches_);
}

PENSTOCK_INLINE void HandOver::restore(const State& state) {
  const Callers::Call call(callers_);
  if (const std::string why = why_incompatible(state, start_); !why.empty())
    throw std::invalid_argument(why);
  require_not_behind_end(state, options_.epochs);
  require_order();
  producer_->require_other_thread("Prefetcher::restore");
  if (stage_task_.is_run_by_this_thread())
    throw std::logic_error(
        "Prefetcher::restore was called by a DeviceTransform, for which it would wait: call it "
        "where the batches are taken");
  const std::lock_guard lock(take_mutex_);
  stage_task_.pause();
  queue_.clear();
  order_ = stage_.next_order();
  timeline_.restart(order_);
  position_ = batch_number(batches_, state.epoch, state.batch);
  if (tuner_) tuner_->restart();
  try {
    producer_->seek(state.epoch, state.batch);
  } catch (...) {
    queue_.end();  // Nobody makes batches now: next() must not wait for any.
    throw;
  }
  stage_task_.end_pause();
  stage_ready();
}

PENSTOCK_INLINE Stats HandOver::stats() {
  const Callers::Call call(callers_);
  Stats stats;
  stats.setup = setup_;
  producer_->add_to(stats);
  stage_.add_to(stats);
  samples_.collect();
  watch_.add_to(stats, samples_.sums(), options_.device_times);
  stats.skipped = producer_->skipped();
  stats.replaced = producer_->replaced();
  stats.workers = options_.workers;
  stats.host_depth = on_device_ ? 0 : options_.host_depth;
  stats.device_depth = options_.device_depth;
  if (tuner_) tuner_->add_to(stats);
  auto recent = std::make_shared<RecentBatches>();
  timeline_.copy(recent->batches);
  stats.recent = std::move(recent);
  stats.host_bytes = blocks_.allocated_bytes();
  if (!placed_->report.empty()) stats.placement = {placed_, &placed_->report};
  return stats;
}

// ---- What a Prefetcher and a Lease call ---------------------------------------------------------

PENSTOCK_INLINE void throw_empty_lease() {
  throw std::logic_error(
      "Lease: it holds no batch: it was released or moved from, or next() returned it because all "
      "epochs are done");
}

PENSTOCK_INLINE PrefetcherHandle make_prefetcher(const BlockLayout& layout, AnySampler sampler,
                                                 ErasedSource source, PrefetcherOptions options) {
  return std::make_shared<HandOver>(layout, std::move(sampler), std::move(source), std::nullopt,
                                    std::move(options));
}
PENSTOCK_INLINE PrefetcherHandle make_prefetcher(const BlockLayout& layout, AnySampler sampler,
                                                 ErasedSource source, ErasedTransform transform,
                                                 PrefetcherOptions options) {
  return std::make_shared<HandOver>(layout, std::move(sampler), std::move(source),
                                    std::move(transform), std::move(options));
}

PENSTOCK_INLINE void close(PrefetcherHandle& prefetcher) noexcept {
  if (prefetcher->forked() || !prefetcher->close()) leak(std::move(prefetcher));
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
