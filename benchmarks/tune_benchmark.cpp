// SPDX-License-Identifier: Apache-2.0

// PrefetcherOptions::tune against the best static setting that a search finds: 13 pipelines over
// the emulated machine, whose sources and consumers sleep, so that two cores suffice.
//
//   tune_benchmark_emulated [--decisions] [pipeline]
//
// --decisions: only runs it tuned, once, and prints what was decided.
//
// What is measured of a run are the steps of 192 batches from the 50th on, or of 96 from the 150th
// on where something changes at batch 100 (whole rounds of most numbers of workers; those that
// began together come back together). So the tuner has 50 batches to find its settings. The search
// runs every setting of a grid once, the best of them three times more; of those within 1 % of the
// best median the smallest one counts as best. It and the tuned pipeline then run nine times, by
// turns.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <mutex>
#include <penstock/emulation.hpp>
#include <penstock/launch.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/tuning.hpp>
#include <thread>
#include <tuple>
#include <vector>

namespace {

using namespace penstock;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr std::int64_t kRows = 16, kRowBytes = 8 << 10;
constexpr std::uint64_t kBatches = 260, kChange = 100, kToTune = 50;
constexpr int kMostWorkers = 16, kSearches = 3, kRepetitions = 9;

struct Bytes {
  Tensor<std::uint8_t, 2> value;
};

void sleep(double milliseconds) {
  std::this_thread::sleep_for(Milliseconds(milliseconds));
}

/// Cores, or a disk, that so many sources can use at a time.
class Shared {
 public:
  void work(double milliseconds, int places) {
    std::unique_lock lock(mutex_);
    const std::uint64_t turn = came_++;
    free_.wait(lock, [&] { return turn == next_ && taken_ < places; });
    ++next_;
    ++taken_;
    free_.notify_all();
    lock.unlock();
    sleep(milliseconds);
    lock.lock();
    --taken_;
    free_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  std::uint64_t came_ = 0, next_ = 0;  // first come, first served
  int taken_ = 0;
};

struct Pipeline {
  const char* name;
  std::function<double(std::uint64_t)> source, step;  ///< ms that batch b takes
  double copy = 0.2;                                  ///< ms of a batch on the bus
  bool synchronous = true;                            ///< the loop waits for each step
  bool per_sample = false, on_device = false;
  std::function<int(std::uint64_t)> places = {};  ///< sources that can work at a time
  bool changes = false;                           ///< something does, at batch kChange

  std::uint64_t first_measured() const { return kToTune + (changes ? kChange : 0); }
  std::uint64_t measured() const { return changes ? 96 : 192; }
};

std::function<double(std::uint64_t)> steady(double milliseconds) {
  return [=](std::uint64_t) { return milliseconds; };
}
/// Of `every` batches one takes `long_one`.
std::function<double(std::uint64_t)> uneven(double most, double long_one, std::uint64_t every) {
  return [=](std::uint64_t batch) { return batch % every == every - 1 ? long_one : most; };
}
template <class T>
std::function<T(std::uint64_t)> changing(T before, T after) {
  return [=](std::uint64_t batch) { return batch < kChange ? before : after; };
}

std::vector<Pipeline> pipelines() {
  return {
      {.name = "source", .source = steady(7), .step = steady(2)},
      {.name = "source, at the bound", .source = steady(40), .step = steady(1)},
      {.name = "shared disk, 3 at a time",
       .source = steady(8),
       .step = steady(1),
       .places = [](auto) { return 3; }},
      {.name = "copy", .source = steady(2), .step = steady(1), .copy = 4, .synchronous = false},
      {.name = "consumer", .source = steady(1.5), .step = steady(4)},
      {.name = "consumer, only queues",
       .source = steady(3),
       .step = steady(4),
       .synchronous = false},
      {.name = "bursty source", .source = uneven(1.5, 37.5, 8), .step = steady(2.5)},
      {.name = "source that stalls", .source = uneven(2, 32, 20), .step = steady(2.5)},
      {.name = "consumer that pauses", .source = steady(5), .step = uneven(1, 30, 16)},
      {.name = "source 4 x slower half way",
       .source = changing(4.0, 16.0),
       .step = steady(2.3),
       .changes = true},
      {.name = "half of the cores go",
       .source = steady(12),
       .step = steady(1),
       .places = changing(8, 4),
       .changes = true},
      {.name = "per_sample", .source = steady(16), .step = steady(2.5), .per_sample = true},
      {.name = "on_device", .source = steady(7), .step = steady(2), .on_device = true},
  };
}

/// A static setting; workers 0: tuned.
struct Setting {
  int workers = 0;
  std::size_t host_depth = 0, device_depth = 2;

  std::tuple<int, std::size_t> size() const { return {workers, host_depth + device_depth}; }
};

/// Of the measured batches.
struct Outcome {
  double rate = 0;                   ///< batches a second
  double workers = 0, batches = 0;   ///< in use, on average; batches in both memories
  std::size_t reserved = 0;          ///< batches that there is memory for
  std::vector<TuneDecision> last{};  ///< if tuned
};

PrefetcherOptions options_of(const Pipeline& pipeline, const Setting& setting) {
  PrefetcherOptions options{.workers = setting.workers,
                            .host_depth = setting.host_depth,
                            .device_depth = setting.device_depth};
  if (setting.workers == 0) {
    options.workers = 1;
    options.tune = Tune{.workers = kMostWorkers};
    if (!pipeline.on_device)
      options.tune->host_bytes = 64 * static_cast<std::size_t>(kRows * kRowBytes + 1024);
  }
  return options;
}

AnySource<Bytes> source_of(const Pipeline& pipeline, Shared& shared) {
  const auto work = [&pipeline, &shared](std::uint64_t batch, double part) {
    const double time = pipeline.source(batch) * part;
    if (pipeline.places)
      shared.work(time, pipeline.places(batch));
    else
      sleep(time);
  };
  if (pipeline.per_sample)
    return penstock::per_sample(
        [=](const Sample& sample, Bytes&) { work(sample.batch, 1.0 / kRows); });
  if (pipeline.on_device)
    return penstock::on_device(
        [=](const Ticket& ticket, Bytes&, cudaStream_t) { work(ticket.batch, 1); });
  return [=](const Ticket& ticket, Bytes&) { work(ticket.batch, 1); };
}

Outcome run(const Pipeline& pipeline, const Setting& setting) {
  emulation::reset({.machine = {.host_to_device = kRows * kRowBytes / (pipeline.copy * 1e-3)}});
  Shared shared;
  const Stream stream;
  Prefetcher<Bytes> prefetcher{Layout<Bytes>{kRows}.field(&Bytes::value, {kRowBytes}),
                               Sampler{{.samples = kBatches * kRows, .batch_size = kRows}},
                               source_of(pipeline, shared), options_of(pipeline, setting)};
  Outcome outcome;
  Clock::time_point begin{}, end{};
  const std::uint64_t first = pipeline.first_measured(), last = first + pipeline.measured();
  while (const auto batch = prefetcher.next(stream.get())) {
    const std::uint64_t number = batch.ticket().batch;
    if (first <= number && number < last) {
      const Stats stats = prefetcher.stats();
      outcome.workers += stats.workers;
      outcome.batches += static_cast<double>(stats.host_depth + stats.device_depth);
    }
    for_each(stream.get(), 1, [&, number](std::int64_t) {
      if (number == first) begin = Clock::now();
      if (number == last) end = Clock::now();
      sleep(pipeline.step(number));
    });
    if (pipeline.synchronous) stream.synchronize();
  }
  stream.synchronize();
  const auto measured = static_cast<double>(pipeline.measured());
  outcome.rate = measured / std::chrono::duration<double>(end - begin).count();
  outcome.workers /= measured;
  outcome.batches /= measured;
  const Stats stats = prefetcher.stats();
  outcome.reserved = stats.host_depth + stats.device_depth;
  if (stats.tuning) {
    outcome.reserved = stats.tuning->most_host_depth + stats.tuning->most_device_depth;
    outcome.last = stats.tuning->last;
  }
  return outcome;
}

std::vector<Setting> grid(const Pipeline& pipeline) {
  std::vector<Setting> settings;
  for (const int workers : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16}) {
    const auto each = pipeline.per_sample ? 0 : static_cast<std::size_t>(workers);
    for (const std::size_t more : {1U, 2U, 8U, 24U}) {
      if (pipeline.on_device)
        settings.push_back({workers, 0, each + more});
      else
        settings.push_back({workers, each + more, 2});
    }
  }
  return settings;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Measured {
  Setting setting;
  std::vector<Outcome> outcomes{};

  double of(double Outcome::*member) const {
    std::vector<double> values;
    for (const Outcome& outcome : outcomes) values.push_back(outcome.*member);
    return median(values);
  }
};

/// The best few settings of one run each.
std::vector<Measured> candidates(const Pipeline& pipeline) {
  constexpr std::size_t kBest = 5;
  std::vector<std::pair<double, Setting>> all;
  for (const Setting& setting : grid(pipeline))
    all.emplace_back(run(pipeline, setting).rate, setting);
  const double most = std::max_element(all.begin(), all.end(), [](auto& a, auto& b) {
                        return a.first < b.first;
                      })->first;
  // Those within the noise of one run, the smallest first; then the fastest.
  std::stable_sort(all.begin(), all.end(), [&](auto& a, auto& b) {
    const bool near_a = a.first > 0.97 * most, near_b = b.first > 0.97 * most;
    if (near_a != near_b) return near_a;
    return near_a ? a.second.size() < b.second.size() : a.first > b.first;
  });
  std::vector<Measured> best;
  for (std::size_t i = 0; i < kBest; ++i) best.push_back({all[i].second});
  const auto fastest =
      std::max_element(all.begin(), all.end(), [](auto& a, auto& b) { return a.first < b.first; });
  best.push_back({fastest->second});
  return best;
}

const Measured& smallest_of_the_best(const std::vector<Measured>& measured) {
  double most = 0;
  for (const Measured& one : measured) most = std::max(most, one.of(&Outcome::rate));
  const Measured* best = nullptr;
  for (const Measured& one : measured)
    if (one.of(&Outcome::rate) >= 0.99 * most &&
        (best == nullptr || one.setting.size() < best->setting.size()))
      best = &one;
  return *best;
}

/// By turns, so that each run has one of the other beside it: what else this machine does is much
/// the same for both.
void compare(const Pipeline& pipeline) {
  std::vector<Measured> statics = candidates(pipeline);
  for (int i = 0; i < kSearches; ++i)
    for (Measured& one : statics) one.outcomes.push_back(run(pipeline, one.setting));
  Measured best{smallest_of_the_best(statics).setting}, tuned{{}};
  std::vector<double> ratios;
  for (int i = 0; i < kRepetitions; ++i) {
    best.outcomes.push_back(run(pipeline, best.setting));
    tuned.outcomes.push_back(run(pipeline, {}));
    ratios.push_back(tuned.outcomes.back().rate / best.outcomes.back().rate);
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf(
      "| %s | %d, %zu, %zu: %.1f | %.1f | %.3f (%.3f to %.3f) | %.1f, %.2f | %.1f, %.2f | %zu |\n",
      pipeline.name, best.setting.workers, best.setting.host_depth, best.setting.device_depth,
      best.of(&Outcome::rate), tuned.of(&Outcome::rate), ratios[ratios.size() / 2], ratios.front(),
      ratios.back(), tuned.of(&Outcome::workers),
      tuned.of(&Outcome::workers) / best.of(&Outcome::workers), tuned.of(&Outcome::batches),
      tuned.of(&Outcome::batches) / best.of(&Outcome::batches), tuned.outcomes.front().reserved);
  std::fflush(stdout);
}

void show_decisions(const Pipeline& pipeline) {
  const Outcome outcome = run(pipeline, {});
  std::cout << pipeline.name << ": " << outcome.rate << " batches/s, " << outcome.workers
            << " workers, " << outcome.batches << " batches in memory\n";
  for (const TuneDecision& decision : outcome.last) std::cout << "  " << decision << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  const bool decisions = argc > 1 && std::strcmp(argv[1], "--decisions") == 0;
  const int words = decisions ? 2 : 1;
  const char* const which = argc > words ? argv[words] : nullptr;
  std::vector<Pipeline> wanted = pipelines();
  if (which != nullptr)
    std::erase_if(wanted, [&](const Pipeline& one) { return std::strcmp(which, one.name) != 0; });
  if (wanted.empty() || argc > words + 1) {
    std::fprintf(stderr,
                 "use: tune_benchmark_emulated [--decisions] [PIPELINE], which is one of:\n");
    for (const Pipeline& pipeline : pipelines()) std::fprintf(stderr, "  %s\n", pipeline.name);
    return 2;
  }
  if (!decisions)
    std::printf(
        "| pipeline | best static setting: workers, host_depth, device_depth: batches/s | tuned: "
        "batches/s | tuned / best (least to most of 9) | workers, / best | batches in memory, / "
        "best | "
        "reserved |\n|---|---|---|---|---|---|---|\n");
  for (const Pipeline& pipeline : wanted) (decisions ? show_decisions : compare)(pipeline);
}
