// SPDX-License-Identifier: Apache-2.0

// Memory is not written before its last user is through: with every kind of stream, whichever
// thread ends the use, whatever device is current there.

#include <penstock/emulation.hpp>

#include <future>
#include <ostream>
#include <stdexcept>
#include <thread>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/thrown.hpp"
#include "zero_calls.hpp"

namespace penstock::test {
namespace {

enum class Kind { blocking, non_blocking, legacy, per_thread, zero, per_thread_zero };
enum class Ending { same_thread, other_thread, after_the_thread };

constexpr const char* kKinds[] = {"a blocking stream",    "a non-blocking stream",
                                  "cudaStreamLegacy",     "cudaStreamPerThread",
                                  "0 in a legacy source", "0 in a per-thread source"};
constexpr const char* kEndings[] = {"by the thread that took it", "by another thread",
                                    "when the thread that took it has ended"};

void need_two_devices() {
  emulation::Options options = emulation::options();
  if (options.machine.devices >= 2) return;
  options.machine.devices = 2;
  emulation::reset(options);
}

/// A stream of a kind, of device 0.
class Consumer {
 public:
  explicit Consumer(Kind kind) : kind_(kind) {}

  Lease<Numbers> next(Prefetcher<Numbers>& prefetcher) const {
    if (kind_ == Kind::zero) return zero_in_legacy_source.next(prefetcher);
    if (kind_ == Kind::per_thread_zero) return zero_in_per_thread_source.next(prefetcher);
    return prefetcher.next(handle());
  }
  /// For the thread that takes.
  cudaStream_t handle() const {
    switch (kind_) {
      case Kind::blocking:
        return blocking_;
      case Kind::non_blocking:
        return non_blocking_;
      case Kind::legacy:
      case Kind::zero:
        return cudaStreamLegacy;
      default:
        return cudaStreamPerThread;
    }
  }

 private:
  Kind kind_;
  TestStream blocking_{cudaStreamDefault}, non_blocking_;
};

/// Runs `take` on a thread of its own, and `end` as `ending` says, with `device` current.
template <class Take, class End>
void take_and_end(Ending ending, int device, Take take, End end) {
  const auto end_on = [&] {
    REQUIRE_CUDA(cudaSetDevice(device));
    end();
  };
  std::promise<void> taken, ended;
  std::thread taker([&] {
    take();
    if (ending == Ending::same_thread) end_on();
    taken.set_value();
    if (ending == Ending::other_thread) ended.get_future().wait();
  });
  taken.get_future().wait();
  if (ending == Ending::after_the_thread) taker.join();
  if (ending != Ending::same_thread) std::thread(end_on).join();
  ended.set_value();
  if (taker.joinable()) taker.join();
}

}  // namespace

TEST_CASE("a leased slot is not written before its consumer is through", "[streams][order]") {
  const Kind kind = GENERATE(Kind::blocking, Kind::non_blocking, Kind::legacy, Kind::per_thread,
                             Kind::zero, Kind::per_thread_zero);
  const Ending ending =
      GENERATE(Ending::same_thread, Ending::other_thread, Ending::after_the_thread);
  const int device = GENERATE(0, 1);
  const bool destroyed = GENERATE(false, true);
  INFO(kKinds[static_cast<int>(kind)] << ", " << (destroyed ? "destroyed " : "released ")
                                      << kEndings[static_cast<int>(ending)] << ", device " << device
                                      << " is current");
  need_two_devices();
  constexpr std::int64_t kPerBatch = 4;
  const Consumer consumer(kind);
  const TestStream third;
  NumbersSink sink(kPerBatch, 2);
  Gate gate;
  Prefetcher<Numbers> prefetcher(numbers_layout(kPerBatch), sequential(8, kPerBatch), write_numbers,
                                 {.workers = 1, .host_depth = 2, .device_depth = 1});
  Lease<Numbers> lease;
  take_and_end(
      ending, device,
      [&] {
        lease = consumer.next(prefetcher);
        gate.hold(consumer.handle());
        sink.take(lease, consumer.handle());
      },
      [&] {
        if (destroyed)
          lease = Lease<Numbers>();
        else
          lease.release();
      });
  Lease<Numbers> next = prefetcher.next(third);  // The same slot: its copy is queued.
  REQUIRE(next);
  gate.open();
  REQUIRE_CUDA(cudaDeviceSynchronize());
  sink.wait(third);
  CHECK(sink.sample_numbers(0) == std::vector<std::uint64_t>{0, 1, 2, 3});
  sink.take(next, third);
  sink.wait(third);
  CHECK(sink.sample_numbers(1) == std::vector<std::uint64_t>{4, 5, 6, 7});
}

TEST_CASE("a dropped slot is not written before its writer is through", "[streams][order]") {
  const Kind kind = GENERATE(Kind::blocking, Kind::non_blocking, Kind::legacy, Kind::per_thread);
  const Ending ending =
      GENERATE(Ending::same_thread, Ending::other_thread, Ending::after_the_thread);
  const int device = GENERATE(0, 1);
  const bool for_nobody = GENERATE(false, true);
  INFO(kKinds[static_cast<int>(kind)] << ", " << kEndings[static_cast<int>(ending)] << ", device "
                                      << device << " is current");
  need_two_devices();
  const Consumer writer(kind);
  const TestStream third;
  const PinnedMemory<unsigned char> read(64);
  Gate gate;
  DeviceArena arena(1, 64);
  DeviceSlot slot;
  take_and_end(
      ending, device,
      [&] {
        slot = arena.acquire(writer.handle());
        REQUIRE_CUDA(cudaMemsetAsync(slot.data(), 1, 64, writer.handle()));
        gate.hold(writer.handle());
        REQUIRE_CUDA(
            cudaMemcpyAsync(read.data(), slot.data(), 64, cudaMemcpyDeviceToHost, writer.handle()));
      },
      [&] {
        if (for_nobody)
          slot.release_after(std::span<const cudaStream_t>());
        else
          slot = DeviceSlot();
      });
  slot = arena.acquire(third);
  REQUIRE_CUDA(cudaMemsetAsync(slot.data(), 2, 64, third));
  gate.open();
  REQUIRE_CUDA(cudaDeviceSynchronize());
  CHECK(read.all(1));
}

TEST_CASE("a stream of another device is refused, by name, and nothing is taken",
          "[streams][order]") {
  need_two_devices();
  const TestStream right;
  REQUIRE_CUDA(cudaSetDevice(1));
  const TestStream wrong;
  REQUIRE_CUDA(cudaSetDevice(0));
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(8, 4), write_numbers,
                                 {.workers = 1, .device_depth = 1});
  DeviceArena arena(1, 64);
  Readback<int> readback(1);
  const auto refused = [](auto&& call, const std::string& name) {
    const std::string text = thrown<std::invalid_argument>(call);
    CHECK_THAT(text, Mentions(name));
    CHECK_THAT(text, Mentions("is of device 1"));
    CHECK_THAT(text, Mentions("pass a stream of device 0"));
  };
  refused([&] { static_cast<void>(prefetcher.next(wrong)); }, "Prefetcher::next");
  refused([&] { static_cast<void>(arena.acquire(wrong)); }, "DeviceArena::acquire");
  refused([&] { static_cast<void>(arena.try_acquire(wrong)); }, "DeviceArena::try_acquire");
  refused([&] { readback.push(nullptr, wrong, [](int) {}); }, "Readback::push");

  REQUIRE_CUDA(cudaSetDevice(1));
  for (const cudaStream_t stream : {cudaStream_t{nullptr}, cudaStreamLegacy, cudaStreamPerThread}) {
    refused([&] { static_cast<void>(prefetcher.next(stream)); }, "Prefetcher::next");
    refused([&] { static_cast<void>(prefetcher.next(stream)); }, "make that device current");
    refused([&] { static_cast<void>(arena.acquire(stream)); }, "DeviceArena::acquire");
  }
  // A created stream is of its device, whatever device is current.
  auto lease = prefetcher.next(right);
  REQUIRE(lease);
  CHECK(lease.ticket().batch == 0);
  refused([&] { lease.also_used_on(wrong); }, "Lease::also_used_on");
  DeviceSlot slot = arena.acquire(right);
  refused([&] { slot.release_after(wrong); }, "DeviceSlot::release_after");
  CHECK(slot);  // still held
  slot.release_after(right);
  CHECK(arena.free_slots() == 1);
  lease.release();
  REQUIRE_CUDA(cudaSetDevice(0));
  CHECK(prefetcher.next(right).ticket().batch == 1);
}

TEST_CASE("a pinned block is released behind a stream of any device", "[streams][order]") {
  const Kind kind = GENERATE(Kind::blocking, Kind::non_blocking, Kind::legacy, Kind::per_thread);
  const int device = GENERATE(0, 1);
  need_two_devices();
  const int first = GENERATE(0, 1);  // where the block was used before
  PinnedPool pool({.max_bytes = 4096, .timeout = std::chrono::milliseconds(0)});
  REQUIRE_CUDA(cudaSetDevice(first));
  pool.reserve(1, 4096);
  REQUIRE_CUDA(cudaSetDevice(device));
  {
    const Consumer consumer(kind);
    Gate gate;
    PinnedBlock block = pool.acquire(4096);
    gate.hold(consumer.handle());
    block.release_after(consumer.handle());
    CHECK_THROWS_AS(pool.acquire(4096), PoolExhausted);
    gate.open();
    REQUIRE_CUDA(cudaStreamSynchronize(consumer.handle()));
    CHECK(pool.acquire(4096));
  }
  REQUIRE_CUDA(cudaSetDevice(0));
}

TEST_CASE("what ends on this thread's own default stream waits for no other stream",
          "[streams][order]") {
  const TestStream busy(cudaStreamDefault), next;
  DeviceArena arena(1, 64);
  Gate gate;
  gate.hold(busy);
  arena.acquire(cudaStreamPerThread).release_after(cudaStreamPerThread);
  const DeviceSlot slot = arena.acquire(next);
  CHECK(eventually([&] { return cudaStreamQuery(next) == cudaSuccess; }));
}

TEST_CASE("a lease that is used on one stream again and again is marked there once",
          "[streams][order]") {
  const TestStream first, second;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(8, 4), write_numbers,
                                 {.workers = 1, .device_depth = 1});
  auto lease = prefetcher.next(first);
  for (int i = 0; i < 100; ++i) lease.also_used_on(second);
  emulation::reset_counters();
  lease.release();
  CHECK(emulation::calls("cudaEventCreateWithFlags") <= 1);
}

}  // namespace penstock::test
