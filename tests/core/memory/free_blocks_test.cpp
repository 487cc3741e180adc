// SPDX-License-Identifier: Apache-2.0

#include <penstock/detail/memory/free_blocks.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "support/catch.hpp"

using penstock::detail::FreeBlocks;

namespace {

struct Block {
  explicit Block(std::size_t its) : size(its) {}
  std::size_t bytes() const { return size; }
  std::size_t size;
  std::uint64_t taker = 0;
};

constexpr auto no_hook = [] {};

}  // namespace

TEST_CASE("a block that wastes more than an eighth does not fit", "[free_blocks]") {
  FreeBlocks<Block> idle;
  Block block(900);
  idle.reserve(1);
  REQUIRE(idle.push(&block, no_hook));
  CHECK(idle.try_pop(901) == nullptr);
  CHECK(idle.try_pop(799) == nullptr);
  CHECK(idle.pop(799) == nullptr);
  CHECK(idle.try_pop(800) == &block);
  CHECK(idle.try_pop(800) == nullptr);
}

TEST_CASE("a block of another size is found where one that fits is not", "[free_blocks]") {
  FreeBlocks<Block> idle;
  std::array<Block, 3> blocks{Block(512), Block(4096), Block(512)};
  idle.reserve(blocks.size());
  for (Block& block : blocks) REQUIRE(idle.push(&block, no_hook));
  CHECK(idle.pop_other(512) == &blocks[1]);
  CHECK(idle.pop_other(512) == nullptr);
  CHECK(idle.pop_other(456) == nullptr);
  CHECK(idle.totals().blocks == 2);
  CHECK(idle.pop_other(455) != nullptr);  // 512 is more than an eighth larger.
  CHECK(idle.totals().blocks == 1);
}

TEST_CASE("blocks that another thread gives back are found again, the last one first",
          "[free_blocks]") {
  FreeBlocks<Block> idle;
  std::vector<Block> blocks(3, Block(256));
  idle.reserve(blocks.size());
  for (Block& block : blocks) idle.push(&block, no_hook);
  std::vector<Block*> taken;
  for (std::size_t i = 0; i < blocks.size(); ++i) taken.push_back(idle.try_pop(256));
  std::thread([&] {
    for (Block* block : taken) idle.push(block, no_hook);
  }).join();
  CHECK(idle.totals().blocks == 3);
  CHECK(idle.totals().bytes == 3 * 256);
  CHECK(idle.try_pop(256) == taken[2]);
  CHECK(idle.try_pop(256) == taken[1]);
  CHECK(idle.pop(256) == taken[0]);
  CHECK(idle.totals().hits == 6);
}

TEST_CASE("a closed list takes nothing back", "[free_blocks]") {
  FreeBlocks<Block> idle;
  std::array<Block, 2> blocks{Block(256), Block(256)};
  idle.reserve(2);
  idle.push(blocks.data(), no_hook);
  idle.close();
  CHECK_FALSE(idle.push(&blocks[1], no_hook));
  CHECK(idle.totals().blocks == 1);
}

TEST_CASE("a look finds a block, or whoever gave one back meanwhile knows of the look",
          "[free_blocks]") {
  // Takers pass what they take on to a giver. There are more blocks than they all can hold, so
  // there always is one, and this thread's look may miss it only if one came back since the look
  // began.
  FreeBlocks<Block> idle;
  std::vector<Block> blocks(5, Block(256));
  idle.reserve(blocks.size());
  for (Block& block : blocks) idle.push(&block, no_hook);

  std::atomic<bool> done{false};
  std::array<std::atomic<Block*>, 2> passed{};
  std::atomic<std::uint64_t> given{0};
  std::thread taker([&] {
    while (!done)
      if (passed[0] == nullptr) passed[0] = idle.try_pop(256);
  });
  std::thread giver([&] {
    while (!done)
      for (auto& mailbox : passed)
        if (Block* block = mailbox.exchange(nullptr))
          idle.push(block, [&] { given.fetch_add(1, std::memory_order_relaxed); });
  });
  std::uint64_t missed = 0;
  while (given.load(std::memory_order_relaxed) < 20'000) {
    if (passed[1] != nullptr) continue;
    const std::uint64_t before = given.load(std::memory_order_relaxed);
    if (Block* block = idle.pop(256))
      passed[1] = block;
    else
      missed += given.load(std::memory_order_relaxed) == before;
  }
  done = true;
  taker.join();
  giver.join();
  CHECK(missed == 0);
}
