// SPDX-License-Identifier: Apache-2.0

#include "injected.hpp"

#include <penstock/emulation.hpp>
#include <penstock/launch.hpp>
#include <penstock/prefetcher.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace penstock::test {

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

struct Bytes {
  Tensor<std::uint8_t, 2> value;
};

constexpr std::int64_t kBytes = 128 << 10;

struct Span {
  Clock::time_point begin, end;
};

Span sleep(double milliseconds) {
  Span span{Clock::now(), {}};
  std::this_thread::sleep_for(Milliseconds(milliseconds));
  span.end = Clock::now();
  return span;
}

/// Of copies to the device, as the emulated machine ran them.
double milliseconds_of_copies() {
  Milliseconds all{0};
  for (const emulation::Operation& operation : emulation::timeline())
    if (operation.kind == emulation::OperationKind::copy) all += operation.end - operation.begin;
  return all.count();
}

void start_machine(double copy_milliseconds) {
  emulation::Options options = emulation::options();
  options.machine.host_to_device = kBytes / (copy_milliseconds * 1e-3);
  emulation::reset(options);
  emulation::record_timeline(true);
}

Truth truth_of(const Injected& injected, const std::vector<Span>& steps,
               std::chrono::nanoseconds filling) {
  const auto batches = static_cast<double>(injected.batches);
  Milliseconds computing{0};
  for (std::size_t i = 1; i < steps.size(); ++i) computing += steps[i].end - steps[i].begin;
  const Milliseconds wall = steps.back().end - steps.front().end;
  Truth truth;
  truth.period = wall.count() / (batches - 1);
  truth.one_worker = Milliseconds(filling).count() / batches;
  truth.source = truth.one_worker / injected.workers / truth.period;
  truth.copy = milliseconds_of_copies() / batches / truth.period;
  truth.consumer = computing / wall;
  return truth;
}

}  // namespace

double Work::of(std::uint64_t batch) const {
  constexpr std::uint64_t kGroup = 8, kBetweenStalls = 20;
  constexpr double kQuick = 0.2;  // of the mean
  switch (shape) {
    case Shape::steady:
      return milliseconds;
    case Shape::jitter: {
      const std::uint64_t bits = (batch + 1) * 0x9E3779B97F4A7C15u >> 40;
      return milliseconds * (kQuick + 1.6 * static_cast<double>(bits) / (1 << 24));
    }
    case Shape::bursts:
      return milliseconds *
             (batch % kGroup == kGroup - 1 ? kGroup - (kGroup - 1) * kQuick : kQuick);
    case Shape::stalls:
      return milliseconds + (batch % kBetweenStalls == kBetweenStalls / 2 ? stall : 0);
  }
  return 0;
}

Outcome run(const Injected& injected) {
  start_machine(injected.copy);
  std::atomic<std::int64_t> filling{0};
  std::vector<Span> steps;
  steps.reserve(injected.batches);

  const Stream stream;
  const auto layout = Layout<Bytes>{1}.field(&Bytes::value, {kBytes});
  const Sampler sampler{{.samples = injected.batches, .batch_size = 1}};
  const auto work = [&](const Ticket& ticket) {
    const Span span = sleep(injected.source.of(ticket.batch));
    filling += (span.end - span.begin).count();
  };
  const auto fill = [&](const Ticket& ticket, Bytes&) { work(ticket); };
  const auto write = [&](const Ticket& ticket, Bytes&, cudaStream_t) { work(ticket); };
  Prefetcher<Bytes> prefetcher{layout,
                               sampler,
                               injected.on_device ? AnySource<Bytes>(on_device(write)) : fill,
                               {.workers = injected.workers,
                                .host_depth = injected.host_depth,
                                .device_depth = injected.device_depth,
                                .device_times = injected.device_times}};
  while (const auto batch = prefetcher.next(stream.get())) {
    const double step = injected.consumer.of(batch.ticket().batch);
    for_each(stream.get(), 1, [&steps, step](std::int64_t) { steps.push_back(sleep(step)); });
    if (injected.synchronous) stream.synchronize();
  }
  stream.synchronize();
  return {truth_of(injected, steps, std::chrono::nanoseconds(filling)), prefetcher.stats()};
}

}  // namespace penstock::test
