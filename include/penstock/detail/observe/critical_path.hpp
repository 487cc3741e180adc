// SPDX-License-Identifier: Apache-2.0
#pragma once

// CriticalPath: what the period of a replay is made of. It walks back from the end of the replay:
// each moment was as late as it was because of one other, and the time between the two belongs to a
// stage. What a stage does beside this path costs nothing.

#include <algorithm>
#include <array>
#include <cstddef>
#include <penstock/detail/observe/replay_pass.hpp>
#include <penstock/verdict.hpp>

namespace penstock::detail {

class CriticalPath {
 public:
  using Index = ReplayPass::Index;

  explicit CriticalPath(const ReplayPass& pass) noexcept
      : pass_(pass), from_(pass.end(pass.count() - 1)), now_(pass.end(2 * pass.count() - 1)) {}

  /// Shares of the time from the end of the first replay to that of the second.
  std::array<double, 7> shares() noexcept {
    i_ = 2 * pass_.count() - 1;
    step_ = pass_.at(i_).turned >= pass_.at(i_).worked ? Step::turned : Step::worked;
    const double all = now_ - from_;
    while (i_ >= 0 && now_ > from_) go_back();
    const auto shares = time_;
    if (all > 0)
      for (double& share : time_) share = share / all;
    return all > 0 ? time_ : shares;
  }

 private:
  /// A moment on the path: a batch had passed this step.
  enum class Step { filled, issued, copied, staged, got, worked, turned };

  void spend(Bottleneck stage, double since) noexcept {
    since = std::max(since, from_);
    if (since >= now_) return;
    time_.at(static_cast<std::size_t>(stage)) += now_ - since;
    now_ = since;
  }
  void go(Step step, Index i) noexcept {
    if (step != Step::turned && step != Step::got && step != Step::worked) for_slot_ = false;
    step_ = step;
    i_ = i;
  }
  /// The consumer's work, or the wait for it of a copy that has no slot.
  Bottleneck consumer() const noexcept {
    return for_slot_ ? Bottleneck::waiting_for_slot : Bottleneck::consumer;
  }
  void go_to_readers() noexcept {
    const Index last = pass_.last_reader(i_);
    for_slot_ = true;
    if (!pass_.loop().ends_early) return go(Step::worked, last);
    const double worked = pass_.when(&ReplayEvent::worked, last - 1);
    if (last > 0 && worked >= pass_.at(last).staged) return go(Step::worked, last - 1);
    go(Step::staged, last);
  }
  /// To what ended the lease of the slot that batch i_ needs.
  void go_to_lease() noexcept {
    for_slot_ = true;
    const Index last = pass_.last_reader(i_);
    const double left = pass_.at(i_ - pass_.slots()).left;
    go(left == pass_.at(last).got ? Step::got : Step::turned, last);
  }

  void go_back() noexcept {
    const ReplayEvent& event = pass_.at(i_);
    switch (step_) {
      case Step::filled:
        return back_from_filled(event);
      case Step::issued:
        return back_from_issued(event);
      case Step::copied:
        return back_from_copied(event);
      case Step::staged:
        if (!pass_.shape().on_device()) spend(Bottleneck::transform, event.copied);
        return go(Step::copied, i_);
      case Step::got:
        if (event.got == pass_.when(&ReplayEvent::turned, i_ - 1)) return go(Step::turned, i_ - 1);
        spend(consumer(), event.issued);
        return go(Step::issued, i_);
      case Step::worked:
        spend(consumer(), event.begun);
        if (event.begun == event.staged) return go(Step::staged, i_);
        if (event.begun == event.got) return go(Step::got, i_);
        return go(Step::worked, event.stream_before);
      case Step::turned:
        return back_from_turned(event);
    }
  }
  void back_from_turned(const ReplayEvent& event) noexcept {
    const LoopWaits waits = pass_.loop().waits;
    if (waits == LoopWaits::for_this_step && event.worked >= event.got) {
      spend(consumer(), event.worked);
      return go(Step::worked, i_);
    }
    if (waits == LoopWaits::for_last_step && pass_.when(&ReplayEvent::worked, i_ - 1) > event.got) {
      spend(consumer(), pass_.at(i_ - 1).worked);
      return go(Step::worked, i_ - 1);
    }
    spend(consumer(), event.got);
    go(Step::got, i_);
  }
  void back_from_filled(const ReplayEvent& event) noexcept {
    spend(Bottleneck::source, event.opened);
    const bool on_device = pass_.shape().on_device();
    const Index memory = i_ - (on_device ? pass_.slots() : pass_.blocks());
    const bool has_waited = memory >= 0 && event.opened == (on_device ? pass_.at(memory).left
                                                                      : pass_.at(memory).copied);
    if (!has_waited) return go(Step::filled, event.worker_before);
    if (on_device) return go_to_lease();
    go(Step::copied, memory);
  }
  void back_from_issued(const ReplayEvent& event) noexcept {
    const bool on_device = pass_.shape().on_device();
    spend(on_device ? Bottleneck::source : Bottleneck::copy, event.issued - pass_.cost(i_).issue);
    const double before = pass_.when(&ReplayEvent::issued, i_ - 1);
    if (event.filled >= before &&
        (on_device || event.filled >= pass_.when(&ReplayEvent::left, i_ - pass_.slots())))
      return go(Step::filled, i_);
    if (on_device || before >= pass_.when(&ReplayEvent::left, i_ - pass_.slots()))
      return go(Step::issued, i_ - 1);
    go_to_lease();
  }
  void back_from_copied(const ReplayEvent& event) noexcept {
    const double readers = pass_.readers_through(i_);
    if (pass_.shape().on_device()) {
      const double work = event.copied - event.filled;
      if (work > 0 && pass_.costs().source_queues()) {
        const double begun = event.copied - pass_.cost(i_).source_work * pass_.settings().source;
        spend(Bottleneck::source, begun);
        if (readers >= begun && readers > event.opened) return go_to_readers();
        if (event.opened >= begun || event.worker_before < 0) return go_to_opened(event);
        return go(Step::copied, event.worker_before);
      }
      if (work > 0) return go_to_readers();
      return go(Step::filled, i_);
    }
    const double stream = pass_.when(&ReplayEvent::staged, i_ - 1);
    spend(Bottleneck::copy, std::max({event.issued, stream, readers}));
    if (event.issued >= stream && event.issued >= readers) return go(Step::issued, i_);
    if (stream >= readers) return go(Step::staged, i_ - 1);
    go_to_readers();
  }
  /// To what the worker of an on_device batch waited for before it called the source.
  void go_to_opened(const ReplayEvent& event) noexcept {
    const Index memory = i_ - pass_.slots();
    if (memory >= 0 && event.opened == pass_.at(memory).left) return go_to_lease();
    go(Step::filled, event.worker_before);
  }

  const ReplayPass& pass_;
  const double from_;
  double now_;
  Index i_ = 0;
  Step step_ = Step::turned;
  bool for_slot_ = false;
  std::array<double, 7> time_{};
};

}  // namespace penstock::detail
