// SPDX-License-Identifier: Apache-2.0

// Order, on a GPU: a kernel holds a stream closed, and what must wait for it waits. And much
// traffic: a hundred thousand batches, many streams, pipelines side by side, each value checked by
// a kernel.

#include <penstock/pinned_pool.hpp>
#include <penstock/prefetcher.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "check_batch.cuh"
#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/numbers.hpp"

using namespace std::chrono_literals;
using penstock::PinnedBlock;
using penstock::PinnedPool;
using penstock::Prefetcher;
using penstock::Sampler;
using penstock::test::check_batch;
using penstock::test::DeviceMemory;
using penstock::test::eventually;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::PinnedMemory;
using penstock::test::serial_sample_numbers;
using penstock::test::TestStream;
using penstock::test::write_numbers;

namespace {

/// Spins until `*open`, or for ten seconds of the device's clock; then `*gave_up` is set.
__global__ void spin_until(const volatile int* open, int* gave_up) {
  unsigned long long start = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    if (*open != 0) return;
    __nanosleep(500);
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < 10'000'000'000ull);
  *gave_up = 1;
}

/// A gate that is a kernel: other streams' copies, fills, kernels and host functions go on.
class KernelGate {
 public:
  explicit KernelGate(cudaStream_t stream) : flags_(2, 0, cudaHostAllocMapped) {
    spin_until<<<1, 1, 0, stream>>>(&flags_[0], &flags_[1]);
    REQUIRE_CUDA(cudaGetLastError());
  }
  void open() { static_cast<volatile int&>(flags_[0]) = 1; }
  bool gave_up() const { return static_cast<volatile int&>(flags_[1]) != 0; }

 private:
  PinnedMemory<int> flags_;
};

/// A thousand copies to the device, in a stream of their own: one that was issued before, and is
/// held back by nothing, is done long before these are. To be made before a gate is, since
/// allocations may wait for kernels.
class CopiesBeside {
 public:
  void run() {
    for (int i = 0; i < 1000; ++i)
      REQUIRE_CUDA(
          cudaMemcpyAsync(device_.data(), host_.data(), kBytes, cudaMemcpyHostToDevice, stream_));
    REQUIRE_CUDA(cudaStreamSynchronize(stream_));
  }

 private:
  static constexpr std::size_t kBytes = 1 << 20;
  PinnedMemory<unsigned char> host_{kBytes};
  DeviceMemory<unsigned char> device_{kBytes};
  TestStream stream_;
};

/// What check_batch found.
struct Findings {
  DeviceMemory<std::uint64_t> sum{1};
  DeviceMemory<unsigned> torn{1};
  void check(const Numbers& batch, cudaStream_t stream) {
    check_batch<<<4, 128, 0, stream>>>(batch, sum.data(), torn.data());
    REQUIRE_CUDA(cudaGetLastError());
  }
};

std::uint64_t serial_sum(const Sampler& sampler, std::uint64_t epochs) {
  std::uint64_t sum = 0;
  for (const std::uint64_t sample : serial_sample_numbers(sampler, epochs)) sum += sample + 1;
  return sum;
}

}  // namespace

TEST_CASE("a slot is not overwritten while a kernel may still read it", "[gpu][order]") {
  const Sampler sampler{{.samples = 256, .batch_size = 64, .shuffle = true, .seed = 2}};
  TestStream stream;
  Findings findings;
  Prefetcher<Numbers> prefetcher(numbers_layout(64), sampler, write_numbers,
                                 {.workers = 1, .host_depth = 3, .device_depth = 1});
  auto first = prefetcher.next(stream);
  REQUIRE(first);
  CopiesBeside others;
  KernelGate gate(stream);
  findings.check(*first, stream);  // Stands behind the gate, and reads the slot when that opens.
  first.release();
  // The next copy into the only slot is issued, and has to wait.
  REQUIRE(eventually([&] { return prefetcher.stats().copy.batches == 2; }));
  others.run();
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  gate.open();
  while (const auto batch = prefetcher.next(stream)) findings.check(*batch, stream);
  CHECK(findings.sum.read().front() == serial_sum(sampler, 1));
  CHECK(findings.torn.read().front() == 0);
  CHECK_FALSE(gate.gave_up());
}

TEST_CASE("a pinned block is not handed out while a copy may still read it", "[gpu][order]") {
  constexpr std::size_t kBytes = 1 << 20;
  PinnedPool pool{{.max_bytes = kBytes, .timeout = 20s}};
  TestStream stream;
  DeviceMemory<unsigned char> device(kBytes);
  PinnedBlock block = pool.acquire(kBytes);
  std::memset(block.data(), 1, kBytes);
  CopiesBeside others;
  KernelGate gate(stream);
  REQUIRE_CUDA(
      cudaMemcpyAsync(device.data(), block.data(), kBytes, cudaMemcpyHostToDevice, stream));
  block.release_after(stream);
  CHECK_FALSE(pool.try_acquire(kBytes));
  std::optional<std::chrono::steady_clock::time_point> got;
  std::atomic<bool> asks{false};
  std::thread writer([&] {
    asks = true;
    const PinnedBlock again = pool.acquire(kBytes);
    got = std::chrono::steady_clock::now();
    std::memset(again.data(), 2, kBytes);
  });
  const bool asked = eventually([&] { return asks.load(); });
  others.run();
  const auto opened = std::chrono::steady_clock::now();
  gate.open();
  writer.join();
  CHECK(asked);
  CHECK(*got >= opened);
  std::size_t overwritten = 0;
  for (const unsigned char value : device.read()) overwritten += value != 1;
  CHECK(overwritten == 0);
  CHECK_FALSE(gate.gave_up());
}

TEST_CASE("workers do not fill a block whose copy waits for a slot", "[gpu][order]") {
  const Sampler sampler{{.samples = 64, .batch_size = 8}};
  TestStream stream;
  Findings findings;
  // One block, one slot: while the second copy waits for the gate, no third batch can be filled.
  Prefetcher<Numbers> prefetcher(numbers_layout(8), sampler, write_numbers,
                                 {.workers = 1, .host_depth = 1, .device_depth = 1});
  auto first = prefetcher.next(stream);
  KernelGate gate(stream);
  findings.check(*first, stream);
  first.release();
  REQUIRE(eventually([&] { return prefetcher.stats().copy.batches == 2; }));
  const auto waited = [&] { return prefetcher.stats().source.waiting_for_room; };
  // The worker has come to its wait: handing a batch on takes it microseconds.
  REQUIRE(eventually([&, before = waited()] { return waited() > before + 5ms; }));
  CHECK(prefetcher.stats().source.batches == 2);
  gate.open();
  while (const auto batch = prefetcher.next(stream)) findings.check(*batch, stream);
  CHECK(findings.sum.read().front() == serial_sum(sampler, 1));
  CHECK(findings.torn.read().front() == 0);
  CHECK_FALSE(gate.gave_up());
}

TEST_CASE("a hundred thousand batches arrive whole, each once", "[gpu][traffic]") {
  const Sampler sampler{{.samples = 1'600'003, .batch_size = 16, .shuffle = true, .seed = 8}};
  REQUIRE(sampler.batches() > 100'000);
  TestStream stream;
  Findings findings;
  Prefetcher<Numbers> prefetcher(numbers_layout(16), sampler, write_numbers,
                                 {.workers = 4, .device_depth = 4});
  std::uint64_t batches = 0;
  while (const auto batch = prefetcher.next(stream)) findings.check(*batch, stream), ++batches;
  CHECK(batches == sampler.batches());
  CHECK(findings.sum.read().front() == serial_sum(sampler, 1));
  CHECK(findings.torn.read().front() == 0);
}

TEST_CASE("many streams take turns, two to a batch", "[gpu][traffic]") {
  constexpr std::size_t kStreams = 24;
  const Sampler sampler{{.samples = 40'000, .batch_size = 8, .shuffle = true, .seed = 4}};
  std::vector<penstock::Stream> streams(kStreams);
  Findings findings;
  Prefetcher<Numbers> prefetcher(numbers_layout(8), sampler, write_numbers,
                                 {.workers = 3, .device_depth = 6});
  for (std::size_t i = 0;; ++i) {
    const cudaStream_t stream = streams[i % kStreams].get();
    const cudaStream_t other = streams[(i * 7 + 1) % kStreams].get();
    auto batch = prefetcher.next(stream);
    if (!batch) break;
    batch.also_used_on(other);
    findings.check(*batch, stream);
    findings.check(*batch, other);
  }
  CHECK(findings.sum.read().front() == 2 * serial_sum(sampler, 1));
  CHECK(findings.torn.read().front() == 0);
}

TEST_CASE("two pipelines on one device, each on a thread of its own", "[gpu][traffic]") {
  const Sampler sampler{{.samples = 100'000, .batch_size = 32, .shuffle = true, .seed = 6}};
  Findings findings[2];
  std::vector<std::thread> threads;
  for (Findings& mine : findings)
    threads.emplace_back([&] {
      const penstock::Stream stream;
      Prefetcher<Numbers> prefetcher(numbers_layout(32), sampler, write_numbers, {.workers = 2});
      while (const auto batch = prefetcher.next(stream.get()))
        check_batch<<<4, 128, 0, stream.get()>>>(*batch, mine.sum.data(), mine.torn.data());
      cudaStreamSynchronize(stream.get());
    });
  for (std::thread& thread : threads) thread.join();
  REQUIRE_CUDA(cudaGetLastError());
  for (const Findings& mine : findings) {
    CHECK(mine.sum.read().front() == serial_sum(sampler, 1));
    CHECK(mine.torn.read().front() == 0);
  }
}

TEST_CASE("a step is captured and replayed beside a running pipeline", "[gpu][traffic]") {
  const cudaStreamCaptureMode mode =
      GENERATE(cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal);
  const Sampler sampler{{.samples = 64'000, .batch_size = 32, .shuffle = true, .seed = 6}};
  TestStream stream, captured;
  Findings findings;
  DeviceMemory<unsigned> counter(1);
  Prefetcher<Numbers> prefetcher(numbers_layout(32), sampler, write_numbers, {.workers = 3});
  unsigned replays = 0;
  for (std::uint64_t i = 0;; ++i) {
    auto batch = prefetcher.next(stream);
    if (!batch) break;
    findings.check(*batch, stream);
    if (i % 200 != 0) continue;
    const std::uint64_t copies = prefetcher.stats().copy.batches;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    REQUIRE_CUDA(cudaStreamBeginCapture(captured, mode));
    REQUIRE_CUDA(cudaMemsetAsync(counter.data(), 0xFF, sizeof(unsigned), captured));
    batch.release();  // A slot is free: the pipeline goes on in the middle of the capture.
    CHECK(eventually([&] { return prefetcher.stats().copy.batches > copies; }));
    REQUIRE_CUDA(cudaStreamEndCapture(captured, &graph));
    REQUIRE_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    REQUIRE_CUDA(cudaGraphLaunch(exec, captured));
    REQUIRE_CUDA(cudaStreamSynchronize(captured));
    REQUIRE_CUDA(cudaGraphExecDestroy(exec));
    REQUIRE_CUDA(cudaGraphDestroy(graph));
    ++replays;
  }
  CHECK(replays == 10);
  CHECK(counter.read().front() == 0xFFFFFFFFu);
  CHECK(findings.sum.read().front() == serial_sum(sampler, 1));
  CHECK(findings.torn.read().front() == 0);
}
