// SPDX-License-Identifier: Apache-2.0

// Sources that write device memory themselves.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <penstock/batch_producer.hpp>
#include <penstock/emulation.hpp>
#include <penstock/launch.hpp>
#include <penstock/prefetcher.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"
#include "support/thrown.hpp"

namespace penstock::test {
namespace {

using namespace std::chrono_literals;

/// A device source that waits until it may go, and then sets each byte of the batch.
struct SetBytes {
  const std::atomic<bool>* go;

  void operator()(const Ticket&, Numbers& batch, cudaStream_t on) const {
    while (!*go) std::this_thread::yield();
    cudaMemsetAsync(batch.sample.data_handle(), 1, batch.sample.size() * 8, on);
    cudaMemsetAsync(batch.payload.data_handle(), 1, batch.payload.size() * 4, on);
  }
};

/// A device source: page-locked staging of the worker's own, a copy of part of the batch, and a
/// kernel for the rest, on the worker's stream.
class DeviceNumbers {
 public:
  void operator()(const Ticket& ticket, Numbers& batch, cudaStream_t stream) {
    copied_.synchronize();  // of the batch before: staging is free
    for (std::size_t i = 0; i < ticket.samples.size(); ++i) staging_[i] = ticket.samples[i];
    check(cudaMemcpyAsync(batch.sample.data_handle(), &staging_[0],
                          ticket.samples.size() * sizeof(std::uint64_t), cudaMemcpyHostToDevice,
                          stream));
    copied_.record(stream);
    for_each(stream, batch.payload.extent(0), [batch](std::int64_t row) {
      for (std::int64_t j = 0; j < kPayload; ++j)
        batch.payload(row, j) = payload_of(batch.sample(row), j);
    });
    batch.seed = ticket.seed;
  }

 private:
  static void check(cudaError_t status) {
    if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorName(status));
  }

  struct Free {
    void operator()(std::uint64_t* memory) const noexcept { cudaFreeHost(memory); }
  };
  // Not PinnedMemory, whose assertions are for the test's own thread.
  static std::unique_ptr<std::uint64_t[], Free> make_staging() {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, 64 * sizeof(std::uint64_t), cudaHostAllocDefault));
    return std::unique_ptr<std::uint64_t[], Free>(static_cast<std::uint64_t*>(memory));
  }

  std::unique_ptr<std::uint64_t[], Free> staging_ = make_staging();
  Event copied_;
};

auto device_numbers() {
  return on_device(per_worker([] { return DeviceNumbers(); }));
}

struct DeviceDelivery {
  std::vector<std::uint64_t> samples;
  std::vector<std::uint64_t> errors;  // batches
};

DeviceDelivery deliver_from_device(Prefetcher<Numbers>& prefetcher, std::int64_t batch_size,
                                   std::size_t batches) {
  DeviceDelivery delivered;
  TestStream stream;
  NumbersSink sink(batch_size, batches);
  while (true) try {
      auto batch = prefetcher.next(stream);
      if (!batch) break;
      sink.take(batch, stream);
      CHECK(batch->seed == batch.ticket().seed);
    } catch (const SourceError& error) {
      delivered.errors.push_back(error.batch());
    }
  sink.wait(stream);
  delivered.samples = sink.all_sample_numbers();
  return delivered;
}

TEST_CASE("on_device: the same batches for any number of workers and slots", "[on_device]") {
  const int workers = GENERATE(1, 2, 4);
  const std::size_t depth = GENERATE(1u, 2u, 5u);
  const Sampler sampler = shuffled(50, 8);
  Prefetcher<Numbers> prefetcher(numbers_layout(8), sampler, device_numbers(),
                                 {.workers = workers, .device_depth = depth, .epochs = 2});
  CHECK(deliver_from_device(prefetcher, 8, 14).samples == serial_sample_numbers(sampler, 2));
  const Stats stats = prefetcher.stats();
  CHECK(stats.copy.bytes == 0);
  CHECK(stats.host_bytes == 0);
  CHECK(stats.source.batches == 14);
}

TEST_CASE("on_device: a worker that blocks in its source holds up no other", "[on_device]") {
  std::atomic<bool> go{false};
  std::atomic<int> others{0};
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(32, 4), on_device(per_worker([&] {
                                   return [&, numbers = DeviceNumbers()](
                                              const Ticket& ticket, Numbers& batch,
                                              cudaStream_t stream) mutable {
                                     if (ticket.batch == 0)
                                       while (!go) std::this_thread::yield();
                                     else if (++others == 3)
                                       go = true;
                                     numbers(ticket, batch, stream);
                                   };
                                 })),
                                 {.workers = 2, .device_depth = 4});
  CHECK(deliver_from_device(prefetcher, 4, 8).samples ==
        serial_sample_numbers(sequential(32, 4), 1));
}

TEST_CASE("on_device: the workers' streams have the priority that is asked for", "[on_device]") {
  int least = 0, most = 0;
  REQUIRE_CUDA(cudaDeviceGetStreamPriorityRange(&least, &most));
  REQUIRE(most < least);
  const auto [asked, expected] =
      GENERATE_COPY(std::pair(least, least), std::pair(most, most),
                    std::pair(std::numeric_limits<int>::min(), most), std::pair(1000, least));
  std::atomic<int> seen{12345};
  auto source = per_worker([&] {
    return [&, numbers = DeviceNumbers()](const Ticket& ticket, Numbers& batch,
                                          cudaStream_t stream) mutable {
      int priority = 0;
      if (cudaStreamGetPriority(stream, &priority) == cudaSuccess) seen = priority;
      numbers(ticket, batch, stream);
    };
  });
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(16, 4), on_device(std::move(source)),
                                 {.workers = 1, .copy_priority = asked});
  CHECK(deliver_from_device(prefetcher, 4, 4).samples ==
        serial_sample_numbers(sequential(16, 4), 1));
  CHECK(seen == expected);
}

TEST_CASE("on_device: a failure comes in its batch's place, and the others go on", "[on_device]") {
  const int kind = GENERATE(0, 1);
  const std::size_t depth = GENERATE(1u, 3u);
  Prefetcher<Numbers> prefetcher(
      numbers_layout(4), sequential(32, 4), on_device(per_worker([kind] {
        return [kind, numbers = DeviceNumbers()](const Ticket& ticket, Numbers& batch,
                                                 cudaStream_t stream) mutable {
          numbers(ticket, batch, stream);
          if (ticket.batch % 3 != 1) return;
          if (kind == 0) throw std::runtime_error("bad stream");
          // A call that fails, and that nobody checks.
          static_cast<void>(cudaMemcpyAsync(nullptr, nullptr, 1, cudaMemcpyHostToDevice, stream));
        };
      })),
      {.workers = 2, .device_depth = depth});
  const DeviceDelivery delivered = deliver_from_device(prefetcher, 4, 8);
  CHECK(delivered.errors == std::vector<std::uint64_t>{1, 4, 7});
  CHECK(delivered.samples.size() == 5 * 4);
}

TEST_CASE("on_device: skip and replace are by the batch", "[on_device]") {
  const bool replaces = GENERATE(false, true);
  const auto run = [&](int workers) {
    Prefetcher<Numbers> prefetcher(
        numbers_layout(4), sequential(32, 4), on_device(per_worker([] {
          return [numbers = DeviceNumbers()](const Ticket& ticket, Numbers& batch,
                                             cudaStream_t stream) mutable {
            if (ticket.samples[0] == 8 || ticket.samples[0] == 20)
              throw std::runtime_error("bad stream");
            numbers(ticket, batch, stream);
          };
        })),
        {.workers = workers,
         .device_depth = 2,
         .on_failure = replaces ? FailurePolicy::replace() : FailurePolicy::skip()});
    const DeviceDelivery delivered = deliver_from_device(prefetcher, 4, 8);
    CHECK(delivered.errors.empty());
    CHECK(prefetcher.stats().skipped + prefetcher.stats().replaced == 2);
    return delivered.samples;
  };
  const auto samples = run(1);
  CHECK(samples.size() == (replaces ? 32 : 24));
  CHECK(run(3) == samples);
}

TEST_CASE("on_device: what CUDA fails to mark is no failure of the source, whatever the policy",
          "[on_device]") {
  std::atomic<bool> go{false};
  const auto source = on_device(SetBytes{&go});
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(8, 4), source,
                                 {.workers = 1, .on_failure = FailurePolicy::skip()});
  TestStream stream;
  const std::uint64_t before = emulation::calls("cudaEventRecord");
  emulation::fail_call("cudaEventRecord", cudaErrorInvalidResourceHandle);
  go = true;
  while (emulation::calls("cudaEventRecord") == before) std::this_thread::yield();  // the worker's
  CHECK_THROWS_AS(prefetcher.next(stream), CudaError);
  CHECK(prefetcher.next(stream).ticket().batch == 1);
  CHECK(prefetcher.stats().skipped == 0);
}

TEST_CASE("on_device: a batch whose time cannot be taken is an error, and the next one comes",
          "[on_device]") {
  std::atomic<bool> go{false};
  const auto source = on_device(SetBytes{&go});
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(12, 4), source,
                                 {.workers = 1, .device_depth = 4, .device_times = true});
  TestStream stream;
  // The worker records the end of the first batch, which is not timed, and then the beginning of
  // the second.
  constexpr std::uint64_t kBeginOfSecond = 2;
  emulation::fail_call("cudaEventRecord", cudaErrorInvalidResourceHandle, kBeginOfSecond);
  go = true;
  CHECK(eventually([&] { return prefetcher.stats().source.batches == 2; }));
  CHECK(prefetcher.next(stream).ticket().batch == 0);
  CHECK_THROWS_AS(prefetcher.next(stream), CudaError);
  CHECK(prefetcher.next(stream).ticket().batch == 2);
  emulation::clear_failures();
}

TEST_CASE("on_device: false ends the data", "[on_device]") {
  Prefetcher<Numbers> prefetcher(numbers_layout(4), Unbounded(4), on_device(per_worker([] {
                                   return [numbers = DeviceNumbers()](const Ticket& ticket,
                                                                      Numbers& batch,
                                                                      cudaStream_t stream) mutable {
                                     if (ticket.batch == 5) return false;
                                     numbers(ticket, batch, stream);
                                     return true;
                                   };
                                 })),
                                 {.workers = 3});
  CHECK(deliver_from_device(prefetcher, 4, 5).samples ==
        serial_sample_numbers(sequential(20, 4), 1));
  CHECK(prefetcher.stats().workers == 1);
}

TEST_CASE("on_device: leases and pipeline end in any order, sources under way", "[on_device]") {
  const int taken = GENERATE(0, 1, 3);
  TestStream stream;
  std::vector<Lease<Numbers>> leases;
  {
    Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(400, 4), device_numbers(),
                                   {.workers = 3, .device_depth = 4});
    for (int i = 0; i < taken; ++i) leases.push_back(prefetcher.next(stream));
    State state = prefetcher.state();
    state.batch += 7;
    prefetcher.restore(state);
    CHECK(prefetcher.next(stream).ticket().batch == state.batch);
  }
}

TEST_CASE("on_device: no transform behind it, and no BatchProducer", "[on_device]") {
  const auto source = on_device([](const Ticket&, Numbers&, cudaStream_t) {});
  const DeviceTransform<Numbers, Numbers> transform(
      numbers_layout(4), [](const Ticket&, const Numbers&, Numbers&, cudaStream_t) {});
  CHECK_THROWS_WITH(
      (Prefetcher<Numbers, Numbers>(numbers_layout(4), sequential(8, 4), source, transform)),
      Mentions("DeviceTransform"));
  PinnedPool pool;
  CHECK_THROWS_WITH((BatchProducer<Numbers>(numbers_layout(4), sequential(8, 4), source, pool)),
                    Mentions("Prefetcher"));
}

TEST_CASE("on_device: a stall names the stage", "[on_device]") {
  std::atomic<bool> go{false};
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(8, 4),
                                 on_device([&](const Ticket&, Numbers&, cudaStream_t) {
                                   while (!go) std::this_thread::yield();
                                 }),
                                 {.workers = 1, .stall_timeout = 50ms});
  TestStream stream;
  try {
    prefetcher.next(stream);
    FAIL("no stall");
  } catch (const StallError& error) {
    CHECK(error.stage() == "device source");
  }
  go = true;
}

// ---- Streams of data
// -----------------------------------------------------------------------------

TEST_CASE("Unbounded: records of a stream come in its order, whatever the number of workers",
          "[any_sampler]") {
  std::atomic<std::uint64_t> next{0};
  Prefetcher<Numbers> prefetcher(numbers_layout(4), Unbounded(4),
                                 [&](const Ticket&, Numbers& batch) {
                                   if (next >= 200) return false;
                                   for (std::int64_t row = 0; row < 4; ++row) {
                                     batch.sample(row) = next++;
                                     for (std::int64_t j = 0; j < kPayload; ++j)
                                       batch.payload(row, j) = payload_of(batch.sample(row), j);
                                   }
                                   std::this_thread::yield();
                                   return true;
                                 },
                                 {.workers = 3});
  TestStream stream;
  NumbersSink sink(4, 50);
  while (auto batch = prefetcher.next(stream)) sink.take(batch, stream);
  sink.wait(stream);
  CHECK(sink.all_sample_numbers() == serial_sample_numbers(sequential(200, 4), 1));
}

}  // namespace
}  // namespace penstock::test
