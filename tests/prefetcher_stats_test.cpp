// SPDX-License-Identifier: Apache-2.0

// What a prefetcher's stats() tell of its stages. Runs emulated, and on a GPU.

#include <penstock/prefetcher.hpp>
#include <penstock/stats_export.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"

using penstock::Lease;
using penstock::Prefetcher;
using penstock::Sampler;
using penstock::test::eventually;
using penstock::test::Gate;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::shuffled;
using penstock::test::TestStream;
using penstock::test::write_numbers;

/// The ends of leases poll copies at most every 100 us.
static void pass_sample_period() {
  std::this_thread::sleep_for(std::chrono::microseconds(200));
}

TEST_CASE("stats tell a copy that waits for the slot's readers from one that runs",
          "[prefetcher]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(40, 4), write_numbers,
                                 {.workers = 1, .device_depth = 2});
  Gate gate;
  {
    auto first = prefetcher.next(stream), second = prefetcher.next(stream);
    REQUIRE_CUDA(cudaStreamSynchronize(stream));  // Their copies are done.
    gate.hold(stream);
    pass_sample_period();  // So that the beginning of the copy is recorded.
    first.release();       // Its slot's next copy waits at the gate.
    REQUIRE(eventually([&] { return prefetcher.stats().copy.batches == 3; }));
    pass_sample_period();
    second.release();  // Polls that copy.
  }
  CHECK(prefetcher.stats().copy.waiting_for_room.count() > 0);
  gate.open();
}

TEST_CASE("stats tell that nothing is being copied", "[prefetcher]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(12, 4), write_numbers,
                                 {.workers = 1, .device_depth = 3});
  CHECK(prefetcher.stats().copy.busy.count() == 0);
  CHECK(prefetcher.stats().copy.queued == 0);
  std::vector<Lease<Numbers>> leases;
  while (auto batch = prefetcher.next(stream)) leases.push_back(std::move(batch));
  REQUIRE_CUDA(cudaDeviceSynchronize());
  for (auto& lease : leases) {
    pass_sample_period();
    lease.release();
  }
  const auto copy = prefetcher.stats().copy;
  CHECK(copy.busy.count() == 0);
  CHECK(copy.waiting_for_room.count() == 0);
  CHECK(copy.waiting_for_input.count() > 0);
}

TEST_CASE("stats tell memory, batches and bytes", "[prefetcher]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(8), shuffled(20, 8), write_numbers,
                                 {.workers = 2, .host_depth = 3, .device_depth = 2});
  while (prefetcher.next(stream)) {
  }
  const penstock::Stats stats = prefetcher.stats();
  const std::size_t per_sample =
      sizeof(std::uint64_t) + penstock::test::kPayload * sizeof(std::uint32_t);
  CHECK(stats.consumer.batches == 3);
  CHECK(stats.source.batches == 3);
  CHECK(stats.copy.batches == 3);
  CHECK(stats.source.bytes >= 20 * per_sample);
  CHECK(stats.copy.bytes == stats.source.bytes);
  CHECK(stats.copy.bytes <
        3 * numbers_layout(8).bytes());  // The short batch copied its samples alone.
  CHECK(stats.host_depth == 3);
  CHECK(stats.host_bytes == 3 * penstock::BatchProducer<Numbers>::block_bytes(numbers_layout(8)));
  CHECK(stats.device_bytes == 2 * numbers_layout(8).bytes());
  CHECK(stats.first_batch.count() > 0);
}

/// The counters of a scrape, by name and labels.
static std::map<std::string, double> counters(const Prefetcher<Numbers>& prefetcher) {
  std::map<std::string, double> found;
  std::istringstream lines(to_prometheus(prefetcher.stats()));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t end = line.rfind(' ');
    if (line[0] != '#' && line.find("_total") != std::string::npos)
      found[line.substr(0, end)] = std::stod(line.substr(end));
  }
  return found;
}

TEST_CASE("exported counters only grow, whatever the pipeline does", "[prefetcher]") {
  const bool device_times = GENERATE(false, true);
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(200, 4), write_numbers,
                                 {.workers = 3, .device_times = device_times});
  const auto start = prefetcher.state();
  std::atomic<bool> done{false};
  std::uint64_t scrapes = 0, shrunk = 0;
  std::thread scraper([&] {
    auto before = counters(prefetcher);
    for (; !done; ++scrapes) {
      auto now = counters(prefetcher);
      for (const auto& [name, value] : before) shrunk += now.at(name) < value ? 1 : 0;
      before = std::move(now);
    }
  });
  for (int epoch = 0; epoch < 20; ++epoch) {
    while (prefetcher.next(stream)) {
    }
    prefetcher.restore(start);
  }
  done = true;
  scraper.join();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(scrapes > 0);
  CHECK(shrunk == 0);
}
