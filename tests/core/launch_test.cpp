// SPDX-License-Identifier: Apache-2.0

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <penstock/emulation.hpp>
#include <penstock/error.hpp>
#include <penstock/launch.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using namespace test;

TEST_CASE("for_each calls op once for each index", "[launch]") {
  const TestStream stream;
  std::vector<int> calls(1000);
  for_each(stream, 1000, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(calls == std::vector<int>(1000, 1));
}

TEST_CASE("for_each does not wait for the stream", "[launch]") {
  const TestStream stream;
  std::atomic<int> calls{0};
  Gate gate;
  gate.hold(stream);
  for_each(stream, 7, [&](std::int64_t) { ++calls; });
  CHECK(calls == 0);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(calls == 7);
}

TEST_CASE("for_each runs between what was queued before it and after it", "[launch]") {
  const TestStream stream;
  const PinnedMemory<int> host(64, 3), result(64);
  const DeviceMemory<int> device(64);
  Gate gate;
  gate.hold(stream);
  copy_async(device, host, stream);
  copy_async(result, device, stream);
  for_each(stream, 64, [data = result.data()](std::int64_t i) { data[i] *= 10; });
  copy_async(device, result, stream);
  gate.open_and_publish();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(device.read() == std::vector<int>(64, 30));
}

TEST_CASE("for_each of nothing does nothing", "[launch]") {
  const TestStream stream;
  const auto owner = std::make_shared<int>(0);
  emulation::reset_counters();
  for_each(stream, 0, [owner](std::int64_t) { ++*owner; });
  CHECK(emulation::call_classes().all == 0);
  CHECK(owner.use_count() == 1);
}

TEST_CASE("for_each rejects a negative number", "[launch]") {
  const TestStream stream;
  CHECK_THAT(thrown<std::invalid_argument>([&] { for_each(stream, -3, [](std::int64_t) {}); }),
             Mentions("n is -3"));
}

TEST_CASE("for_each owns op until it has run, and op may be move-only", "[launch]") {
  const TestStream stream;
  auto owner = std::make_shared<int>(0);
  int* const sum = owner.get();
  Gate gate;
  gate.hold(stream);
  for_each(stream, 5, [sum, owner, bonus = std::make_unique<int>(100)](std::int64_t i) {
    *sum += static_cast<int>(i) + *bonus;
  });
  CHECK(owner.use_count() == 2);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(owner.use_count() == 1);
  CHECK(*sum == 510);
}

TEST_CASE("for_each works on the legacy default stream", "[launch]") {
  std::atomic<int> calls{0};
  for_each(nullptr, 3, [&](std::int64_t) { ++calls; });
  REQUIRE_CUDA(cudaStreamSynchronize(nullptr));
  CHECK(calls == 3);
}

TEST_CASE("for_each that fails to launch throws and keeps nothing", "[launch]") {
  const TestStream stream;
  const std::string call = GENERATE("cudaLaunchHostFunc", "cudaStreamGetCaptureInfo");
  const auto owner = std::make_shared<int>(0);
  const auto op = [owner](std::int64_t) { ++*owner; };
  emulation::fail_call(call, cudaErrorMemoryAllocation);
  CHECK_THAT(thrown<CudaError>([&] { for_each(stream, 3, op); }),
             Mentions(call) && Mentions("cudaErrorMemoryAllocation"));
  CHECK(owner.use_count() == 2);  // `owner` and `op`
  CHECK(cudaGetLastError() == cudaSuccess);

  for_each(stream, 3, op);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(*owner == 3);
}

TEST_CASE("for_each in a graph runs at each launch, as one object", "[launch]") {
  const TestStream stream;
  const auto owner = std::make_shared<std::atomic<int>>(0);
  std::vector<int> launches;
  {
    TestGraph graph = capture(stream, [&] {
      for_each(stream, 2, [owner, &launches, launch = 0](std::int64_t i) mutable {
        ++*owner;
        if (i == 1) launches.push_back(++launch);
      });
    });
    CHECK(graph.nodes() == 1);
    CHECK(*owner == 0);
    const TestGraphExec exec(graph);
    { const TestGraph gone = std::move(graph); }  // The executable copy keeps op alive.
    for (int i = 0; i < 3; ++i) REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    CHECK(*owner == 6);
    CHECK(launches == std::vector{1, 2, 3});
    CHECK(owner.use_count() == 2);
  }
  CHECK(eventually([&] { return owner.use_count() == 1; }));  // CUDA destroys it in its own time.
}

TEST_CASE("for_each in a graph that is never launched leaves nothing behind", "[launch]") {
  const TestStream stream;
  const auto owner = std::make_shared<int>(0);
  {
    const TestGraph graph =
        capture(stream, [&] { for_each(stream, 2, [owner](std::int64_t) { ++*owner; }); });
    CHECK(owner.use_count() == 2);
  }
  CHECK(eventually([&] { return owner.use_count() == 1; }));
  CHECK(*owner == 0);
}

TEST_CASE("for_each that fails in a capture throws, and keeps nothing once the graph is gone",
          "[launch]") {
  const TestStream stream;
  const std::string call = GENERATE("cudaStreamGetCaptureInfo", "cudaUserObjectCreate",
                                    "cudaGraphRetainUserObject", "cudaLaunchHostFunc");
  const auto owner = std::make_shared<int>(0);
  const auto op = [owner](std::int64_t) { ++*owner; };
  {
    const TestGraph graph = capture(stream, [&] {
      emulation::fail_call(call, cudaErrorMemoryAllocation);
      CHECK_THAT(thrown<CudaError>([&] { for_each(stream, 3, op); }), Mentions(call));
    });
  }
  CHECK_FALSE(emulation::clear_failures());
  CHECK(eventually([&] { return owner.use_count() == 2; }));
}

TEST_CASE("for_each in a broken capture reports it", "[launch]") {
  const TestStream stream;
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);  // breaks it
  const auto owner = std::make_shared<int>(0);
  CHECK_THROWS_AS(for_each(stream, 3, [owner](std::int64_t) { ++*owner; }), CudaError);
  CHECK(owner.use_count() == 1);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
}

}  // namespace
}  // namespace penstock
