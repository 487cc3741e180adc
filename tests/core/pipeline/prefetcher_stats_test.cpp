// SPDX-License-Identifier: Apache-2.0

// What a prefetcher's stats() tell of its stages. Runs emulated, and on a GPU.

#include <penstock/batch_producer.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/record_file.hpp>
#include <penstock/stats_export.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
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
#include "support/temporary_directory.hpp"

using namespace std::chrono_literals;
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

/// Copies are timed at most every 100 us.
static void pass_sample_period() {
  std::this_thread::sleep_for(std::chrono::microseconds(200));
}

TEST_CASE("stats tell a copy that waits from one that runs", "[prefetcher]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(40, 4), write_numbers,
                                 {.workers = 1, .device_depth = 2});
  Gate gate;
  {
    auto first = prefetcher.next(stream), second = prefetcher.next(stream);
    REQUIRE_CUDA(cudaStreamSynchronize(stream));  // Their copies are done.
    gate.hold(stream);
    pass_sample_period();  // So that the copy is timed.
    first.release();       // Its slot's next copy waits at the gate.
    REQUIRE(eventually([&] { return prefetcher.stats().copy.batches == 3; }));
    pass_sample_period();
    gate.open();
  }
  REQUIRE_CUDA(cudaDeviceSynchronize());
  // How much of it is for the slot is only known where the device gets to an idle stream's work at
  // once (tests/system/verdict).
  const auto waited = [&] {
    const auto copy = prefetcher.stats().copy;
    return copy.waiting_for_room + copy.waiting_for_input;
  };
  CHECK(eventually([&] { return waited().count() > 0; }));
}

TEST_CASE("stats tell that nothing is being copied", "[prefetcher]") {
  TestStream stream;
  const auto write = [](const penstock::Ticket& ticket, Numbers& batch) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    write_numbers(ticket, batch);
  };
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(32, 4), write, {.workers = 1});
  CHECK(prefetcher.stats().copy.busy.count() == 0);
  CHECK(prefetcher.stats().copy.queued == 0);
  while (auto batch = prefetcher.next(stream)) REQUIRE_CUDA(cudaStreamSynchronize(stream));
  const penstock::Stats stats = prefetcher.stats();
  CHECK(stats.copy.timed == 8);
  CHECK(stats.copy.waiting_for_input.count() > 0);
  CHECK(stats.waits.batches > 0);
  CHECK(stats.waits.waiting.count() > 0);
  CHECK(stats.worker_cpu < stats.source.busy);
  CHECK(stats.setup.batches == 8);
}

TEST_CASE("stats tell memory, batches and bytes", "[prefetcher]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(8), shuffled(20, 8), write_numbers,
                                 {.workers = 2, .host_depth = 3, .device_depth = 2});
  CHECK(prefetcher.stats().first_batch.count() == 0);
  auto first = prefetcher.next(stream);
  const auto first_batch = prefetcher.stats().first_batch;
  CHECK(first_batch.count() > 0);  // Its lease has not ended.
  first.release();
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
  CHECK(stats.host_bytes == 3 * numbers_layout(8).bytes());
  CHECK(stats.device_bytes == 2 * numbers_layout(8).bytes());
  CHECK(stats.first_batch == first_batch);
}

namespace {
struct Mixed {
  penstock::Tensor<float, 1> reals;
  penstock::Tensor<double, 1> long_reals;
  penstock::Tensor<std::uint8_t, 1> bytes;
  penstock::Tensor<std::int16_t, 1> shorts;
  penstock::Tensor<std::int32_t, 1> integers;
};
struct Doubles {
  penstock::Tensor<double, 1> reals;
  penstock::Tensor<std::int64_t, 1> integers;
};
}  // namespace

TEST_CASE("stats tell what the pipeline is made of", "[prefetcher]") {
  const auto layout = penstock::Layout<Mixed>{10}
                          .field(&Mixed::reals, {})
                          .field(&Mixed::long_reals, {})
                          .field(&Mixed::bytes, {})
                          .field(&Mixed::shorts, {})
                          .field(&Mixed::integers, {});
  const Sampler sampler{{.samples = 100, .batch_size = 10}};
  const auto no_batch = [](const penstock::Ticket&, Mixed&) {};
  const penstock::PipelineSetup setup =
      Prefetcher<Mixed>(layout, sampler, no_batch, {.workers = 1}).stats().setup;
  CHECK(setup.batch_bytes == 10 * (4 + 8 + 1 + 2 + 4));
  CHECK(setup.as_uint8_bytes == 10 * (1 + 1 + 1 + 2 + 4));
  CHECK(setup.as_half_integers_bytes == 10 * (4 + 8 + 1 + 2 + 2));
  CHECK_FALSE(setup.doubles);  // Not all of them.
  const auto doubles =
      penstock::Layout<Doubles>{10}.field(&Doubles::reals, {}).field(&Doubles::integers, {});
  const auto none = [](const penstock::Ticket&, Doubles&) {};
  CHECK(Prefetcher<Doubles>(doubles, sampler, none, {.workers = 1}).stats().setup.doubles);
  CHECK(setup.deepens);
  CHECK_FALSE((setup.unbounded || setup.per_sample || setup.transforms));
  const auto no_sample = penstock::per_sample([](const penstock::Sample&, Mixed&) {});
  CHECK(Prefetcher<Mixed>(layout, sampler, no_sample, {.workers = 1}).stats().setup.per_sample);
}

TEST_CASE("stats tell of a second stream that reads batches", "[prefetcher]") {
  TestStream stream, second;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(32, 4), write_numbers, {.workers = 1});
  auto batch = prefetcher.next(stream);
  batch.also_used_on(stream);
  CHECK_FALSE(prefetcher.stats().setup.second_stream);
  batch.also_used_on(second);
  CHECK(prefetcher.stats().setup.second_stream);
}

TEST_CASE("the CPU time of workers that have ended stays", "[prefetcher]") {
  constexpr auto kBatch = std::chrono::milliseconds(2);
  TestStream stream;
  std::atomic<bool> computes{true};
  const auto compute = [&](const penstock::Ticket& ticket, Numbers& batch) {
    const auto end = std::chrono::steady_clock::now() + kBatch;
    while (computes && std::chrono::steady_clock::now() < end) {
    }
    write_numbers(ticket, batch);
  };
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(40, 4), compute, {.workers = 1});
  const auto start = prefetcher.state();
  while (prefetcher.next(stream)) {
  }
  const auto before = prefetcher.stats().worker_cpu;
  computes = false;
  prefetcher.restore(start);  // Its worker ends, and another one begins.
  CHECK(prefetcher.stats().worker_cpu >= before);
}

TEST_CASE("stats count what the workers read, and the verdict names reads of a few bytes",
          "[prefetcher]") {
  const penstock::test::TemporaryDirectory directory;
  const penstock::RecordFile rows{{directory.records("table.bin", 0, 4096, 16)}, 16};
  const bool at_once = GENERATE(false, true);
  const auto read = [&](const penstock::Ticket& ticket, Numbers& batch) {
    std::vector<std::byte> bytes(ticket.samples.size() * 16);
    if (at_once) {
      rows.read_many(ticket.samples, bytes);
    } else {
      for (std::size_t i = 0; i < ticket.samples.size(); ++i)
        rows.read_into(ticket.samples[i], std::span(bytes).subspan(16 * i, 16));
    }
    batch.sample(0) = std::to_integer<std::uint64_t>(bytes[0]);
  };
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(512), shuffled(4096, 512), read,
                                 {.workers = 2, .epochs = 4});
  const auto start = prefetcher.state();
  while (auto batch = prefetcher.next(stream)) REQUIRE_CUDA(cudaStreamSynchronize(stream));
  const penstock::Stats stats = prefetcher.stats();
  prefetcher.restore(start);  // What its workers have read is not lost when they end.
  const penstock::Stats later = prefetcher.stats();
  if (!stats.source_reads || !later.source_reads) return;  // The system does not tell.
  // The runtime may read, too.
  CHECK(stats.source_reads->calls >= (at_once ? 32 : 4 * 4096));
  if (at_once) CHECK(stats.source_reads->calls < 1000);
  CHECK(stats.source_reads->bytes >= 4 * 4096 * 16);
  CHECK(later.source_reads->calls >= stats.source_reads->calls);
  CHECK(to_prometheus(stats).find("penstock_source_reads_total " +
                                  std::to_string(stats.source_reads->calls)) != std::string::npos);
  // Where the source is not the slowest stage, its reads are no matter.
  if (at_once || stats.bottleneck() != penstock::Bottleneck::source)
    CHECK(stats.verdict().sentence.find("reads of") == std::string::npos);
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
  std::uint64_t scrapes = 0;
  std::string shrunk;
  std::thread scraper([&] {
    auto before = counters(prefetcher);
    for (; !done; ++scrapes) {
      auto now = counters(prefetcher);
      for (const auto& [name, value] : before)
        if (now.at(name) < value) shrunk += name + "; ";
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
  CHECK(shrunk == "");
}
