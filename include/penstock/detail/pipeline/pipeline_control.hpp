// SPDX-License-Identifier: Apache-2.0
#pragma once

// Pipeline: the members that start it, end it, and let it begin anew at another batch.

#include <pthread.h>

#include <cstdio>
#include <functional>
#include <penstock/detail/order/state.hpp>
#include <penstock/detail/pipeline/pipeline.hpp>
#include <thread>

namespace penstock::inline PENSTOCK_ABI::detail {

PENSTOCK_INLINE Pipeline::Pipeline(const BlockLayout& layout, AnySampler sampler,
                                   ErasedSource source, std::unique_ptr<DeviceRoute> route,
                                   PinnedPool* pool, ProducerOptions options)
    : shared_layout_(std::make_shared<const BlockLayout>(layout)),
      layout_(layout),
      route_(std::move(route)),
      sampler_(std::move(sampler)),
      source_(std::move(source)),
      options_(checked(std::move(options), sampler_, source_)),
      batches_(sampler_.batches()),
      total_(saturated_product(batches_, options_.epochs)),
      device_(current_device()),
      filler_(layout_, sampler_, source_.kind, options_.on_failure.action(),
              route_ ? route_->stage.targets() : nullptr, !route_),
      read_ahead_(options_.read_ahead, sampler_, static_cast<std::size_t>(layout_.batch_size())),
      memory_(route_ ? BatchMemory(route_->blocks, route_->stage.targets(), options_.depth)
                     : BatchMemory(*pool, block_bytes(layout_), *this)),
      free_records_(route_ ? route_->records() : options_.depth, !route_ && options_.ordered),
      ring_(free_records_.count(), options_.ordered),
      permits_(options_.workers),
      log_(options_.on_failure, together(), options_.ordered),
      lost_(static_cast<std::size_t>(options_.workers)),
      traces_(static_cast<std::size_t>(options_.workers)) {
  if (batches_ == 0)
    throw std::invalid_argument("the sampler has no batch: its batches() must be at least 1");
  if (sampler_.start().batch_size > static_cast<std::uint64_t>(layout_.batch_size()))
    throw std::invalid_argument(
        "the sampler has batches of " + std::to_string(sampler_.start().batch_size) +
        " samples, the layout has room for " + std::to_string(layout_.batch_size()));
  for (std::size_t i = 0; i < free_records_.count(); ++i) {
    BatchRecord& record = records_.emplace_back(layout_, static_cast<std::uint32_t>(i));
    if (route_) route_->stage.equip(record);
  }
}

// ---- Start --------------------------------------------------------------------------------------

/// Page-locking is slow: the workers fill the first block while the others are allocated.
PENSTOCK_INLINE void Pipeline::start() {
  const State& at = sampler_.start();
  const std::uint64_t first = batch_number(batches_, at.epoch, at.batch);
  if (!route_) return restart(first);
  const TuneSettings& planned = route_->plan.start;
  permits_.allow(static_cast<int>(planned.workers));
  if (route_->on_device) {
    use(planned);
    return restart(first);
  }
  const BoundHere near(route_->placement->cpus);
  route_->blocks.allocate([&] {
    const BoundHere anywhere(near.before());  // A new thread inherits the CPUs of its maker.
    restart(first);
  });
  use(planned);  // With tune, the other blocks are held back from now on.
}

/// Ends the run, and begins another one with the batch `first`. Leases stay. No thread may take
/// batches meanwhile.
PENSTOCK_INLINE void Pipeline::restart(std::uint64_t first) {
  const std::lock_guard one_at_a_time(join_mutex_);
  stage_task_.pause();
  end_run(false);
  join();
  for (BatchRecord& record : records_)
    if (record.is_in_pipeline()) end_record(record);
  position_ = first;
  if (route_) {
    order_ = route_->stage.next_order();
    route_->timeline.restart(order_);
  }
  first = std::min(total_, first);
  free_records_.restart(first);
  read_ahead_.restart(first, total_);
  lost_.clear();
  admitted_ = first;
  ended_.store(false, std::memory_order_relaxed);
  {
    const std::lock_guard lock(end_mutex_);
    ring_.reopen(first, total_);
    stop_ = std::stop_source();
    stopped_.store(false, std::memory_order_relaxed);
  }
  start_workers();
  if (!route_) return;
  stage_task_.end_pause();
  stage();
}

PENSTOCK_INLINE void Pipeline::start_workers() {
  try {
    threads_.start(static_cast<std::size_t>(options_.workers), stop_.get_token(),
                   [this](std::size_t worker, const std::stop_token& stop) { work(worker, stop); });
  } catch (...) {
    end_run(false);
    ended_.store(true, std::memory_order_relaxed);  // Nobody takes what the others still make.
    throw;
  }
}

PENSTOCK_INLINE void Pipeline::work(std::size_t worker, const std::stop_token& stop) noexcept {
  markers::name_this_thread("penstock worker");
  if (route_) route_->placement->bind_worker(worker);
  {
    // Captures on other threads forbid event queries to threads that have not opted out.
    const CaptureModeGuard capture_mode;
    // If this fails, the calls that need the device fail too, and next() throws that.
    cudaSetDevice(device_);
    const WorkerTrace::Shift shift(traces_[worker]);
    WorkerTools tools{worker, traces_[worker], capture_mode, stop, nullptr, BatchObject(layout_)};
    if (equip(tools)) run(tools);
    if (abandoned_here()) come_back();
  }
  permits_.wake();  // The data have ended, or stop was requested: parked workers end, too.
}

/// False: the source could not be made, or there is no memory for what the worker needs. next()
/// throws that.
PENSTOCK_INLINE bool Pipeline::equip(WorkerTools& tools) noexcept {
  try {
    tools.source = source_.make();
    filler_.equip(tools);
    return true;
  } catch (...) {
    lost_.add(tools.worker);
  }
  call_all();
  return false;
}

// ---- Stop ---------------------------------------------------------------------------------------

/// Whether a stop was requested since the last start.
PENSTOCK_INLINE bool Pipeline::stopped() const noexcept {
  return closed_ || stopped_.load(std::memory_order_relaxed);
}

/// Lets no batch begin any more, and asks sources to stop. A worker that is parked sees that when
/// one that runs ends. `is_stopped`: a stop was requested.
PENSTOCK_INLINE void Pipeline::end_run(bool is_stopped) noexcept {
  std::stop_source stop = [this, is_stopped] {
    const std::lock_guard lock(end_mutex_);
    if (is_stopped) stopped_.store(true, std::memory_order_relaxed);
    close_ring();
    return stop_;
  }();
  stop.request_stop();  // It calls functions of the user's: not under the lock.
}

/// Lets no number be claimed any more.
PENSTOCK_INLINE void Pipeline::close_ring() noexcept {
  ring_.close();
  room_.notify_all();
  memory_.wake();
  delivery_.notify_one();
}

PENSTOCK_INLINE void Pipeline::stop() noexcept {
  const Callers::Call call(callers_);
  end_run(true);
  call_all();
}

PENSTOCK_INLINE void Pipeline::stop_and_join() noexcept {
  if (forked()) return threads_.leak();
  end_run(true);
  if (is_of_this_thread()) return;  // A source called this. The destructor joins its thread.
  const std::lock_guard lock(join_mutex_);
  end_run(true);  // A restart that was under way has started workers.
  join();
}

PENSTOCK_INLINE void Pipeline::join() noexcept {
  wait_for_workers(0);
  threads_.join();
}

/// Waits until no more than `left` workers run. After 5 s it prints once on stderr which worker it
/// waits for, since an exception that unwinds through here is not reported before it returns.
PENSTOCK_INLINE void Pipeline::wait_for_workers(int left) noexcept {
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

PENSTOCK_INLINE bool Pipeline::is_of_this_thread() const noexcept {
  return std::any_of(traces_.begin(), traces_.end(), std::mem_fn(&WorkerTrace::is_of_this_thread));
}

// ---- News for all who wait ----------------------------------------------------------------------

/// The next call of next() throws `error`. Of several errors the first is kept.
PENSTOCK_INLINE void Pipeline::report(std::exception_ptr error) noexcept {
  reported_.set(std::move(error));
  call_all();  // One of them throws it; the others may have no slot to wait for any more.
}

/// Makes all threads that wait for a batch check everything again.
PENSTOCK_INLINE void Pipeline::call_all() noexcept {
  calls_.fetch_add(1, std::memory_order_release);
  delivery_.notify_all();
  if (options_.on_ready) options_.on_ready();
}

// ---- The destructor of the owner ----------------------------------------------------------------

PENSTOCK_INLINE bool Pipeline::close() noexcept {
  if (is_of_this_thread() || stage_task_.is_run_by_this_thread()) {
    abandon();
    callers_.see_entries();
    static_cast<void>(in_next_.test(std::memory_order_acquire));  // It has read the handle.
    return false;
  }
  if (route_) {
    closed_ = true;
    end_run(true);
    call_all();
    callers_.wait_until_left();
    stage_task_.pause();
  }
  stop_and_join();
  while (in_next_.test(std::memory_order_acquire)) std::this_thread::yield();
  return true;
}

/// A destructor calls this if it runs inside a function that the pipeline has called. It waits for
/// the other workers, and joins none. The pipeline is never freed.
PENSTOCK_INLINE void Pipeline::abandon() noexcept {
  const bool is_worker = is_of_this_thread();
  abandoned_by_.store(static_cast<std::uint64_t>(pthread_self()), std::memory_order_relaxed);
  end_run(false);
  // The thread that has the lock may be joining this one.
  const std::unique_lock lock(join_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  wait_for_workers(is_worker ? 1 : 0);
  threads_.detach();
}

/// Whether a destructor has run on a thread that has not returned into the pipeline yet.
PENSTOCK_INLINE bool Pipeline::abandoned() const noexcept {
  return abandoned_by_.load(std::memory_order_relaxed) < kReturned;
}

/// Whether that thread is the calling one, which has just returned. At the end of a process it
/// never does.
PENSTOCK_INLINE bool Pipeline::abandoned_here() const noexcept {
  return abandoned_by_.load(std::memory_order_relaxed) ==
         static_cast<std::uint64_t>(pthread_self());
}

/// Says on stderr what has happened. From now on next() finds the end of the data.
PENSTOCK_INLINE void Pipeline::come_back() noexcept {
  std::fputs(
      "penstock: a pipeline was destroyed by a function that it had called (its source, sampler, "
      "transform ...), which returns into it: its memory is never freed. Destroy it where its "
      "batches are taken; a source ends the data by returning false, or by stop()\n",
      stderr);
  abandoned_by_.store(kReturned, std::memory_order_relaxed);
  end_run(true);
  returned_.notify_all();
  call_all();
}

/// A consumer waits here. At the end of a process this never returns.
PENSTOCK_INLINE void Pipeline::wait_while_abandoned() {
  returned_.wait([this] { return !abandoned(); });
}

PENSTOCK_INLINE void close(PipelineHandle& pipeline) noexcept {
  if (pipeline->forked() || !pipeline->close())
    leak(std::move(pipeline));
  else
    pipeline.reset();
}

// ---- A BatchProducer's pool ---------------------------------------------------------------------

/// Returns the consumer's call that waits for a worker without a number, since all batches with
/// numbers were taken. 0: there is none.
PENSTOCK_INLINE std::uint64_t Pipeline::held_up() const noexcept {
  if (!in_next_.test(std::memory_order_relaxed) || ring_.next_number() != ring_.position())
    return 0;
  return next_calls_.load(std::memory_order_relaxed);
}

PENSTOCK_INLINE void Pipeline::timed_out(std::uint64_t call, std::exception_ptr error) noexcept {
  no_memory_.set(call, std::move(error));
  delivery_.notify_one();
}

// ---- Resume -------------------------------------------------------------------------------------

PENSTOCK_INLINE void Pipeline::require_other_thread(const char* call) const {
  if (is_of_this_thread())
    throw std::logic_error(std::string(call) +
                           " was called by a source, for which it would wait: call it where the "
                           "batches are taken. A source ends the data by returning false");
}

PENSTOCK_INLINE void Pipeline::require_order() const {
  if (!options_.ordered)
    throw std::logic_error(
        "batches that come unordered have no position to resume from: set ordered");
}

PENSTOCK_INLINE void Pipeline::seek(std::uint64_t epoch, std::uint64_t batch) {
  require_other_thread("BatchProducer::seek");
  restart(batch_number(batches_, epoch, batch));
}

PENSTOCK_INLINE State Pipeline::state() const {
  const Callers::Call call(callers_);
  require_order();
  const std::uint64_t position = position_;
  return state_at(sampler_.start(), position / batches_, position % batches_);
}

PENSTOCK_INLINE void Pipeline::restore(const State& state) {
  const Callers::Call call(callers_);
  if (const std::string why = why_incompatible(state, sampler_.start()); !why.empty())
    throw std::invalid_argument(why);
  require_not_behind_end(state, options_.epochs);
  require_order();
  require_other_thread("Prefetcher::restore");
  if (stage_task_.is_run_by_this_thread())
    throw std::logic_error(
        "Prefetcher::restore was called by a DeviceTransform, for which it would wait: call it "
        "where the batches are taken");
  const std::lock_guard lock(take_mutex_);
  restart(batch_number(batches_, state.epoch, state.batch));
}

}  // namespace penstock::detail
