// SPDX-License-Identifier: Apache-2.0

// Captures: beside one, everything works and the capture stays valid; on a stream that is being
// captured, what would break is refused at the call, and the rest waits for the end of the capture.

#include <penstock/emulation.hpp>

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/thrown.hpp"
#include "zero_calls.hpp"

namespace penstock::test {
namespace {

constexpr std::array kModes = {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                               cudaStreamCaptureModeRelaxed};
constexpr std::int64_t kBatch = 4;

Prefetcher<Numbers> make_prefetcher(std::int64_t batches, std::size_t device_depth) {
  return {numbers_layout(kBatch),
          sequential(static_cast<std::uint64_t>(batches * kBatch), kBatch),
          write_numbers,
          {.workers = 2, .host_depth = 4, .device_depth = device_depth}};
}

/// Runs `action` while `stream` is captured, by this thread or by another one; the capture must be
/// valid at its end.
template <class Action>
void beside_capture(cudaStream_t stream, cudaStreamCaptureMode mode, bool by_this_thread,
                    Action action) {
  if (by_this_thread) {
    const TestGraph graph = capture(stream, action, mode);
    return;
  }
  const TestGraph graph = capture(
      stream, [&] { std::thread(action).join(); }, mode);
}

}  // namespace

TEST_CASE("a pipeline lives and dies beside a capture, which stays valid", "[streams][capture]") {
  const cudaStreamCaptureMode mode = GENERATE(from_range(kModes));
  const bool by_this_thread = GENERATE(true, false);
  const auto captured_flags = GENERATE(as<unsigned>{}, cudaStreamNonBlocking, cudaStreamDefault);
  const auto consumer_flags = GENERATE(as<unsigned>{}, cudaStreamNonBlocking, cudaStreamDefault);
  INFO("mode " << mode << ", captured by " << (by_this_thread ? "this" : "another") << " thread");
  const TestStream captured(captured_flags), consumer(consumer_flags);
  NumbersSink sink(kBatch, 10);
  beside_capture(captured, mode, by_this_thread, [&] {
    Prefetcher<Numbers> prefetcher = make_prefetcher(10, 2);
    Readback<int> readback(2);
    DeviceArena arena(1, 64);
    DeviceSlot slot = arena.acquire(consumer);
    while (auto batch = prefetcher.next(consumer)) sink.take(batch, consumer);
    static_cast<void>(prefetcher.stats());
    slot.release_after(consumer);
  });
  sink.wait(consumer);
  CHECK(sink.all_sample_numbers() == serial_sample_numbers(sequential(40, 4), 1));
}

TEST_CASE("what is destroyed with work under way beside a capture leaves it valid",
          "[streams][capture]") {
  const cudaStreamCaptureMode mode = GENERATE(from_range(kModes));
  const bool by_this_thread = GENERATE(true, false);
  const TestStream captured, consumer;
  NumbersSink sink(kBatch, 1);
  Gate gate;
  std::optional<PinnedPool> pool(std::in_place);
  PinnedBlock block = pool->acquire(1000);
  std::optional<Prefetcher<Numbers>> prefetcher;
  prefetcher.emplace(numbers_layout(kBatch), sequential(40, kBatch), write_numbers,
                     PrefetcherOptions{.workers = 2});
  std::optional<DeviceArena> arena(std::in_place, 1, std::size_t{64});
  {
    auto batch = prefetcher->next(consumer);
    DeviceSlot slot = arena->acquire(consumer);
    gate.hold(consumer);
    sink.take(batch, consumer);
    block.release_after(consumer);
  }
  beside_capture(captured, mode, by_this_thread, [&] {
    std::thread opener([&] { gate.open(); });
    pool.reset();
    arena.reset();
    prefetcher.reset();
    opener.join();
  });
  sink.wait(consumer);
  CHECK(sink.sample_numbers(0) == std::vector<std::uint64_t>{0, 1, 2, 3});
}

TEST_CASE("a call that fails beside a capture leaves it valid", "[streams][capture]") {
  const cudaStreamCaptureMode mode = GENERATE(from_range(kModes));
  const bool by_this_thread = GENERATE(true, false);
  const TestStream captured, consumer;
  const DeviceMemory<int> value(1);
  beside_capture(captured, mode, by_this_thread, [&] {
    Prefetcher<Numbers> prefetcher = make_prefetcher(10, 1);
    emulation::fail_call("cudaEventRecord", cudaErrorUnknown, 1);
    int errors = 0, batches = 0;
    for (bool more = true; more;) {
      try {
        more = static_cast<bool>(prefetcher.next(consumer));
        batches += more;
        if (batches == 3 && more) emulation::fail_call("cudaEventRecord", cudaErrorUnknown, 1);
      } catch (const CudaError&) {
        ++errors;
      }
    }
    CHECK(errors >= 1);
    emulation::clear_failures();
    Readback<int> readback(1);
    emulation::fail_call("cudaEventRecord", cudaErrorUnknown, 1);
    CHECK_THROWS_AS(readback.push(value.data(), consumer, [](int) {}), CudaError);
    DeviceArena arena(1, 64);
    DeviceSlot slot = arena.acquire(consumer);
    emulation::fail_call("cudaEventRecord", cudaErrorUnknown, 1);
    CHECK_THROWS_AS(slot.release_after(consumer), CudaError);
  });
}

TEST_CASE("a stream that is being captured is refused, and nothing is taken",
          "[streams][capture]") {
  const cudaStreamCaptureMode mode = GENERATE(from_range(kModes));
  const bool per_thread = GENERATE(false, true);
  const auto flags = GENERATE(as<unsigned>{}, cudaStreamNonBlocking, cudaStreamDefault);
  const TestStream created(flags), other;
  const cudaStream_t stream = per_thread ? cudaStreamPerThread : static_cast<cudaStream_t>(created);
  const bool blocking = per_thread || flags == cudaStreamDefault;
  const DeviceMemory<int> value(1);
  Prefetcher<Numbers> prefetcher = make_prefetcher(3, 2);
  DeviceArena arena(2, 64);
  PinnedPool pool;
  Readback<int> readback(1);
  auto lease = prefetcher.next(other);
  DeviceSlot slot = arena.acquire(other);
  PinnedBlock block = pool.acquire(4);
  const auto refused = [](auto&& call, const std::string& name) {
    const std::string text = thrown<std::logic_error>(call);
    CHECK_THAT(text, Mentions(name));
    CHECK_THAT(text, Mentions("captured"));
  };
  const auto all_refused = [&](cudaStream_t on) {
    refused([&] { static_cast<void>(prefetcher.next(on)); }, "Prefetcher::next");
    refused([&] { lease.also_used_on(on); }, "Lease::also_used_on");
    refused([&] { static_cast<void>(arena.acquire(on)); }, "DeviceArena::acquire");
    refused([&] { static_cast<void>(arena.try_acquire(on)); }, "DeviceArena::try_acquire");
    refused([&] { slot.release_after(on); }, "DeviceSlot::release_after");
    refused([&] { block.release_after(on); }, "PinnedBlock::release_after");
    refused([&] { block.copy_to(value.data(), 4, on); }, "PinnedBlock::copy_to");
    refused([&] { readback.push(value.data(), on, [](int) {}); }, "Readback::push");
    CHECK(slot);
    CHECK(block);
  };
  const TestGraph graph = capture(
      stream,
      [&] {
        all_refused(stream);
        // The legacy stream would wait for the captured one.
        if (blocking) all_refused(cudaStreamLegacy);
        CHECK(cudaGetLastError() == cudaSuccess);
      },
      mode);
  CHECK(graph.nodes() == 0);
  lease.release();
  slot.release_after(stream);
  block.release_after(stream);
  for (std::uint64_t batch = 1; batch < 3; ++batch)
    CHECK(prefetcher.next(stream).ticket().batch == batch);
  CHECK_FALSE(prefetcher.next(stream));
}

namespace {

void on_thread(bool other_thread, int device, const std::function<void()>& action) {
  const auto on_device = [&] {
    const DeviceGuard guard(device);
    action();
  };
  if (other_thread)
    std::thread(on_device).join();
  else
    on_device();
}

}  // namespace

TEST_CASE("a lease that ends while its stream is captured: refused, or given back afterwards",
          "[streams][capture]") {
  emulation::Options options = emulation::options();
  options.machine.devices = 2;
  emulation::reset(options);
  const cudaStreamCaptureMode mode = GENERATE(from_range(kModes));
  const bool per_thread = GENERATE(false, true);
  const bool other_thread = GENERATE(false, true);
  const int device = GENERATE(0, 1);
  const bool second = GENERATE(false, true);  // the captured stream is the lease's second
  const TestStream created, other, third;
  const cudaStream_t stream = per_thread ? cudaStreamPerThread : static_cast<cudaStream_t>(created);
  constexpr std::int64_t kBatches = 12;
  NumbersSink sink(kBatch, kBatches);
  Gate gate;
  Prefetcher<Numbers> prefetcher = make_prefetcher(kBatches, 2);
  Lease<Numbers> lease = prefetcher.next(second ? static_cast<cudaStream_t>(other) : stream);
  if (second) lease.also_used_on(stream);
  gate.hold(stream);
  sink.take(lease, stream);  // Reads the slot when the gate opens.
  const TestGraph graph = capture(
      stream,
      [&] {
        on_thread(other_thread, device, [&] {
          CHECK_THAT(thrown<std::logic_error>([&] { lease.release(); }),
                     Mentions("Lease::release"));
          CHECK(lease);
          lease = Lease<Numbers>();
          CHECK_FALSE(lease);
        });
        // The pipeline goes on with the other slot.
        for (std::uint64_t batch = 1; batch < 6; ++batch) {
          auto next = prefetcher.next(third);
          REQUIRE(next);
          CHECK(next.ticket().batch == batch);
          sink.take(next, third);
        }
      },
      mode);
  CHECK(graph.nodes() == 0);
  {
    // Both slots are in use again, and the one that was parked is not written too early.
    auto a = prefetcher.next(third);
    auto b = prefetcher.next(third);
    REQUIRE(a);
    REQUIRE(b);
    CHECK(a.slot() != b.slot());
    gate.open();
    sink.take(a, third);
    sink.take(b, third);
  }
  while (auto next = prefetcher.next(third)) sink.take(next, third);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  sink.wait(third);
  CHECK(sink.all_sample_numbers() ==
        serial_sample_numbers(sequential(kBatches * kBatch, kBatch), 1));
}

TEST_CASE("every slot given up in a capture: next says so at once, and goes on afterwards",
          "[streams][capture]") {
  const int workers = GENERATE(0, 2);
  const TestStream stream, other;
  Prefetcher<Numbers> prefetcher(numbers_layout(kBatch), sequential(16, kBatch), write_numbers,
                                 {.workers = workers, .device_depth = 2});
  {
    auto a = prefetcher.next(stream), b = prefetcher.next(stream);
    const TestGraph graph = capture(stream, [&] {
      a = Lease<Numbers>();
      b = Lease<Numbers>();
      for (int i = 0; i < 2; ++i)
        CHECK_THAT(thrown<std::logic_error>([&] { static_cast<void>(prefetcher.next(other)); }),
                   Mentions("end the capture"));
    });
  }
  CHECK(prefetcher.next(other).ticket().batch == 2);
  CHECK(prefetcher.next(stream).ticket().batch == 3);
  CHECK_FALSE(prefetcher.next(stream));
}

TEST_CASE("a pipeline that is destroyed while its lease's stream is captured",
          "[streams][capture]") {
  const bool lease_goes_first = GENERATE(false, true);
  const TestStream stream;
  std::optional<Prefetcher<Numbers>> prefetcher;
  prefetcher.emplace(numbers_layout(kBatch), sequential(16, kBatch), write_numbers,
                     PrefetcherOptions{.workers = 1});
  auto lease = prefetcher->next(stream);
  const TestGraph graph = capture(stream, [&] {
    if (lease_goes_first) lease = Lease<Numbers>();
    prefetcher.reset();
    lease = Lease<Numbers>();
  });
  CHECK(emulation::live().device_allocations == 0);
}

TEST_CASE("a captured stream is refused whichever device is current, and its capture stays valid",
          "[streams][capture]") {
  const int current = GENERATE(0, 1);
  const TestStream stream, writer;
  DeviceArena arena(1, 64);
  DeviceSlot slot = arena.acquire(writer);
  const TestGraph graph = capture(stream, [&] {
    on_thread(false, current, [&] {
      CHECK_THAT(thrown<std::logic_error>([&] { slot.release_after(stream); }),
                 Mentions("is being captured"));
    });
  });
  slot.release_after(stream);
  CHECK(arena.free_slots() == 1);
}

TEST_CASE("a slot that is dropped while its writer is captured comes back afterwards",
          "[streams][capture]") {
  const bool per_thread = GENERATE(false, true);
  const bool other_thread = GENERATE(false, true);
  const TestStream created, other;
  const cudaStream_t stream = per_thread ? cudaStreamPerThread : static_cast<cudaStream_t>(created);
  const PinnedMemory<unsigned char> read(64);
  Gate gate;
  DeviceArena arena(2, 64);
  DeviceSlot kept = arena.acquire(other), slot = arena.acquire(stream);
  REQUIRE_CUDA(cudaMemsetAsync(slot.data(), 1, 64, stream));
  gate.hold(stream);
  REQUIRE_CUDA(cudaMemcpyAsync(read.data(), slot.data(), 64, cudaMemcpyDeviceToHost, stream));
  const TestGraph graph = capture(stream, [&] {
    on_thread(other_thread, 0, [&] { slot = DeviceSlot(); });
    CHECK(arena.parked_slots() == 1);
    CHECK_FALSE(arena.try_acquire(other));
    kept.release_after(other);
    kept = arena.acquire(other);  // The other one.
  });
  std::optional<DeviceSlot> again = arena.try_acquire(other);
  REQUIRE(again);
  CHECK(arena.parked_slots() == 0);
  REQUIRE_CUDA(cudaMemsetAsync(again->data(), 2, 64, other));
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  REQUIRE_CUDA(cudaStreamSynchronize(other));
  CHECK(read.all(1));
}

TEST_CASE("a slot is kept for the readers whose release was refused, also when it is destroyed",
          "[streams][capture]") {
  const bool captured = GENERATE(true, false);  // else the reader is of another device
  emulation::Options options = emulation::options();
  options.machine.devices = 2;
  emulation::reset(options);
  const TestStream writer, third;
  std::optional<TestStream> reader;
  {
    const DeviceGuard guard(captured ? 0 : 1);
    reader.emplace();
  }
  const PinnedMemory<unsigned char> read(64);
  DeviceArena arena(1, 64);
  std::optional<DeviceSlot> slot = arena.acquire(writer);
  REQUIRE_CUDA(cudaMemsetAsync(slot->data(), 1, 64, writer));
  REQUIRE_CUDA(cudaStreamSynchronize(writer));
  Gate gate;
  gate.hold(*reader);
  REQUIRE_CUDA(cudaMemcpyAsync(read.data(), slot->data(), 64, cudaMemcpyDeviceToHost, *reader));
  if (captured) {
    const TestGraph graph = capture(*reader, [&] {
      CHECK_THROWS_AS(slot->release_after(*reader), std::logic_error);
      slot.reset();
    });
  } else {
    CHECK_THROWS_AS(slot->release_after(*reader), std::invalid_argument);
    // No event of the arena's device can mark a stream of another: the host waits.
    std::thread opener([&] { gate.open(); });
    slot.reset();
    opener.join();
  }
  slot = arena.acquire(third);
  REQUIRE_CUDA(cudaMemsetAsync(slot->data(), 2, 64, third));
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(*reader));
  REQUIRE_CUDA(cudaStreamSynchronize(third));
  CHECK(read.all(1));
}

TEST_CASE("a block that is destroyed after a refused release is not handed out again",
          "[streams][capture]") {
  const TestStream stream;
  PinnedPool pool({.max_bytes = 4096, .timeout = std::chrono::milliseconds(0)});
  PinnedBlock kept = pool.acquire(2048), block = pool.acquire(2048);
  const TestGraph graph = capture(stream, [&] {
    CHECK_THROWS_AS(kept.release_after(stream), std::logic_error);
    CHECK_THROWS_AS(block.release_after(stream), std::logic_error);
    block = PinnedBlock();
    CHECK_FALSE(pool.try_acquire(2048));
  });
  CHECK_THROWS_AS(pool.acquire(2048), PoolExhausted);
  kept.release_after(stream);  // After the capture.
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(pool.acquire(2048));
}

TEST_CASE("a thread that waits for a slot gets it when the capture has ended",
          "[streams][capture]") {
  const TestStream stream, other;
  DeviceArena arena(2, 64);
  DeviceSlot kept = arena.acquire(other);
  std::optional<DeviceSlot> slot = arena.acquire(stream);
  bool got = false;
  std::thread waiter;
  const TestGraph graph = capture(stream, [&] {
    slot.reset();
    waiter = std::thread([&] { got = static_cast<bool>(arena.acquire(other)); });
  });
  waiter.join();
  CHECK(got);
}

/// Whether a thread of this process sleeps: Linux says so.
bool sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  return text.compare(text.rfind(')') + 1, 2, " S") == 0;
}

// The end of a capture wakes nobody: who waits for a slot has to ask from when one is parked.
TEST_CASE("a thread that sleeps until there is a slot asks again and again once one is parked",
          "[streams][capture]") {
  const TestStream stream, other;
  DeviceArena arena(2, 64, {}, std::chrono::milliseconds::max());  // It wakes for no other reason.
  DeviceSlot kept = arena.acquire(other);
  std::optional<DeviceSlot> slot = arena.acquire(stream);
  std::atomic<pid_t> id{0};
  std::thread waiter([&] {
    id = ::gettid();
    arena.acquire(other);
  });
  REQUIRE(eventually([&] { return id != 0 && sleeps(id); }));
  bool asks = false;
  const TestGraph graph = capture(stream, [&] {
    slot.reset();
    const std::uint64_t before = emulation::calls("cudaStreamIsCapturing");
    asks = eventually([&] { return emulation::calls("cudaStreamIsCapturing") >= before + 3; });
  });
  if (!asks) kept.release_after(other);  // It wakes the thread, which would sleep for ever.
  waiter.join();
  CHECK(asks);
}

TEST_CASE("a parked slot whose readers nobody can know is lost, and not parked any more",
          "[streams][capture]") {
  const TestStream stream, other;
  DeviceArena arena(2, 64);
  std::optional<DeviceSlot> slot = arena.acquire(stream);
  const TestGraph graph = capture(stream, [&] { slot.reset(); });
  emulation::fail_call("cudaEventRecord", cudaErrorUnknown);
  emulation::fail_call("cudaStreamSynchronize", cudaErrorUnknown);
  CHECK_THROWS_AS(arena.acquire(other), CudaError);
  CHECK(arena.parked_slots() == 0);
  CHECK(arena.lost_slots() == 1);
  CHECK(arena.acquire(other));
}

TEST_CASE("a parked slot whose release fails is an error of the next call", "[streams][capture]") {
  const TestStream stream, other;
  DeviceArena arena(1, 64);
  std::optional<DeviceSlot> slot = arena.acquire(stream);
  const TestGraph graph = capture(stream, [&] { slot.reset(); });
  emulation::fail_call("cudaEventRecord", cudaErrorUnknown);
  CHECK_THROWS_AS(arena.acquire(other), CudaError);
  CHECK(arena.parked_slots() == 0);
  CHECK(arena.acquire(other));  // The host has waited for the stream.
}

}  // namespace penstock::test
