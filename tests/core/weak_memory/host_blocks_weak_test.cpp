// SPDX-License-Identifier: Apache-2.0

#include "replace_std.hpp"
//
#include <penstock/detail/memory/host_blocks.hpp>
#include <penstock/pinned_pool.hpp>

#include "instant_cuda.hpp"

using penstock::CaptureModeGuard;
using penstock::detail::HostBlocks;
using penstock::test::weak::Access;
using penstock::test::weak::expect;
using penstock::test::weak::explore;
using penstock::test::weak::ExploreOptions;
using penstock::test::weak::note_access;
using penstock::test::weak::Plain;
using penstock::test::weak::wait_until_others_wait;

namespace {

constexpr std::size_t kBytes = 4096;
constexpr ExploreOptions kExecutions{.executions = 1000, .most_steps = 50'000};
const penstock::detail::ResolvedStream kStream{cudaStreamLegacy, 0, 0};

struct Blocks : HostBlocks {
  explicit Blocks(std::size_t count) : HostBlocks(count, kBytes, {}) {
    allocate([] {});
  }
  using HostBlocks::acquire;
  std::uint32_t acquire() {
    return HostBlocks::acquire(CaptureModeGuard(), [] { return false; });
  }
  /// For one thread at a time: queues a copy, which reads the block.
  std::uint64_t copy(std::uint32_t block) {
    return HostBlocks::copy(block, kStream, [&] { note_access(data(block), Access::read); });
  }
};

/// The thread that stages: one at a time.
class Stager {
 public:
  std::uint64_t copy(Blocks& blocks, std::uint32_t block) {
    const std::lock_guard lock(mutex_);
    return blocks.copy(block);
  }

 private:
  std::mutex mutex_;
};

}  // namespace

TEST_CASE("weak: workers write a block one after the other, and behind its copy", "[host_blocks]") {
  const std::size_t count = GENERATE(1u, 2u);
  explore(
      [=] {
        Blocks blocks(count);
        Stager stager;
        const auto work = [&](bool copies) {
          for (int i = 0; i < 2; ++i) {
            const std::uint32_t block = blocks.acquire();
            note_access(blocks.data(block), Access::write);
            if (copies)
              stager.copy(blocks, block);
            else
              blocks.release(block);
          }
        };
        std::thread first([&] { work(true); }), second([&] { work(true); });
        work(false);
        first.join();
        second.join();
      },
      kExecutions);
}

TEST_CASE("weak: while copies are in flight some worker that waits asks, and all get a block",
          "[host_blocks]") {
  explore(
      [] {
        Blocks blocks(2);
        const std::uint32_t one = blocks.acquire(), other = blocks.acquire();
        const auto wait = [&] { blocks.release(blocks.acquire()); };
        std::thread first(wait), second(wait), third(wait);
        wait_until_others_wait();
        blocks.copy(one);
        blocks.copy(other);
        first.join();
        second.join();
        third.join();
      },
      kExecutions);
}

TEST_CASE("weak: a worker that asks and gets another block leaves the asking to one that waits",
          "[host_blocks]") {
  explore(
      [] {
        Blocks blocks(2);
        const std::uint32_t one = blocks.acquire(), other = blocks.acquire();
        const auto wait = [&] { blocks.acquire(); };
        std::thread first(wait), second(wait);
        blocks.copy(one);
        wait_until_others_wait();
        blocks.release(other);
        first.join();
        second.join();
      },
      kExecutions);
}

TEST_CASE("weak: a worker that waits sleeps, and a release wakes it", "[host_blocks]") {
  explore(
      [] {
        Blocks blocks(1);
        const std::uint32_t held = blocks.acquire();
        std::thread waiter([&] { expect(blocks.acquire() == held, "the block"); });
        wait_until_others_wait();
        blocks.release(held);
        waiter.join();
      },
      kExecutions);
}

TEST_CASE("weak: a stop ends every wait, also that of the worker that asks", "[host_blocks]") {
  const bool in_flight = GENERATE(false, true);
  explore(
      [in_flight] {
        Blocks blocks(1);
        const std::uint32_t held = blocks.acquire();
        std::atomic<bool> stopped{false};
        const auto wait = [&] {
          const std::uint32_t block = blocks.acquire(
              CaptureModeGuard(), [&] { return stopped.load(std::memory_order_relaxed); });
          if (block != HostBlocks::kNone) blocks.release(block);
        };
        std::thread first(wait), second(wait);
        if (in_flight)
          blocks.copy(held);
        else
          wait_until_others_wait();
        stopped.store(true, std::memory_order_relaxed);
        blocks.wake();
        first.join();
        second.join();
      },
      kExecutions);
}

TEST_CASE("weak: blocks that are still allocated wake workers that wait for the second one",
          "[host_blocks]") {
  explore(
      [] {
        HostBlocks blocks(2, kBytes, {});
        std::thread first, second;
        const auto acquire = [&] {
          const std::uint32_t block = blocks.acquire(CaptureModeGuard(), [] { return false; });
          note_access(blocks.data(block), Access::write);
        };
        blocks.allocate([&] {
          first = std::thread(acquire);
          second = std::thread(acquire);
        });
        first.join();
        second.join();
      },
      kExecutions);
}

TEST_CASE("weak: who hears that a copy is done sees what was done before that was found out",
          "[host_blocks]") {
  explore(
      [] {
        Blocks blocks(1);
        Plain<int> before{0};
        const std::uint64_t copy = blocks.copy(blocks.acquire());
        std::thread worker([&] {
          before = 1;
          blocks.acquire();
        });
        // A worker that asks again after a while does not while another thread can go on.
        for (int i = 0; i < 20 && !blocks.is_done(copy); ++i) std::this_thread::yield();
        if (blocks.is_done(copy)) expect(before == 1, "the worker has asked");
        worker.join();
      },
      kExecutions);
}

TEST_CASE("weak: when the last block is lost, each worker that waits is told", "[host_blocks]") {
  explore(
      [] {
        penstock::test::weak::fail_no_calls();
        Blocks blocks(1);
        const std::uint32_t held = blocks.acquire();
        std::atomic<int> told{0};
        const auto wait = [&] {
          try {
            blocks.acquire();
          } catch (const penstock::CudaError&) {
            told.fetch_add(1, std::memory_order_relaxed);
          }
        };
        std::thread first(wait), second(wait);
        wait_until_others_wait();
        penstock::test::weak::fail_call("cudaEventRecord", 0);
        penstock::test::weak::fail_call("cudaStreamSynchronize", 0);
        try {
          blocks.copy(held);
        } catch (const penstock::CudaError&) {
        }
        first.join();
        second.join();
        expect(told.load(std::memory_order_relaxed) == 2, "both");
        penstock::test::weak::fail_no_calls();
      },
      kExecutions);
}
