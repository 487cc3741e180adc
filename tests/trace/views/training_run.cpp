// SPDX-License-Identifier: Apache-2.0
#include "training_run.hpp"

#include <algorithm>
#include <array>
#include <random>
#include <string>

namespace penstock::test {

namespace {

using namespace trace;

constexpr std::array kKernels{"conv2d_forward<half, 3>",
                              "batch_norm_relu",
                              "max_pool",
                              "conv2d_backward_data<half, 3>",
                              "conv2d_backward_filter<half, 3>",
                              "sgd_momentum"};

class Writer {
 public:
  explicit Writer(const TrainingRun& run) : run_(run) {
    timeline_.origin = {.program = "./train --data cifar10 --batch 512 --workers 3",
                        .host = "node17",
                        .process = 4711,
                        .rank = 0,
                        .device = "NVIDIA H200",
                        .recorder = "emulated CUDA runtime",
                        .emulated = true,
                        .started = 1'790'000'000,
                        .excerpt = {}};
    timeline_.begin = timeline_.end = 1'000'000'000;
    timeline_.names = {""};
    timeline_.tracks = {{Track::Kind::stream, 0, 13, "compute"},
                        {Track::Kind::stream, 0, 14, ""},
                        {Track::Kind::thread, -1, 4711, "trainer"},
                        {Track::Kind::thread, -1, 4712, "penstock copy"}};
    for (int worker = 0; worker < run.workers; ++worker)
      timeline_.tracks.push_back({Track::Kind::thread, -1, 4720 + std::uint64_t(worker),
                                  "worker " + std::to_string(worker)});
  }

  Timeline write() {
    for (std::uint64_t step = 0; step < run_.steps; ++step) write_step(step);
    arrange(timeline_);
    const Time third = (timeline_.end - timeline_.begin) / 3;
    timeline_.memory = {{timeline_.begin, std::uint64_t{1} << 30, 0},
                        {timeline_.begin + third, std::uint64_t{4} << 30, 0},
                        {timeline_.end - third, std::uint64_t{2} << 30, 0}};
    const std::uint32_t forward = name("forward");
    for (Event& event : timeline_.events)
      if (event.kind == Kind::range && event.name == forward) event.color = 0xff59a14f;
    return std::move(timeline_);
  }

 private:
  enum : std::uint32_t { compute, copies, trainer, copier, first_worker };

  /// The same text is the same number.
  std::uint32_t name(const std::string& text) {
    const auto found = std::find(timeline_.names.begin(), timeline_.names.end(), text);
    if (found == timeline_.names.end()) timeline_.names.push_back(text);
    return static_cast<std::uint32_t>(
        std::find(timeline_.names.begin(), timeline_.names.end(), text) - timeline_.names.begin());
  }

  Event& add(Kind kind, std::uint32_t track, const std::string& text, Time begin, Time end) {
    Event event;
    event.kind = kind;
    event.track = track;
    event.name = name(text);
    event.begin = begin;
    event.end = end;
    return timeline_.events.emplace_back(event);
  }

  /// `mean`, give or take a quarter.
  Time about(Time mean) {
    return mean * 3 / 4 + static_cast<Time>(random_() % static_cast<std::uint64_t>(mean / 2 + 1));
  }

  void write_step(std::uint64_t step) {
    const Time begin = now_;
    const bool late = step % 9 == 5;
    const Time filled = fill_batch(step, begin, late);
    const Time copied = copy_batch(step, filled);
    add(Kind::range, trainer, "get batch", now_ + 500, std::max(filled, now_ + 3'000)).value = step;
    now_ = std::max(filled, now_ + 3'000) + 400;
    device_ = std::max(device_, copied);
    launch_stage("forward", 0, 3, run_.kernels / 3);
    launch_stage("backward", 3, 2, run_.kernels - run_.kernels / 3 - 1);
    launch_stage("update", 5, 1, 1);
    read_loss();
    Event& range = add(Kind::range, trainer, "step", begin, now_);
    range.value = step;
    now_ += 300;
  }

  Time fill_batch(std::uint64_t step, Time at, bool late) {
    const auto track =
        first_worker + static_cast<std::uint32_t>(step % static_cast<std::uint64_t>(run_.workers));
    const Time length = late ? 14 * run_.kernel : about(6 * run_.kernel);
    const Time ahead = length + static_cast<Time>(run_.kernels) * run_.kernel;
    const Time begin = std::max(late ? at : at - ahead, workers_free_[track % 64]);
    const Time read = begin + length / 4;
    add(Kind::range, track, "fill", begin, begin + length).value = step;
    add(Kind::range, track, "read records", begin + 200, read);
    add(Kind::range, track, "decode", read + 100, begin + length - 200);
    workers_free_[track % 64] = begin + length + 1'000;
    return begin + length;
  }

  Time copy_batch(std::uint64_t step, Time at) {
    const Time call = std::max(at + 2'000, copier_);
    if (copier_ > 0 && call > copier_)
      add(Kind::range, copier, "wait for a batch", copier_, call).domain = name("penstock");
    Event& range = add(Kind::range, copier, "copy", call, call + 9'000);
    range.domain = name("penstock");
    range.value = step;
    add(Kind::call, copier, "cudaMemcpyAsync", call + 1'000, call + 8'000).correlation =
        ++correlation_;
    const Time begin = std::max(call + 9'000, copy_stream_);
    constexpr std::uint64_t bytes = 512 * 3 * 32 * 32 * 4;
    Event& copy = add(Kind::copy, copies, "", begin, begin + about(130'000));
    copy.direction = Direction::host_to_device;
    copy.value = bytes;
    copy.correlation = correlation_;
    if (step % 4 == 3) copy.flags = Flag::pageable;
    copy_stream_ = copy.end;
    copier_ = call + 10'000;
    return copy_stream_;
  }

  void launch_stage(const std::string& stage, std::size_t first, std::size_t kinds,
                    std::uint64_t count) {
    const Time begin = now_;
    for (std::uint64_t i = 0; i < count; ++i) {
      add(Kind::call, trainer, "cudaLaunchKernel", now_ + 300, now_ + 4'000).correlation =
          ++correlation_;
      const Time start = std::max(device_ + 900, now_ + 5'500);
      Event& kernel = add(Kind::kernel, compute, kKernels[first + i % kinds], start,
                          start + about(run_.kernel));
      kernel.correlation = correlation_;
      device_ = kernel.end;
      now_ += 4'500;
    }
    add(Kind::range, trainer, stage, begin, now_);
  }

  void read_loss() {
    const Time end = device_ + 7'000;
    add(Kind::call, trainer, "cudaMemcpy", now_ + 300, end).correlation = ++correlation_;
    Event& copy = add(Kind::copy, compute, "", device_ + 1'500, device_ + 4'000);
    copy.direction = Direction::device_to_host;
    copy.value = 4;
    copy.flags = Flag::synchronous | Flag::pageable;
    copy.correlation = correlation_;
    device_ = copy.end;
    now_ = end + 500;
  }

  const TrainingRun run_;
  Timeline timeline_;
  std::mt19937_64 random_{7};
  Time now_ = 1'001'000'000, device_ = 0, copy_stream_ = 0, copier_ = 0;
  std::array<Time, 64> workers_free_{};
  std::uint32_t correlation_ = 100;
};

}  // namespace

trace::Timeline timeline_of(const TrainingRun& run) {
  return Writer(run).write();
}

}  // namespace penstock::test
