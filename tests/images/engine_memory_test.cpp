// SPDX-License-Identifier: Apache-2.0

#include "engine_memory.hpp"

#include <cstring>
#include <penstock/emulation.hpp>
#include <set>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"

namespace penstock::images {
namespace {

using namespace penstock::test;

TEST_CASE("EngineMemory gives a block again", "[images][engine_memory]") {
  const auto kind = GENERATE(EngineMemory::Kind::device, EngineMemory::Kind::pinned);
  EngineMemory memory(kind);
  const TestStream stream;
  void* const first = memory.take(10'000, stream);
  void* const second = memory.take(10'000, stream);
  CHECK(first != second);
  CHECK(memory.give(first, stream));
  CHECK(memory.give(second, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  const std::set<void*> known{first, second};
  CHECK(known.count(memory.take(10'001, stream)) == 1);
  CHECK(known.count(memory.take(9'000, stream)) == 1);
  CHECK(memory.allocations() == 2);
  CHECK(memory.bytes() >= 20'000);
}

TEST_CASE("EngineMemory allocates for what no block is for", "[images][engine_memory]") {
  EngineMemory memory(EngineMemory::Kind::device);
  const TestStream stream;
  CHECK(memory.give(memory.take(0, stream), stream));
  CHECK(memory.give(memory.take(1 << 20, stream), stream));  // larger
  CHECK(memory.give(memory.take(100'000, stream), stream));  // wasteful
  CHECK(memory.allocations() == 3);
  CHECK(memory.give(memory.take(300'000, stream), stream));
  CHECK(memory.allocations() == 3);
}

TEST_CASE("EngineMemory: a stream waits for the block's last one", "[images][engine_memory]") {
  EngineMemory memory(EngineMemory::Kind::device);
  const TestStream first, second;
  void* const block = memory.take(64, first);
  Gate gate;
  gate.hold(first);
  CHECK(memory.give(block, first));
  REQUIRE(memory.take(64, second) == block);
  REQUIRE_CUDA(cudaMemsetAsync(block, 1, 64, second));
  CHECK(cudaStreamQuery(second) == cudaErrorNotReady);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(second));
  CHECK(memory.allocations() == 1);
}

TEST_CASE("EngineMemory: page-locked memory that a stream reads is not given",
          "[images][engine_memory]") {
  EngineMemory memory(EngineMemory::Kind::pinned);
  const TestStream stream;
  void* const block = memory.take(64, stream);
  Gate gate;
  gate.hold(stream);
  CHECK(memory.give(block, stream));
  CHECK(memory.take(64, stream) != block);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(memory.take(64, stream) == block);
}

TEST_CASE("EngineMemory takes back only what it gave", "[images][engine_memory]") {
  EngineMemory memory(EngineMemory::Kind::device);
  const TestStream stream;
  void* const block = memory.take(64, stream);
  int other = 0;
  CHECK_FALSE(memory.give(&other, stream));
  CHECK(memory.give(block, stream));
  CHECK_FALSE(memory.give(block, stream));
}

TEST_CASE("EngineMemory: many threads", "[images][engine_memory]") {
  EngineMemory memory(EngineMemory::Kind::pinned);
  std::vector<std::thread> threads;
  for (int number = 1; number <= 4; ++number)
    threads.emplace_back([&memory, number] {
      cudaStream_t stream = nullptr;
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      for (int i = 0; i < 50; ++i) {
        auto* const block = static_cast<char*>(memory.take(1000, stream));
        std::memset(block, number, 1000);  // a race, if somebody else has it
        memory.give(block, stream);
      }
      cudaStreamSynchronize(stream);
      cudaStreamDestroy(stream);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(memory.allocations() >= 1);
}

}  // namespace
}  // namespace penstock::images
