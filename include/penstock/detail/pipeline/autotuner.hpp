// SPDX-License-Identifier: Apache-2.0
#pragma once

// Autotuner: a Tuner, what it may use, and what it has decided. The thread that takes batches calls
// it; any thread reads it.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/detail/pipeline/tune_log.hpp>
#include <penstock/detail/pipeline/tune_plan.hpp>
#include <penstock/detail/pipeline/tuner.hpp>
#include <penstock/stats.hpp>
#include <penstock/tuning.hpp>

namespace penstock::detail {

class Autotuner {
 public:
  /// Of a plan with limits.
  explicit Autotuner(const PipelinePlan& plan)
      : on_device_(plan.limits->depth_is == TuneKnob::device_depth),
        most_workers_(plan.options.workers),
        most_host_depth_(on_device_ ? 0 : plan.options.host_depth),
        most_slots_(plan.options.device_depth),
        tuner_(*plan.limits, plan.start),
        slots_(on_device_ ? plan.start.depth : plan.device_depth) {
    publish();
  }

  // ---- By the thread that takes ---------------------------------------------------------------

  const TuneSettings& settings() const { return tuner_.settings(); }
  /// Device slots in use.
  std::size_t slots() const { return slots_; }

  template <class CountReady>
  void note_ready(CountReady&& count_ready) {
    tuner_.note_ready(count_ready);
  }
  bool count_take(std::chrono::nanoseconds consuming, std::chrono::nanoseconds waiting) {
    return tuner_.count_take(consuming, waiting);
  }
  /// True: the settings have changed.
  bool look(const TuneCounts& counts) { return apply(tuner_.look(counts)); }
  void restart() { tuner_.restart(); }

  /// One more device slot; false: there is none.
  bool add_slot(std::uint64_t delivered, TuneReason reason) {
    if (on_device_) return add_depth(delivered, reason);
    if (slots_ == most_slots_) return false;
    log_.add({.batch = delivered,
              .knob = TuneKnob::device_depth,
              .reason = reason,
              .from = slots_,
              .to = slots_ + 1});
    ++slots_;
    publish();
    return true;
  }
  /// Memory for one more batch; false: there is none.
  bool add_depth(std::uint64_t delivered, TuneReason reason) {
    return apply(tuner_.add_depth(delivered, reason));
  }

  // ---- By any thread --------------------------------------------------------------------------

  void add_to(Stats& stats) const {
    stats.workers = used_workers_.load(std::memory_order_relaxed);
    stats.host_depth = host_depth_.load(std::memory_order_relaxed);
    stats.device_depth = device_depth_.load(std::memory_order_relaxed);
    stats.tuning = std::make_shared<const Tuning>(tuning());
  }

 private:
  Tuning tuning() const {
    Tuning tuning;
    tuning.most_workers = most_workers_;
    tuning.most_host_depth = most_host_depth_;
    tuning.most_device_depth = most_slots_;
    log_.add_to(tuning);
    return tuning;
  }
  bool apply(const TuneChanges& changes) {
    for (std::size_t i = 0; i < changes.count; ++i) log_.add(changes.made[i]);
    if (on_device_) slots_ = tuner_.settings().depth;
    publish();
    return changes.count > 0;
  }
  void publish() {
    used_workers_.store(tuner_.settings().workers, std::memory_order_relaxed);
    host_depth_.store(on_device_ ? 0 : tuner_.settings().depth, std::memory_order_relaxed);
    device_depth_.store(slots_, std::memory_order_relaxed);
  }

  const bool on_device_;  // The tuner's depth is that of the slots.
  const int most_workers_;
  const std::size_t most_host_depth_, most_slots_;
  Tuner tuner_;
  std::size_t slots_;
  TuneLog log_;
  std::atomic<int> used_workers_{0};
  std::atomic<std::size_t> host_depth_{0}, device_depth_{0};
};

}  // namespace penstock::detail
