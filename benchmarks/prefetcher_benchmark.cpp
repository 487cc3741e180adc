// SPDX-License-Identifier: Apache-2.0

// What the pipeline itself costs for a batch, when source, copy and consumer do nothing worth
// mentioning: a batch of one byte from next() to the end of its lease. Beside it the CUDA calls
// alone that double buffering by hand needs for the same batch, on one thread, once for each number
// of workers: the ratio is of two runs that follow each other.

#include <array>
#include <cstdint>
#include <limits>
#include <penstock/cuda.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/error.hpp>
#include <penstock/pinned_pool.hpp>
#include <penstock/prefetcher.hpp>
#include <string>

#include "side_by_side.hpp"

namespace {

using namespace penstock;

struct Tiny {
  Tensor<std::uint8_t, 1> value;
};

constexpr int kWarmUp = 100;

void next_and_release(benchmark::State& state, int workers) {
  constexpr std::uint64_t kEpochs = std::numeric_limits<std::uint32_t>::max();
  const Stream stream;
  const auto layout = Layout<Tiny>{1}.field(&Tiny::value, {});
  const Sampler sampler{{.samples = 1'000'000, .batch_size = 1}};
  Prefetcher<Tiny> prefetcher{layout,
                              sampler,
                              [](const Ticket&, Tiny&) {},
                              {.workers = workers, .host_depth = 16, .epochs = kEpochs}};
  for (int i = 0; i < kWarmUp; ++i) prefetcher.next(stream.get()).release();
  for (auto _ : state) {
    const auto batch = prefetcher.next(stream.get());
    benchmark::DoNotOptimize(batch->value.data_handle());
  }
  stream.synchronize();
}

void by_hand(benchmark::State& state) {
  struct Slot {
    DeviceSlot memory;
    Event copied, consumed;
  };
  const Stream stream, copies;
  PinnedPool pool;
  const PinnedBlock host = pool.acquire(1);
  DeviceArena arena(2, 1);
  std::array<Slot, 2> slots;
  for (Slot& slot : slots) slot.memory = arena.acquire(copies.get());
  std::size_t turn = 0;
  const auto batch = [&] {
    Slot& slot = slots[turn];
    turn = 1 - turn;
    slot.consumed.make_wait(copies.get());
    detail::check(
        cudaMemcpyAsync(slot.memory.data(), host.data(), 1, cudaMemcpyHostToDevice, copies.get()),
        "cudaMemcpyAsync");
    slot.copied.record(copies.get());
    slot.copied.make_wait(stream.get());
    slot.consumed.record(stream.get());
  };
  for (int i = 0; i < kWarmUp; ++i) batch();
  stream.synchronize();
  for (auto _ : state) batch();
  stream.synchronize();
}

}  // namespace

int main(int argc, char** argv) {
  for (const int workers : {0, 1, 2}) {
    const std::string name = "empty_batch/" + std::to_string(workers) + " workers/";
    benchmark::RegisterBenchmark((name + "ours").c_str(), next_and_release, workers)->UseRealTime();
    benchmark::RegisterBenchmark((name + "by hand").c_str(), by_hand)->UseRealTime();
  }
  return penstock::benchmarks::run_side_by_side(argc, argv);
}
