// SPDX-License-Identifier: Apache-2.0

#include "replace_std.hpp"
//
#include <penstock/device_arena.hpp>

#include <chrono>

#include "instant_cuda.hpp"

using penstock::DeviceArena;
using penstock::DeviceSlot;
using penstock::test::weak::Access;
using penstock::test::weak::expect;
using penstock::test::weak::explore;
using penstock::test::weak::note_access;
using penstock::test::weak::wait_until_others_wait;

namespace {

/// A wait that ends by itself would hide that nobody woke it.
constexpr std::chrono::milliseconds kNever = std::chrono::milliseconds::max();

}  // namespace

TEST_CASE("weak: threads wait for each other's slots, and write them one after the other",
          "[device_arena]") {
  explore([] {
    DeviceArena arena(1, 64, {}, kNever);
    const auto use = [&] {
      for (int i = 0; i < 2; ++i) {
        const DeviceSlot slot = arena.acquire(nullptr);
        note_access(slot.data(), Access::write);
      }
    };
    std::thread first(use), second(use);
    use();
    first.join();
    second.join();
    expect(arena.free_slots() == 1, "the slot is back");
  });
}

TEST_CASE("weak: a thread that waits for a slot sleeps", "[device_arena]") {
  explore([] {
    DeviceArena arena(1, 64, {}, kNever);
    DeviceSlot held = arena.acquire(nullptr);
    std::thread waiter([&] { expect(static_cast<bool>(arena.acquire(nullptr)), "the slot"); });
    wait_until_others_wait();
    held.release_after(nullptr);
    waiter.join();
  });
}

TEST_CASE("weak: a wait for a slot ends when it is asked to stop", "[device_arena]") {
  explore([] {
    // DeviceArena::acquire itself takes no stop token.
    penstock::detail::DeviceArenaCore arena(1, 64, {}, kNever);
    const auto writer = penstock::detail::resolve_usable(nullptr, "acquire", arena.device());
    std::stop_source stop;
    expect(arena.acquire(writer, stop.get_token(), kNever).has_value(), "the slot");
    std::thread waiter(
        [&] { expect(!arena.acquire(writer, stop.get_token(), kNever), "no slot"); });
    stop.request_stop();
    waiter.join();
  });
}

TEST_CASE("weak: when every slot is lost, whoever waits for one is told", "[device_arena]") {
  explore([] {
    penstock::test::weak::fail_no_calls();
    DeviceArena arena(2, 64, {}, kNever);
    DeviceSlot first = arena.acquire(nullptr), second = arena.acquire(nullptr);
    bool told = false;
    std::thread waiter([&] {
      try {
        arena.acquire(nullptr);
      } catch (const penstock::CudaError&) {
        told = true;
      }
    });
    penstock::test::weak::fail_call("cudaEventRecord", 0);
    penstock::test::weak::fail_call("cudaStreamSynchronize", 0);
    const auto release = [](DeviceSlot& slot) {
      try {
        slot.release_after(nullptr);
      } catch (const penstock::CudaError&) {
      }
    };
    std::thread other([&] { release(first); });
    release(second);
    other.join();
    waiter.join();
    expect(told && arena.lost_slots() == 2, "both are lost, and the waiter knows");
    penstock::test::weak::fail_no_calls();
  });
}
