// SPDX-License-Identifier: Apache-2.0

// The rules of forks: in the child, calls fail, but for a few that ask, and none hangs. The
// parent goes on as if nothing had been.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <vector>

#include "support/catch.hpp"
#include "support/cuda_version.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"

using penstock::test::DeviceMemory;
using penstock::test::Gate;
using penstock::test::PinnedMemory;
using penstock::test::TestEvent;
using penstock::test::TestStream;

namespace {

/// What `call` returns in a child. The child ends by a signal when it hangs.
cudaError_t in_child(const std::function<cudaError_t()>& call) {
  const ::pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(call());
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return static_cast<cudaError_t>(WEXITSTATUS(status));
}

}  // namespace

TEST_CASE("in a forked child calls fail", "[rules][fork]") {
  TestStream stream;
  TestEvent event;
  DeviceMemory<std::byte> device(64);
  PinnedMemory<std::byte> pinned(64);
  int number = 0;
  void* memory = nullptr;
  const std::vector<std::function<cudaError_t()>> calls{
      [&] { return cudaGetDevice(&number); },
      [&] { return cudaSetDevice(0); },
      [&] { return cudaStreamQuery(stream); },
      [&] { return cudaStreamSynchronize(stream); },
      [&] { return cudaStreamWaitEvent(stream, event, cudaEventWaitDefault); },
      [&] { return cudaEventRecord(event, stream); },
      [&] { return cudaMalloc(&memory, 64); },
      [&] { return cudaHostAlloc(&memory, 64, cudaHostAllocDefault); },
      [&] {
        return cudaMemcpyAsync(device.data(), pinned.data(), 64, cudaMemcpyHostToDevice, stream);
      },
      [&] { return cudaFree(device.data()); },
      [&] { return cudaFreeHost(pinned.data()); },
      [&] { return cudaEventDestroy(event); },
      [&] { return cudaStreamDestroy(stream); },
      [&] { return cudaDeviceSynchronize(); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    INFO("call " << i);
    CHECK(in_child(calls[i]) == cudaErrorInitializationError);
  }
  // The parent still has all of it.
  REQUIRE_CUDA(cudaMemcpyAsync(device.data(), pinned.data(), 64, cudaMemcpyHostToDevice, stream));
  REQUIRE_CUDA(cudaEventRecord(event, stream));
  REQUIRE_CUDA(cudaEventSynchronize(event));
}

TEST_CASE("in a forked child a few calls still answer", "[rules][fork]") {
  TestStream stream;
  int number = 0;
  CHECK(in_child([&] { return cudaGetDeviceCount(&number); }) == cudaSuccess);
  if (penstock::test::kStreamsTellTheirDevice)
    CHECK(in_child([&] { return penstock::test::device_of_stream(stream, &number); }) ==
          cudaSuccess);
  CHECK(in_child([&] { return cudaDriverGetVersion(&number); }) == cudaSuccess);
  CHECK(in_child([&] { return cudaRuntimeGetVersion(&number); }) == cudaSuccess);
  CHECK(in_child([&] {
          cudaDeviceProp properties{};
          return cudaGetDeviceProperties(&properties, 0);
        }) == cudaSuccess);
}

TEST_CASE("a forked child has a last error, too", "[rules][fork]") {
  TestStream stream;
  CHECK(in_child([] { return cudaGetLastError(); }) == cudaSuccess);
  CHECK(in_child([&] {
          cudaStreamSynchronize(stream);
          return cudaPeekAtLastError();
        }) == cudaErrorInitializationError);
  CHECK(in_child([&] {
          cudaStreamSynchronize(stream);
          cudaGetLastError();
          return cudaGetLastError();
        }) == cudaSuccess);
}

TEST_CASE("page-locked memory is one memory for a forked child and its parent", "[rules][fork]") {
  PinnedMemory<int> pinned(4, 1);
  CHECK(in_child([&] {
          const bool seen = pinned.all(1);
          pinned.set(2);
          return seen ? cudaSuccess : cudaErrorUnknown;
        }) == cudaSuccess);
  CHECK(pinned.all(2));
}

TEST_CASE("a fork while a stream is busy disturbs neither process", "[rules][fork]") {
  Gate gate;
  TestStream stream;
  gate.hold(stream);
  gate.wait_until_reached();
  CHECK(in_child([&] { return cudaStreamSynchronize(stream); }) == cudaErrorInitializationError);
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
}

TEST_CASE("a child may exit as any process does", "[rules][fork]") {
  TestStream stream;
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  const auto exit_by = [](void (*exit_now)(int)) {
    return in_child([exit_now] {
      exit_now(0);
      return cudaErrorUnknown;
    });
  };
  CHECK(exit_by([](int status) { std::quick_exit(status); }) == cudaSuccess);
  CHECK(exit_by([](int status) { ::_exit(status); }) == cudaSuccess);
}
