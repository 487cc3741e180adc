// SPDX-License-Identifier: Apache-2.0

// Where the threads and the memory of pipelines really are, on a machine that is told to have two
// NUMA nodes. Runs emulated, and on a GPU.

#include <penstock/placement.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/readback.hpp>

#include <algorithm>
#include <cstddef>
#include <latch>
#include <memory>
#include <mutex>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/made_machine.hpp"
#include "support/memory.hpp"
#include "support/numbers.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using namespace test;
using detail::Cpus;
using detail::to_text;

/// Where the threads of a pipeline ran. Each worker fills one batch before any fills a second.
class SeenCpus {
 public:
  explicit SeenCpus(int workers) : all_(workers) {}

  void see() {
    {
      const std::lock_guard lock(mutex_);
      seen_.push_back(own_cpus());
    }
    all_.arrive_and_wait();
  }
  std::vector<Cpus> sorted() {
    std::sort(seen_.begin(), seen_.end());
    return seen_;
  }

 private:
  std::mutex mutex_;
  std::vector<Cpus> seen_;
  std::latch all_;
};

/// cudaHostAlloc on whatever CPUs the thread may use.
struct SeeingMemory {
  void* allocate(std::size_t bytes, std::size_t) {
    *seen = own_cpus();
    void* memory = nullptr;
    detail::check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc");
    return memory;
  }
  void deallocate(void* memory, std::size_t, std::size_t) noexcept { cudaFreeHost(memory); }
  bool operator==(const SeeingMemory&) const = default;

  Cpus* seen;
};

std::vector<Cpus> cpus_of_workers(PrefetcherOptions options) {
  const TestStream stream;
  const auto seen = std::make_shared<SeenCpus>(options.workers);
  Prefetcher<Numbers> prefetcher(
      numbers_layout(1), sequential(static_cast<std::uint64_t>(options.workers), 1),
      [seen](const Ticket&, Numbers&) { seen->see(); }, options);
  while (prefetcher.next(stream)) {
  }
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  return seen->sorted();
}

TEST_CASE("workers run on the near cores, and so many more as there are workers on any",
          "[placement]") {
  const SplitMachine machine;
  if (!machine.is_split()) return;
  const int near = static_cast<int>(machine.near().size());
  PrefetcherOptions options{.workers = near, .placement = machine.automatic()};
  const auto count = static_cast<std::size_t>(near);
  CHECK(cpus_of_workers(options) == std::vector<Cpus>(count, machine.near()));
  options.workers = near + 2;
  std::vector<Cpus> all(2, machine.own());
  all.insert(all.end(), count, machine.near());
  CHECK(cpus_of_workers(options) == all);
  options.placement = Placement::off();
  CHECK(cpus_of_workers(options) == std::vector<Cpus>(count + 2, machine.own()));
  options.placement = Placement::cores({machine.own().front()});
  CHECK(cpus_of_workers(options) == std::vector<Cpus>(count + 2, Cpus{machine.own().front()}));
}

TEST_CASE("memory is allocated on the near cores, and the thread is as it was", "[placement]") {
  const SplitMachine machine;
  if (!machine.is_split()) return;
  Cpus seen;
  {
    SeeingMemory memory{&seen};
    PrefetcherOptions options{.workers = 1, .placement = machine.automatic()};
    options.host_memory = Upstream(&memory);
    const Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(8, 4), write_numbers,
                                         options);
    CHECK(seen == machine.near());
    CHECK(own_cpus() == machine.own());
  }
}

TEST_CASE("workers are bound after a restore too, and with an on_device source", "[placement]") {
  const SplitMachine machine;
  if (!machine.is_split()) return;
  const TestStream stream;
  std::vector<Cpus> seen;  // by one worker after the other
  {
    const auto see = [&](const Ticket&, Numbers&, cudaStream_t) { seen.push_back(own_cpus()); };
    Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(4, 4), on_device(see),
                                   {.workers = 1, .placement = machine.automatic()});
    const State start = prefetcher.state();
    CHECK(prefetcher.next(stream));
    prefetcher.restore(start);
    CHECK(prefetcher.next(stream));
  }
  CHECK(seen == std::vector<Cpus>(2, machine.near()));
}

TEST_CASE("a Readback calls back on the near cores", "[placement]") {
  const SplitMachine machine;
  if (!machine.is_split()) return;
  const TestStream stream;
  const DeviceMemory<int> value(1);
  const auto cpus = [&](const Placement& placement) {
    Cpus seen;
    Readback<int> values(1, placement);
    Readback<int[]> arrays(1, 1, placement);
    values.push(value.data(), stream, [&](int) { seen = own_cpus(); });
    values.drain();
    Cpus of_arrays;
    arrays.push(value.data(), 1, stream, [&](std::span<const int>) { of_arrays = own_cpus(); });
    arrays.drain();
    CHECK(of_arrays == seen);
    return seen;
  };
  CHECK(cpus(machine.automatic()) == machine.near());
  CHECK(cpus(Placement::off()) == machine.own());
  CHECK(own_cpus() == machine.own());
}

TEST_CASE("the report says what was chosen, and outlives its pipeline", "[placement]") {
  const SplitMachine machine;
  if (!machine.is_split()) return;
  const auto report = [](const Placement& placement) {
    return Prefetcher<Numbers>(numbers_layout(4), sequential(8, 4), write_numbers,
                               {.workers = 1, .placement = placement})
        .stats();
  };
  const Stats stats = report(machine.automatic());
  REQUIRE(stats.placement != nullptr);
  CHECK(*stats.placement ==
        "cores " + to_text(machine.near()) + " of NUMA node 1, beside device " + machine.device());
  std::ostringstream text;
  text << stats.since(stats);
  CHECK_THAT(text.str(), Mentions("\nplacement: " + *stats.placement + "\nbottleneck: "));
  CHECK(report(Placement::off()).placement == nullptr);
}

TEST_CASE("cores that a thread may not use are refused at construction", "[placement]") {
  const Placement placement = Placement::cores({own_cpus().back() + 1});
  CHECK_THROWS_AS(Prefetcher<Numbers>(numbers_layout(4), sequential(8, 4), write_numbers,
                                      {.workers = 1, .placement = placement}),
                  std::invalid_argument);
  CHECK_THROWS_AS(Readback<int>(1, placement), std::invalid_argument);
}

}  // namespace
}  // namespace penstock
