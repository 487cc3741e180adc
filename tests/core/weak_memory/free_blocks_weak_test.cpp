// SPDX-License-Identifier: Apache-2.0

#include "replace_std.hpp"
//
#include <penstock/detail/memory/free_blocks.hpp>

using penstock::detail::FreeBlocks;
using penstock::test::weak::expect;
using penstock::test::weak::explore;
using penstock::test::weak::Plain;

namespace {

struct Block {
  std::size_t bytes() const { return 256; }
  std::uint64_t taker = 0;
  Plain<int> content{0};
};

}  // namespace

TEST_CASE("weak: what the last owner of a block wrote is there", "[free_blocks]") {
  explore([] {
    FreeBlocks<Block> idle;
    Block blocks[2];
    idle.reserve(2);
    for (Block& block : blocks) idle.push(&block, [] {});
    const auto use = [&] {
      for (int i = 0; i < 2; ++i)
        if (Block* block = idle.try_pop(256)) {
          block->content = block->content + 1;
          idle.push(block, [] {});
        }
    };
    std::thread first(use), second(use);
    use();
    first.join();
    second.join();
    expect(idle.totals().blocks == 2, "no block is lost");
  });
}

TEST_CASE("weak: a look finds a block, or whoever gives it back knows of the look",
          "[free_blocks]") {
  explore([] {
    FreeBlocks<Block> idle;
    Block block;
    idle.reserve(1);
    std::atomic<int> waiters{0};
    bool found = false, told = false;
    std::thread giver(
        [&] { idle.push(&block, [&] { told = waiters.load(std::memory_order_relaxed) != 0; }); });
    waiters.fetch_add(1, std::memory_order_relaxed);
    found = idle.pop(256) != nullptr;
    giver.join();
    expect(found || told, "nobody waits for a block that is there");
  });
}
