// SPDX-License-Identifier: Apache-2.0

// What an observer is told of, and that nobody else notices.

#include <cuda_runtime_api.h>

#include <atomic>
#include <penstock/emulation.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/gate.hpp"

namespace emulation = penstock::emulation;

namespace {

/// Keeps what it is told. The runtime tells it one thing at a time, and nothing after the end.
class Observed {
 public:
  Observed() {
    const auto on_call = [](void* self, const emulation::ApiCall& call) {
      static_cast<Observed*>(self)->calls.push_back(call);
    };
    const auto on_operation = [](void* self, const emulation::Operation& operation) {
      static_cast<Observed*>(self)->operations.push_back(operation);
    };
    REQUIRE(emulation::observe({this, on_call, on_operation}));
  }
  ~Observed() { stop(); }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

  void stop() { emulation::stop_observing(); }

  std::vector<emulation::ApiCall> calls;
  std::vector<emulation::Operation> operations;
};

}  // namespace

TEST_CASE("observation: calls with their results, joined with what they submit", "[emulation]") {
  cudaStream_t stream = nullptr;
  void* memory = nullptr;
  REQUIRE_CUDA(cudaStreamCreate(&stream));
  REQUIRE_CUDA(cudaMalloc(&memory, 64));
  Observed observed;
  REQUIRE_CUDA(cudaMemsetAsync(memory, 0, 64, stream));
  CHECK(cudaMemsetAsync(nullptr, 0, 64, stream) == cudaErrorInvalidValue);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  observed.stop();
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);  // not observed any more
  REQUIRE_CUDA(cudaFree(memory));
  REQUIRE_CUDA(cudaStreamDestroy(stream));

  REQUIRE(observed.calls.size() == 3);
  CHECK(std::string(observed.calls[0].name) == "cudaMemsetAsync");
  CHECK(observed.calls[0].result == cudaSuccess);
  CHECK(observed.calls[1].result == cudaErrorInvalidValue);
  CHECK(std::string(observed.calls[2].name) == "cudaStreamSynchronize");
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(observed.calls[i].begin <= observed.calls[i].end);
    if (i > 0) CHECK(observed.calls[i].begin >= observed.calls[i - 1].end);
    if (i > 0) CHECK(observed.calls[i].number > observed.calls[i - 1].number);
  }
  REQUIRE(observed.operations.size() == 1);
  CHECK(observed.operations[0].kind == emulation::OperationKind::fill);
  CHECK(observed.operations[0].call == observed.calls[0].number);
  CHECK(observed.operations[0].submitted >= observed.calls[0].begin);
  CHECK(observed.operations[0].end <= observed.calls[2].end);
}

TEST_CASE("observation: what is taken on each device when a call returns", "[emulation]") {
  void* memory = nullptr;
  std::vector<std::size_t> bytes;
  const auto on_call = [](void* seen, const emulation::ApiCall& call) {
    REQUIRE(call.devices >= 1);
    static_cast<std::vector<std::size_t>*>(seen)->push_back(call.device_bytes[0]);
  };
  const auto on_operation = [](void*, const emulation::Operation&) {};
  REQUIRE(emulation::observe({&bytes, on_call, on_operation}));
  std::size_t free = 0, total = 0;
  REQUIRE_CUDA(cudaMemGetInfo(&free, &total));
  REQUIRE_CUDA(cudaMalloc(&memory, 1 << 20));
  REQUIRE_CUDA(cudaFree(memory));
  emulation::stop_observing();
  CHECK(bytes == std::vector<std::size_t>{total - free, total - free + (1 << 20), total - free});
}

TEST_CASE("observation: there is one observer, and it stays through a reset", "[emulation]") {
  Observed observed;
  CHECK_FALSE(emulation::observe({nullptr, nullptr, nullptr}));
  emulation::reset(emulation::options());
  REQUIRE_CUDA(cudaDeviceSynchronize());
  REQUIRE(observed.calls.size() == 1);
  observed.stop();
  REQUIRE_CUDA(cudaDeviceSynchronize());
  CHECK(observed.calls.size() == 1);
}

TEST_CASE("observation: work that was submitted before has no call", "[emulation]") {
  cudaStream_t stream = nullptr;
  REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  penstock::test::Gate gate;
  gate.hold(stream);
  gate.wait_until_reached();
  Observed observed;
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  observed.stop();
  REQUIRE_CUDA(cudaStreamDestroy(stream));
  REQUIRE(observed.operations.size() == 1);
  CHECK(observed.operations[0].kind == emulation::OperationKind::host_function);
  CHECK(observed.operations[0].function != nullptr);
  CHECK(observed.operations[0].call == 0);
  CHECK(observed.operations[0].begin <= observed.operations[0].end);
}

TEST_CASE("observation: begins and ends while threads call", "[emulation]") {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (!stop) cudaDeviceSynchronize();
    });
  for (int round = 0; round < 50; ++round) {
    Observed observed;
    REQUIRE_CUDA(cudaDeviceSynchronize());
    observed.stop();
    std::set<std::uint64_t> numbers;
    for (const emulation::ApiCall& call : observed.calls) numbers.insert(call.number);
    CHECK(numbers.size() == observed.calls.size());
    CHECK(!observed.calls.empty());
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}
