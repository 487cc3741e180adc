// SPDX-License-Identifier: Apache-2.0

#include <penstock/device_arena.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/host_log.hpp"
#include "support/thrown.hpp"

using namespace std::chrono_literals;
using penstock::DeviceArena;
using penstock::DeviceSlot;
using penstock::PoolExhausted;
using penstock::test::Gate;
using penstock::test::HostLog;
using penstock::test::Mentions;
using penstock::test::TestStream;
using penstock::test::Waiter;

static_assert(!std::is_copy_constructible_v<DeviceSlot> &&
              std::is_nothrow_move_constructible_v<DeviceSlot>);
static_assert(std::is_nothrow_destructible_v<DeviceSlot>);

TEST_CASE("an arena whose size is no number is refused", "[device_arena]") {
  constexpr auto kMinusOne = ~std::size_t{0};
  CHECK_THROWS_AS(DeviceArena(2, kMinusOne), std::invalid_argument);
  CHECK_THROWS_AS(DeviceArena(std::size_t{1} << 20, std::size_t{1} << 44), std::invalid_argument);
  CHECK_THROWS_AS(DeviceArena(1, kMinusOne / 2 - 512), penstock::CudaError);  // as large as can be
}

TEST_CASE("slots are device memory at fixed, aligned, separate addresses", "[device_arena]") {
  TestStream stream;
  DeviceArena arena(3, 1000);
  CHECK(arena.slots() == 3);
  CHECK(arena.slot_bytes() == 1000);
  std::set<std::byte*> addresses;
  for (int round = 0; round < 4; ++round) {
    std::vector<DeviceSlot> held;
    for (int i = 0; i < 3; ++i) held.push_back(arena.acquire(stream));
    for (const DeviceSlot& slot : held) {
      addresses.insert(slot.data());
      CHECK(reinterpret_cast<std::uintptr_t>(slot.data()) % 512 == 0);
      CHECK(slot.index() < 3);
    }
  }
  CHECK(addresses.size() == 3);
  auto at = addresses.begin();
  const std::byte* first = *at++;
  CHECK(*at - first >= 1000);
}

TEST_CASE("slots rotate: the one that has been free for longest comes first", "[device_arena]") {
  TestStream stream;
  DeviceArena arena(3, 64);
  for (std::size_t i = 0; i < 7; ++i) CHECK(arena.acquire(stream).index() == i % 3);
}

TEST_CASE("a slot's next writer runs after its last reader, and the host does not wait",
          "[device_arena]") {
  Gate gate;
  HostLog log;
  TestStream reader, writer;
  DeviceArena arena(1, 64);
  {
    DeviceSlot slot = arena.acquire(writer);
    gate.hold(reader);
    log.enqueue(reader, 1);
    slot.release_after(reader);
    CHECK_FALSE(slot);
  }
  DeviceSlot again = arena.acquire(writer);  // Returns although the reader is held.
  log.enqueue(writer, 2);
  CHECK(cudaStreamQuery(writer) == cudaErrorNotReady);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(writer));
  CHECK(log.entries() == std::vector{1, 2});
}

TEST_CASE("a slot's next writer waits for every reader", "[device_arena]") {
  const int held = GENERATE(0, 1, 2);
  Gate gate;
  TestStream writer;
  std::array<TestStream, 3> streams;
  DeviceArena arena(1, 64);
  gate.hold(streams[static_cast<std::size_t>(held)]);
  arena.acquire(writer).release_after(
      std::array<cudaStream_t, 3>{streams[0], streams[1], streams[2]});
  DeviceSlot again = arena.acquire(writer);
  CHECK(cudaStreamQuery(writer) == cudaErrorNotReady);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(writer));
}

TEST_CASE("a slot that is dropped counts as read by its writer", "[device_arena]") {
  Gate gate;
  TestStream first, second;
  DeviceArena arena(1, 64);
  {
    const DeviceSlot slot = arena.acquire(first);
    gate.hold(first);
  }
  const DeviceSlot slot = arena.acquire(second);
  CHECK(cudaStreamQuery(second) == cudaErrorNotReady);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(second));
}

TEST_CASE("with every slot held, try_acquire is empty and acquire waits for a release",
          "[device_arena]") {
  TestStream stream;
  DeviceArena arena(1, 64);
  DeviceSlot held = arena.acquire(stream);
  CHECK_FALSE(arena.try_acquire(stream));
  CHECK(arena.free_slots() == 0);
  std::atomic<bool> got{false};
  std::thread waiter([&] { got = static_cast<bool>(arena.acquire(stream)); });
  held.release_after(stream);
  waiter.join();
  CHECK(got);
  CHECK(arena.free_slots() == 1);
}

TEST_CASE("a thread that holds every slot itself is told so after the time-out", "[device_arena]") {
  TestStream stream;
  DeviceArena arena(2, 64, {}, 20ms);
  DeviceSlot first = arena.acquire(stream), second = arena.acquire(stream);
  try {
    arena.acquire(stream);
    FAIL("there was no slot");
  } catch (const PoolExhausted& error) {
    CHECK(error.asked() == 64);
    CHECK(error.in_use() == 128);
    CHECK(error.cap() == 128);
    CHECK_THAT(std::string(error.what()),
               Mentions("no slot came back in 20 ms, 2 of 2 are held: release slots earlier, make "
                        "more of them, or use try_acquire"));
  }
  first.release_after(stream);
  CHECK(arena.acquire(stream));  // The arena goes on.
}

TEST_CASE("the time-out of an arena: for ever, at once, or not a time at all", "[device_arena]") {
  TestStream stream;
  DeviceArena patient(1, 64, {}, std::chrono::milliseconds::max());
  DeviceSlot held = patient.acquire(stream);
  std::atomic<bool> got{false};
  Waiter waiting;
  std::thread waiter([&] {
    waiting.enter();
    got = static_cast<bool>(patient.acquire(stream));
  });
  waiting.wait_until_asleep();
  CHECK_FALSE(got);
  held.release_after(stream);
  waiter.join();
  CHECK(got);

  DeviceArena impatient(1, 64, {}, 0ms);
  held = impatient.acquire(stream);
  CHECK_THROWS_AS(impatient.acquire(stream), PoolExhausted);
  CHECK_THROWS_AS(DeviceArena(1, 64, {}, -1ms), std::invalid_argument);
}

TEST_CASE("a slot may outlive its arena", "[device_arena]") {
  TestStream stream;
  DeviceSlot slot;
  {
    DeviceArena arena(2, 64);
    slot = arena.acquire(stream);
  }
  CHECK_CUDA(cudaMemsetAsync(slot.data(), 1, 64, stream));
  slot.release_after(stream);
}

TEST_CASE("an arena's memory is not freed under a reader", "[device_arena]") {
  Gate gate;
  TestStream reader;
  std::atomic<bool> opened{false};
  std::thread opener;
  {
    DeviceArena arena(1, 64);
    DeviceSlot slot = arena.acquire(reader);
    gate.hold(reader);
    REQUIRE_CUDA(cudaMemsetAsync(slot.data(), 1, 64, reader));
    slot.release_after(reader);
    opener = std::thread([&] {
      opened = true;
      gate.open();
    });
  }
  // The arena is gone, so the reader is through the gate.
  CHECK(opened);
  CHECK_CUDA(cudaStreamSynchronize(reader));
  opener.join();
}

TEST_CASE("an arena of nothing is refused", "[device_arena]") {
  CHECK_THROWS_AS(DeviceArena(0, 64), std::invalid_argument);
  CHECK_THROWS_AS(DeviceArena(2, 0), std::invalid_argument);
}

TEST_CASE("an arena can be asked about its slots while others use them", "[device_arena]") {
  const TestStream stream;
  DeviceArena arena(3, 64);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        DeviceSlot slot = arena.acquire(stream);
        slot.release_after(stream);
      }
    });
  std::size_t most = 0, lost = 0;
  for (int i = 0; i < 100; ++i) {
    most = std::max(most, arena.free_slots());
    lost += arena.lost_slots();
    arena.require_slot();
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(most <= 3);
  CHECK(lost == 0);
  CHECK(arena.free_slots() == 3);
}
