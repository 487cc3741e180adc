// SPDX-License-Identifier: Apache-2.0

// docs/recipes/workers-and-depths.md: run a little with one worker, read how many would be enough,
// and run with that many. Exit code 0: the advice was right.

#include <chrono>
#include <cstdint>
#include <iostream>
#include <penstock/penstock.hpp>
#include <string>
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
      penstock::Sampler{{.samples = 32 * batches, .batch_size = 32}},
      [](const penstock::Ticket& ticket, Numbers& batch) {
        std::this_thread::sleep_for(8ms);
        for (std::size_t i = 0; i < ticket.samples.size(); ++i)
          batch.values(static_cast<std::int64_t>(i)) = static_cast<std::int32_t>(ticket.samples[i]);
      },
      options};
  while (const auto batch = prefetcher.next(stream.get())) {
    penstock::for_each(stream.get(), 32, Double{*batch});
    std::this_thread::sleep_for(2ms);
  }
  return prefetcher.stats();
}

}  // namespace

int main() {
  penstock::PrefetcherOptions options{.workers = 1, .device_times = true};
  const penstock::Stats first = run(40, options);
  const penstock::Verdict advice = first.verdict();
  std::cout << first << "\n\n";
  if (advice.kind != penstock::VerdictKind::more_workers || advice.enough_workers < 2) {
    std::cerr << "expected the advice of more workers, not " << to_string(advice.kind) << '\n';
    return 1;
  }

  options.workers = advice.enough_workers;  // host_depth follows: device_depth + workers
  const penstock::Stats second = run(80, options);
  std::cout << second << '\n';
  if (second.verdict().starved > advice.starved / 2) {
    std::cerr << "with " << options.workers << " workers the consumer still waits "
              << 100 * second.verdict().starved << " % of its time\n";
    return 1;
  }
  return 0;
}
