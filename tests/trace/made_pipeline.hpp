// SPDX-License-Identifier: Apache-2.0
#pragma once

// The timeline of a training loop without a fault, and with any of the faults that trace::find
// knows, each planted so that it brings no other about: where one of the others would follow in a
// real program (a synchronisation that leaves the device idle), the device has work enough queued.

#include <algorithm>
#include <penstock/trace/findings.hpp>
#include <set>
#include <vector>

#include "timeline_builder.hpp"

namespace penstock::test {

using Rules = std::set<trace::Rule>;

struct MadePipeline {
  int steps = 12;
  int kernels = 8;       ///< of a step, on a stream of their own
  double kernel = 1250;  ///< us, each
  double copy = 2000;    ///< us, of the next batch, while kernels run
  double pause = 1.5;    ///< us between two kernels
  Rules faults;          ///< in every step but the first
  std::string step_range = "step";

  trace::Timeline timeline();

 private:
  bool has(trace::Rule rule) const { return faults.count(rule) > 0; }
  void warm_up();
  void step();
  void launch_kernels(int count);
  void spoil_copies();
  void spoil_calls();
  void spoil_launches();
  /// A call of the main thread that takes this long.
  Span called(double duration) {
    const Span span{host_, host_ + duration};
    host_ += duration + 1;
    return span;
  }

  TimelineBuilder builder_;
  std::uint32_t compute_ = 0, copies_ = 0, other_ = 0, main_ = 0;
  double host_ = 0, device_ = 0;  // us: until when each has something to do
};

inline trace::Timeline MadePipeline::timeline() {
  builder_ = {};
  compute_ = builder_.stream(0, 13);
  copies_ = builder_.stream(0, 14, "penstock copy");
  other_ = builder_.stream(0, 15);
  main_ = builder_.thread(4711, "main");
  host_ = 0;
  warm_up();
  for (int i = 1; i < steps; ++i) step();
  return builder_.timeline();
}

/// The first step does all that a later one must not, and the pipe is empty.
inline void MadePipeline::warm_up() {
  const double begin = host_;
  builder_.call(main_, "cudaMalloc_v3020", called(500));
  const Span copying = called(copy);
  builder_.copy(main_, copies_, 32 << 20, copying, copying).flags = trace::Flag::synchronous;
  if (has(trace::Rule::slow_first_batch)) host_ += 100 * kernel * kernels;
  builder_.call(main_, "cudaStreamSynchronize_v3020", called(300));
  device_ = host_ + 10;
  launch_kernels(kernels);
  host_ = device_ - 500;
  builder_.range(main_, step_range, {begin, host_});
}

/// The host is half a millisecond ahead of the device.
inline void MadePipeline::step() {
  const double begin = host_;
  host_ += 20;
  builder_.range(main_, "get batch", called(has(trace::Rule::gap) ? 1600 : 50));
  device_ = std::max(device_, host_ + 10);
  const Span copy_call = called(4);
  double copy_begin = device_ + 10;
  if (has(trace::Rule::not_overlapped)) {
    copy_begin = device_;  // the kernels use what it brings
    device_ += copy;
  }
  trace::Event& batch =
      builder_.copy(main_, copies_, 32 << 20, copy_call, {copy_begin, copy_begin + copy});
  if (has(trace::Rule::pageable_copy)) batch.flags = trace::Flag::pageable;
  launch_kernels(kernels / 2);
  spoil_copies();
  spoil_calls();
  if (has(trace::Rule::launch_bound)) spoil_launches();
  launch_kernels(kernels - kernels / 2);
  host_ = device_ - 500;
  builder_.range(main_, step_range, {begin, host_});
}

inline void MadePipeline::launch_kernels(int count) {
  for (int i = 0; i < count; ++i) {
    const Span call = called(5);
    device_ = std::max(device_ + pause, call.second + 2);
    builder_.launch(main_, compute_, "convolve", call, {device_, device_ + kernel});
    device_ += kernel;
  }
}

/// While kernels run.
inline void MadePipeline::spoil_copies() {
  if (has(trace::Rule::synchronous_copy)) {
    const Span copying = called(100);
    builder_
        .copy(main_, other_, 1 << 20, copying, copying, trace::Direction::host_to_device,
              "cudaMemcpy_v3020")
        .flags = trace::Flag::synchronous;
  }
  if (has(trace::Rule::synchronous_fill)) {
    const Span filling = called(20);
    trace::Event& fill =
        builder_.submit(main_, other_, trace::Kind::fill, "cudaMemset_v3020", "", filling, filling);
    fill.flags = trace::Flag::synchronous;
    fill.value = 4096;
  }
  if (has(trace::Rule::tiny_copies))
    for (int i = 0; i < 12; ++i) {
      const Span call = called(4);
      builder_.copy(main_, other_, 512, call, {call.second, call.second + 1});
    }
}

inline void MadePipeline::spoil_calls() {
  if (has(trace::Rule::blocking_call))
    builder_.call(main_, "cudaStreamSynchronize_v3020", called(400));
  if (has(trace::Rule::allocation)) builder_.call(main_, "cudaFree_v3020", called(50));
}

/// Small kernels, each launched when the one before has ended for some time.
inline void MadePipeline::spoil_launches() {
  host_ = device_ - 3;
  for (int i = 0; i < 200; ++i) {
    const Span call = called(5);
    builder_.launch(main_, compute_, "add", call, {call.second + 2, call.second + 4});
    device_ = call.second + 4;
    host_ = device_ + 1;
  }
}

}  // namespace penstock::test
