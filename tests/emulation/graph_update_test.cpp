// SPDX-License-Identifier: Apache-2.0

// What cudaGraphExecUpdate refuses where CUDA leaves it to the driver, or where it takes two
// devices to see it.

#include <cstdint>
#include <penstock/emulation.hpp>
#include <vector>

#include "support/catch.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"

using namespace penstock::test;
namespace emulation = penstock::emulation;

namespace {

/// The update is refused for its first node, and the graph still can be launched.
void check_refused(const TestGraph& graph, const TestGraph& changed, cudaStream_t stream) {
  const TestGraphExec exec(graph);
  cudaGraphNode_t node = nullptr;
  std::size_t count = 1;
  REQUIRE_CUDA(cudaGraphGetNodes(changed, &node, &count));
  cudaGraphExecUpdateResultInfo info{};
  CHECK(cudaGraphExecUpdate(exec, changed, &info) == cudaErrorGraphExecUpdateFailure);
  CHECK(info.result == cudaGraphExecUpdateErrorParametersChanged);
  CHECK(info.errorNode == node);
  CHECK(cudaGetLastError() == cudaErrorGraphExecUpdateFailure);
  CHECK_CUDA(cudaGraphLaunch(exec, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
}

}  // namespace

// A GPU may accept such an update.
TEST_CASE("an update changes neither the rows of a copy nor their pitch",
          "[emulation][graph][stricter]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  const TestStream stream;
  const auto rows = [&](std::size_t pitch, std::size_t width, std::size_t height) {
    return capture(stream, [&] {
      REQUIRE_CUDA(cudaMemcpy2DAsync(device.data(), pitch, host.data(), pitch, width, height,
                                     cudaMemcpyHostToDevice, stream));
    });
  };
  const TestGraph graph = rows(8, 4, 4);
  check_refused(graph, rows(8, 4, 3), stream);
  check_refused(graph, rows(8, 5, 4), stream);
  check_refused(graph, rows(16, 4, 4), stream);
  check_refused(graph, capture(stream, [&] { copy_async(device, host, stream); }), stream);
}

TEST_CASE("an update does not change the rows of a fill", "[emulation][graph][held]") {
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream stream;
  const auto rows = [&](std::size_t pitch, std::size_t width, std::size_t height) {
    return capture(stream, [&] {
      REQUIRE_CUDA(cudaMemset2DAsync(device.data(), pitch, 1, width, height, stream));
    });
  };
  const TestGraph graph = rows(8, 4, 4);
  check_refused(graph, rows(8, 4, 3), stream);
  check_refused(graph, rows(8, 5, 4), stream);
  check_refused(graph, rows(16, 4, 4), stream);
  check_refused(
      graph, capture(stream, [&] { REQUIRE_CUDA(cudaMemsetAsync(device.data(), 1, 64, stream)); }),
      stream);
  std::vector<std::uint8_t> expected(64, 0);
  for (std::size_t i = 0; i < 32; ++i) expected[i] = i % 8 < 4 ? 1 : 0;
  CHECK(device.read() == expected);
}

// A GPU may accept an update from page-locked to pageable memory.
TEST_CASE("an update does not change the kind of memory of a copy",
          "[emulation][graph][stricter]") {
  std::vector<std::uint8_t> pageable(64);
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  const TestStream stream;
  const auto to = [&](void* destination) {
    return capture(stream, [&] {
      REQUIRE_CUDA(cudaMemcpyAsync(destination, device.data(), 64, cudaMemcpyDeviceToHost, stream));
    });
  };
  check_refused(to(host.data()), to(pageable.data()), stream);
  check_refused(to(pageable.data()), to(host.data()), stream);
}

TEST_CASE("an update does not move a node to another device", "[emulation][graph][held]") {
  emulation::Options options = emulation::options();
  options.machine.devices = 2;
  emulation::reset(options);
  const DeviceMemory<std::uint8_t> here(64);
  const PinnedMemory<std::uint8_t> host(64);
  const TestStream stream;
  void* there = nullptr;
  REQUIRE_CUDA(cudaSetDevice(1));
  REQUIRE_CUDA(cudaMalloc(&there, 64));
  REQUIRE_CUDA(cudaSetDevice(0));
  const auto fill = [&](void* data) {
    return capture(stream, [&] { REQUIRE_CUDA(cudaMemsetAsync(data, 1, 64, stream)); });
  };
  const auto copy = [&](void* data) {
    return capture(stream, [&] {
      REQUIRE_CUDA(cudaMemcpyAsync(data, host.data(), 64, cudaMemcpyHostToDevice, stream));
    });
  };
  check_refused(fill(here.data()), fill(there), stream);
  check_refused(copy(here.data()), copy(there), stream);
  CHECK_CUDA(cudaFree(there));
}

TEST_CASE("a refused update names the nodes whose edge is another", "[emulation][graph][held]") {
  const DeviceMemory<std::uint8_t> device(64), other(64);
  const TestStream stream, branch;
  const TestEvent forked, joined;
  // Three fills: the third behind the first, or behind the second.
  const auto three = [&](bool behind_second) {
    return capture(stream, [&] {
      fill_async(device, 1, stream);
      REQUIRE_CUDA(cudaEventRecord(forked, stream));
      REQUIRE_CUDA(cudaStreamWaitEvent(branch, forked, 0));
      fill_async(other, 2, stream);
      fill_async(device, 3, behind_second ? static_cast<cudaStream_t>(stream) : branch);
      REQUIRE_CUDA(cudaEventRecord(joined, branch));
      REQUIRE_CUDA(cudaStreamWaitEvent(stream, joined, 0));
    });
  };
  const TestGraph graph = three(false), changed = three(true);
  const TestGraphExec exec(graph);
  std::vector<cudaGraphNode_t> nodes(3);
  std::size_t count = nodes.size();
  REQUIRE_CUDA(cudaGraphGetNodes(changed, nodes.data(), &count));
  REQUIRE(count == 3);
  cudaGraphExecUpdateResultInfo info{};
  CHECK(cudaGraphExecUpdate(exec, changed, &info) == cudaErrorGraphExecUpdateFailure);
  CHECK(info.result == cudaGraphExecUpdateErrorTopologyChanged);
  CHECK(info.errorNode == nodes[2]);
  CHECK(info.errorFromNode == nodes[1]);
  cudaGetLastError();
}
