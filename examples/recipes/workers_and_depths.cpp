// SPDX-License-Identifier: Apache-2.0

// docs/recipes/workers-and-depths.md: run a little with one worker, do what the verdict says, and
// run again, until there is nothing to change; then let a pipeline tune itself. Exit code 0: the
// loop waits less, or not at all, and the tuned one has more workers.

#include <chrono>
#include <cstdint>
#include <iostream>
#include <penstock/penstock.hpp>
#include <thread>

namespace {

using namespace std::chrono_literals;

struct Numbers {
  penstock::Tensor<std::int32_t, 1> values;  // sample
};

struct Double {
  Numbers batch;
  __host__ __device__ void operator()(std::int64_t i) const { batch.values(i) *= 2; }
};

/// A source that needs 8 ms for a batch (it waits, as for a disk), and a loop that needs 2 ms.
penstock::Stats run(std::uint64_t batches, const penstock::PrefetcherOptions& options) {
  const penstock::Stream stream;
  penstock::Prefetcher<Numbers> prefetcher{
      penstock::Layout<Numbers>{32}.field(&Numbers::values, {}),
      {.samples = 32 * batches},
      [](const penstock::Ticket& ticket, Numbers& batch) {
        std::this_thread::sleep_for(8ms);
        for (std::size_t i = 0; i < ticket.samples.size(); ++i)
          batch.values(i) = static_cast<std::int32_t>(ticket.samples[i]);
      },
      options};
  while (const auto batch = prefetcher.next(stream.get())) {
    penstock::for_each(stream.get(), 32, Double{*batch});
    std::this_thread::sleep_for(2ms);
  }
  return prefetcher.stats();
}

bool tunes_itself() {
  penstock::PrefetcherOptions options{.workers = 1};
  options.tune = penstock::Tune{.workers = 16};  // at most: the source waits, it needs no cores
  const penstock::Stats stats = run(200, options);
  std::cout << stats << '\n';
  for (const penstock::TuneDecision& decision : stats.tuning->last) std::cout << decision << '\n';
  return stats.workers > 1;
}

}  // namespace

int main() {
  penstock::PrefetcherOptions options{.workers = 1, .device_times = true};
  penstock::Verdict first, last;
  for (int round = 1; round <= 6; ++round) {
    const penstock::Stats stats = run(60, options);
    std::cout << stats << "\n\n";
    last = stats.verdict();
    if (round == 1) first = last;
    if (last.enough_workers == 0 && last.enough_host_depth == 0 && last.enough_device_depth == 0)
      break;  // there is nothing to change
    if (last.enough_workers > 0)
      options.workers = last.enough_workers;  // host_depth follows: device_depth + workers
    if (last.enough_host_depth > 0) options.host_depth = last.enough_host_depth;
    if (last.enough_device_depth > 0) options.device_depth = last.enough_device_depth;
  }
  const bool faster = 2 * last.period < first.period || last.starved < 0.1;
  if (first.kind != penstock::VerdictKind::more_workers || !faster) {
    std::cerr << "from " << first.sentence << "\nto " << last.sentence << '\n';
    return 1;
  }
  return tunes_itself() ? 0 : 1;
}
