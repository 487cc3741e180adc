// SPDX-License-Identifier: Apache-2.0

// What Stats add up and what the records of single batches say is the same, for drawn pipelines.
// Both are of one run, so that it does not matter how long the machine sleeps.

#include <penstock/prefetcher.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/handles.hpp"

using namespace std::chrono_literals;
using penstock::DeviceTransform;
using penstock::FailurePolicy;
using penstock::Layout;
using penstock::Prefetcher;
using penstock::PrefetcherOptions;
using penstock::Sample;
using penstock::Sampler;
using penstock::Stats;
using penstock::Tensor;
using penstock::Ticket;
using penstock::detail::BatchTimes;
using penstock::detail::DeviceDurations;
using penstock::detail::FinishedBatch;
using penstock::detail::ticks;
using penstock::detail::Ticks;
using penstock::test::TestStream;

namespace measured_twice {
namespace {

constexpr std::int64_t kRows = 4;
constexpr std::int64_t kRowBytes = 1 << 18;
constexpr std::uint64_t kBatches = 48;
constexpr Ticks kMs = 1'000'000;

struct Bytes {
  Tensor<std::uint8_t, 2> value;
};

Layout<Bytes> layout() {
  return Layout<Bytes>{kRows}.field(&Bytes::value, {kRowBytes});
}

template <int us>
void sleep_for_us(void*) {
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}
void queue_sleep(cudaStream_t stream, int ms) {
  const cudaHostFn_t sleep = ms == 0   ? sleep_for_us<0>
                             : ms == 1 ? sleep_for_us<1000>
                             : ms == 2 ? sleep_for_us<2000>
                             : ms == 3 ? sleep_for_us<3000>
                                       : sleep_for_us<5000>;
  penstock::detail::check(cudaLaunchHostFunc(stream, sleep, nullptr),
                          "cudaLaunchHostFunc");  // any thread
}

struct Drawn {
  enum class Source { batch, per_sample, on_device };
  Source source = Source::batch;
  bool transforms = false, device_times = false, restores = false;
  int streams = 1, workers = 1, source_ms = 2, transform_ms = 1, step_ms = 1, host_ms = 0;
  std::optional<FailurePolicy> policy;
  std::size_t host_depth = 0, device_depth = 2;

  std::string text() const {
    return "source " + std::to_string(static_cast<int>(source)) + ", transforms " +
           std::to_string(transforms) + ", device_times " + std::to_string(device_times) +
           ", restores " + std::to_string(restores) + ", streams " + std::to_string(streams) +
           ", workers " + std::to_string(workers) + ", source " + std::to_string(source_ms) +
           " ms, transform " + std::to_string(transform_ms) + " ms, step " +
           std::to_string(step_ms) + " ms, host " + std::to_string(host_ms) + " ms, " +
           (!policy                                           ? "aborts"
            : policy->action() == FailurePolicy::Action::skip ? "skips"
                                                              : "replaces") +
           ", depths " + std::to_string(host_depth) + " and " + std::to_string(device_depth);
  }
};

Drawn draw(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  Drawn drawn;
  drawn.source = static_cast<Drawn::Source>(seed % 3);
  drawn.transforms = drawn.source != Drawn::Source::on_device && below(2) == 0;
  drawn.device_times = seed / 3 % 2 == 0;
  drawn.workers = 1 + below(3);
  drawn.source_ms = 1 + below(4);
  drawn.transform_ms = 1 + below(3);
  drawn.step_ms = below(4);
  drawn.host_ms = below(3);
  if (const int policy = below(3); policy == 1)
    drawn.policy = FailurePolicy::skip();
  else if (policy == 2)
    drawn.policy = FailurePolicy::replace();
  drawn.restores = !drawn.policy && below(3) == 0;
  drawn.streams = drawn.restores ? 1 : 1 + below(3);
  drawn.host_depth = static_cast<std::size_t>(drawn.workers + 1 + below(3));
  drawn.device_depth = static_cast<std::size_t>(2 + below(2));
  return drawn;
}

/// The random schedule takes its time between the events of the one and of the other, too.
bool is_scheduled_at_random() {
  const char* const emulation = std::getenv("PENSTOCK_EMULATION");
  return emulation != nullptr && std::strstr(emulation, "schedule=random") != nullptr;
}

bool fails(const Drawn& drawn, std::uint64_t batch) {
  return drawn.policy && batch % 7 == 3;
}

Prefetcher<Bytes> make(const Drawn& drawn) {
  const Sampler sampler{{.samples = kBatches * kRows, .batch_size = kRows}};
  PrefetcherOptions options{
      .workers = drawn.workers,
      .host_depth = drawn.source == Drawn::Source::on_device ? 0 : drawn.host_depth,
      .device_depth = drawn.device_depth,
      .on_failure = drawn.policy.value_or(FailurePolicy::abort()),
      .device_times = drawn.device_times};
  const auto source = [drawn](const Ticket& ticket, Bytes&) {
    if (fails(drawn, ticket.samples[0] / kRows)) throw std::runtime_error("no");
    std::this_thread::sleep_for(std::chrono::milliseconds(drawn.source_ms));
  };
  const auto row = [drawn](const Sample& sample, Bytes&) {
    if (sample.index % 29 == 5 && drawn.policy) throw std::runtime_error("no");
    std::this_thread::sleep_for(std::chrono::milliseconds(drawn.source_ms));
  };
  const auto device = [drawn](const Ticket& ticket, Bytes&, cudaStream_t stream) {
    if (fails(drawn, ticket.samples[0] / kRows)) throw std::runtime_error("no");
    queue_sleep(stream, drawn.source_ms);
  };
  const DeviceTransform<Bytes, Bytes> transform{
      layout(), [drawn](const Ticket&, const Bytes&, Bytes&, cudaStream_t stream) {
        queue_sleep(stream, drawn.transform_ms);
      }};
  switch (drawn.source) {
    case Drawn::Source::batch:
      if (drawn.transforms) return Prefetcher<Bytes>(layout(), sampler, source, transform, options);
      return Prefetcher<Bytes>(layout(), sampler, source, options);
    case Drawn::Source::per_sample:
      if (drawn.transforms)
        return Prefetcher<Bytes>(layout(), sampler, penstock::per_sample(row), transform, options);
      return Prefetcher<Bytes>(layout(), sampler, penstock::per_sample(row), options);
    case Drawn::Source::on_device:
      break;
  }
  return Prefetcher<Bytes>(layout(), sampler, penstock::on_device(device), options);
}

/// A sum of Stats, and the same by the records.
struct Pair {
  std::string what;
  double stats, records, slack;

  bool agrees() const {
    return std::abs(stats - records) <= 0.03 * std::max(stats, records) + slack;
  }
};

/// In ms: what a batch may take from one measurement to the other.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
const double kBetween = kSanitized ? 0.5 : is_scheduled_at_random() ? 0.3 : 0;

double ms(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) / kMs;
}
double ms(Ticks time) {
  return static_cast<double>(time) / kMs;
}

std::vector<Pair> run(const Drawn& drawn) {
  std::vector<TestStream> streams(static_cast<std::size_t>(drawn.streams));
  Prefetcher<Bytes> prefetcher = make(drawn);
  std::uint64_t expected = 0;
  for (std::uint64_t batch = 0; batch < kBatches; ++batch)
    expected += drawn.source != Drawn::Source::per_sample && drawn.policy &&
                        drawn.policy->action() == FailurePolicy::Action::skip && fails(drawn, batch)
                    ? 0U
                    : 1U;
  std::optional<Stats> before;
  Ticks left = 0, pause = 0;                // of the host
  Ticks device_left = 0, device_pause = 0;  // of the stream
  for (std::uint64_t i = 0; i < expected; ++i) {
    if (drawn.restores && i == kBatches / 3) {
      REQUIRE_CUDA(cudaDeviceSynchronize());
      prefetcher.restore(prefetcher.state());
      before = prefetcher.stats();
      pause = ticks() - left;
      device_pause = ticks() - device_left;
    }
    auto& stream = streams[i % streams.size()];
    auto lease = prefetcher.next(stream);
    left = ticks();
    if (drawn.restores && i + 1 == kBatches / 3) {
      REQUIRE_CUDA(cudaDeviceSynchronize());  // The stream has the batch.
      device_left = ticks();
    }
    queue_sleep(stream, drawn.step_ms);
    if (drawn.host_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(drawn.host_ms));
  }
  REQUIRE_CUDA(cudaDeviceSynchronize());
  Stats stats = prefetcher.stats();
  if (before) stats = stats.since(*before);
  const std::vector<FinishedBatch>& batches = stats.recent->batches;
  REQUIRE(batches.size() == (before ? kBatches - kBatches / 3 : expected));

  Ticks work = 0, waiting = 0, busy = before ? pause : 0;
  Ticks copying = 0, transforming = 0, device_waiting = 0, steps = 0;
  std::uint64_t copies = 0, waits = 0;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const BatchTimes& times = batches[i].times;
    const DeviceDurations& device = batches[i].device;
    const std::size_t n = streams.size();
    const auto turns = static_cast<Ticks>(i >= n ? n : 1);
    work += times.source_time();
    if (i > 0 || before) waiting += times.taken - times.asked;
    if (i > 0) busy += times.asked - batches[i - 1].times.taken;
    copies += device.copy >= 0 ? 1U : 0U;
    copying += std::max<Ticks>(0, device.copy);
    transforming += std::max<Ticks>(0, device.transform);
    if (device.wait >= 0 && (i > 0 || before)) {
      ++waits;
      device_waiting += device.wait / turns;
    }
    if (i >= n && batches[i - n].device.step >= 0) steps += batches[i - n].device.step / turns;
  }
  // In ms: the two read the clock, and record their events, one after the other.
  const double slack = 2 + kBetween * kBatches;
  std::vector<Pair> pairs{
      {"consumer waits", ms(stats.consumer.waiting_for_input), ms(waiting), slack},
      {"consumer works", ms(stats.consumer.busy), ms(busy), slack}};
  if (!before) {
    pairs.push_back({"source works", ms(stats.source.busy), ms(work), slack});
    if (drawn.source != Drawn::Source::on_device)
      pairs.push_back({"copies", ms(stats.copy.busy),
                       ms(copying) * static_cast<double>(batches.size()) /
                           static_cast<double>(std::max<std::uint64_t>(1, copies)),
                       slack});
    if (drawn.transforms)
      pairs.push_back({"transforms", ms(stats.transform.busy),
                       ms(transforming) * static_cast<double>(batches.size()) /
                           static_cast<double>(std::max<std::uint64_t>(1, copies)),
                       slack});
  }
  if (stats.device) {
    pairs.push_back({"the stream waits",
                     ms(stats.device->awaiting_batch + stats.device->awaiting_copy),
                     ms(device_waiting), slack});
    pairs.push_back({"the stream works", ms(stats.device->consuming), ms(steps) + ms(device_pause),
                     slack + drawn.step_ms * drawn.streams});
  } else {
    const double period = ms(batches.back().times.taken - batches.front().times.taken) /
                          static_cast<double>(batches.size());
    pairs.push_back({"the stream waits, by samples",
                     ms(stats.waits.waiting) /
                         static_cast<double>(std::max<std::uint64_t>(1, stats.waits.batches)),
                     ms(device_waiting) / static_cast<double>(std::max<std::uint64_t>(1, waits)),
                     0.03 * period + slack / kBatches});
    CHECK(waits + 4 >= stats.waits.batches);
  }
  return pairs;
}

}  // namespace

TEST_CASE("what Stats add up is what the records of the batches say", "[prefetcher][recent]") {
  const auto seed = GENERATE(range(0U, 12U));
  const Drawn drawn = draw(seed);
  INFO("seed " << seed << ": " << drawn.text());
  // A thread that loses its core between the two measurements makes them differ: not every time.
  std::vector<Pair> pairs;
  for (int attempt = 0; attempt < 8; ++attempt) {
    pairs = run(drawn);
    if (std::all_of(pairs.begin(), pairs.end(), [](const Pair& pair) { return pair.agrees(); }))
      break;
  }
  for (const Pair& pair : pairs) {
    INFO(pair.what << ": " << pair.stats << " ms by Stats, " << pair.records << " ms by records");
    CHECK(pair.agrees());
  }
}

}  // namespace measured_twice
