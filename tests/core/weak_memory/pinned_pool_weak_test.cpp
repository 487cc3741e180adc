// SPDX-License-Identifier: Apache-2.0

#include "replace_std.hpp"
//
#include <penstock/pinned_pool.hpp>

#include "instant_cuda.hpp"

using penstock::PinnedBlock;
using penstock::PinnedPool;
using penstock::test::weak::Access;
using penstock::test::weak::expect;
using penstock::test::weak::explore;
using penstock::test::weak::note_access;
using penstock::test::weak::wait_until_others_wait;

namespace {

constexpr std::size_t kBytes = 4096;
// A time-out that ends is waited for in steps, which would make up for a wake-up that is lost.
constexpr auto kNever = std::chrono::milliseconds::max();

/// Takes a block, writes it and gives it back, again and again.
void use(PinnedPool& pool, int rounds, bool after_copy) {
  for (int i = 0; i < rounds; ++i) {
    PinnedBlock block = pool.acquire(kBytes);
    note_access(block.data(), Access::write);
    if (after_copy) block.release_after(nullptr);
  }
}

}  // namespace

TEST_CASE("weak: threads wait for each other's blocks, and write them one after the other",
          "[pinned_pool]") {
  const bool after_copy = GENERATE(false, true);
  explore([after_copy] {
    PinnedPool pool({.max_bytes = kBytes, .timeout = kNever});
    std::thread first([&] { use(pool, 2, after_copy); });
    std::thread second([&] { use(pool, 2, false); });
    use(pool, 2, after_copy);
    first.join();
    second.join();
    expect(pool.stats().blocks == 1, "the cap was kept");
  });
}

TEST_CASE("weak: a wait for a block ends when it is asked to stop", "[pinned_pool]") {
  explore([] {
    PinnedPool pool({.max_bytes = kBytes, .timeout = kNever});
    const PinnedBlock held = pool.acquire(kBytes);
    std::stop_source stop;
    std::thread waiter([&] { expect(!pool.acquire(kBytes, stop.get_token()), "no block"); });
    stop.request_stop();
    waiter.join();
  });
}

TEST_CASE("weak: blocks come back while the pool goes", "[pinned_pool]") {
  const bool after_copy = GENERATE(false, true);
  explore([after_copy] {
    std::optional<PinnedPool> pool(std::in_place);
    PinnedBlock first = pool->acquire(kBytes), second = pool->acquire(kBytes);
    std::thread giver([&, block = std::make_shared<PinnedBlock>(std::move(first))] {
      note_access(block->data(), Access::write);
      if (after_copy) block->release_after(nullptr);
      block->release();
    });
    std::thread keeper([&] { pool.reset(); });
    second.release();
    giver.join();
    keeper.join();
  });
}

TEST_CASE("weak: whoever is woken may let the pool go, and the one that wakes is through first",
          "[pinned_pool]") {
  explore([] {
    std::optional<PinnedPool> pool(
        std::in_place, penstock::PinnedPoolOptions{.max_bytes = kBytes, .timeout = kNever});
    PinnedBlock held = pool->acquire(kBytes);
    std::thread waiter([&] {
      expect(static_cast<bool>(pool->acquire(kBytes)), "the block");
      pool.reset();
    });
    wait_until_others_wait();
    held.release();
    waiter.join();
  });
}

TEST_CASE("weak: blocks of other sizes make room", "[pinned_pool]") {
  explore([] {
    PinnedPool pool({.max_bytes = 2 * kBytes, .timeout = kNever});
    const auto use_size = [&](std::size_t bytes) {
      for (int i = 0; i < 2; ++i) {
        PinnedBlock block = pool.acquire(bytes);
        expect(pool.stats().bytes <= 2 * kBytes, "the cap was kept");
      }
    };
    std::thread other([&] { use_size(2 * kBytes); });
    use_size(kBytes);
    other.join();
  });
}

TEST_CASE("weak: a pool grows while a thread asks which copies are done", "[pinned_pool]") {
  explore([] {
    PinnedPool pool({.timeout = kNever});
    PinnedBlock first = pool.acquire(kBytes), second = pool.acquire(kBytes);
    first.release_after(nullptr);
    second.release_after(nullptr);
    const auto grow = [&] {  // Too large for what comes back.
      const PinnedBlock one = pool.acquire(2 * kBytes), other = pool.acquire(2 * kBytes);
    };
    std::thread other(grow);
    grow();
    other.join();
    expect(pool.stats().bytes_in_use == 0, "everything came back");
  });
}

TEST_CASE("weak: a block that is reserved wakes those who wait, and then others do",
          "[pinned_pool]") {
  explore([] {
    PinnedPool pool({.max_bytes = kBytes + 256, .timeout = kNever});
    PinnedBlock held = pool.acquire(kBytes);
    std::thread waiter([&] { expect(static_cast<bool>(pool.acquire(kBytes)), "the block"); });
    wait_until_others_wait();
    pool.reserve(1, 256);  // Too small for the waiter, who is told all the same.
    held.release();
    waiter.join();
  });
}

TEST_CASE("weak: memory that is refused to one thread is room for another", "[pinned_pool]") {
  explore([] {
    PinnedPool pool({.max_bytes = kBytes, .timeout = kNever});
    penstock::test::weak::fail_no_calls();
    penstock::test::weak::fail_call("cudaHostAlloc", 1);
    std::atomic<int> blocks{0};
    const auto acquire = [&] {
      try {
        const PinnedBlock block = pool.acquire(kBytes);
        blocks.fetch_add(1, std::memory_order_relaxed);
      } catch (const penstock::PoolExhausted&) {
      } catch (const penstock::CudaError&) {
      }
    };
    std::thread other(acquire);
    acquire();
    other.join();
    expect(blocks.load(std::memory_order_relaxed) == 1, "one was refused, one got memory");
  });
}

// Where few of many blocks come back, threads that ask for the ends of copies anyhow are not woken.
TEST_CASE("weak: a thread that sleeps is woken by the first block of many whose copy begins",
          "[pinned_pool]") {
  explore([] {
    PinnedPool pool({.max_bytes = 5 * kBytes, .timeout = kNever});
    std::vector<PinnedBlock> held;
    for (int i = 0; i < 5; ++i) held.push_back(pool.acquire(kBytes));
    std::thread waiter([&] { expect(static_cast<bool>(pool.acquire(kBytes)), "the block"); });
    wait_until_others_wait();
    held.back().release_after(nullptr);
    waiter.join();
  });
}

TEST_CASE("weak: a thread that waits for a block sleeps", "[pinned_pool]") {
  explore([] {
    PinnedPool pool({.max_bytes = kBytes, .timeout = kNever});
    PinnedBlock held = pool.acquire(kBytes);
    std::thread waiter([&] { expect(static_cast<bool>(pool.acquire(kBytes)), "the block"); });
    wait_until_others_wait();
    held.release();
    waiter.join();
  });
}
