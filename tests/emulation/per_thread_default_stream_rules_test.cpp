// SPDX-License-Identifier: Apache-2.0

// The rules of programs that are compiled for per-thread default streams.

// This file is such a program. It includes nothing of support/ that calls CUDA: inline functions
// must be the same in every file.

#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1

#include <atomic>
#include <thread>

#include "support/catch.hpp"
#include "support/eventually.hpp"

namespace {

/// A host function that waits until `open` is set.
void CUDART_CB wait_until_open(void* open) {
  (void)penstock::test::eventually([&] { return static_cast<std::atomic<bool>*>(open)->load(); });
}

}  // namespace

// CUDA C++ Programming Guide, Default Stream: "For code that is compiled using the --default-stream
// per-thread compilation flag (or that defines the CUDA_API_PER_THREAD_DEFAULT_STREAM macro before
// including CUDA headers ...), the default stream is a regular stream and each host thread has its
// own default stream."
TEST_CASE("stream 0 is the thread's own where a program is compiled so",
          "[rules][default-stream]") {
  void* memory = nullptr;
  REQUIRE_CUDA(cudaMalloc(&memory, 64));
  REQUIRE_CUDA(cudaDeviceSynchronize());
  std::atomic<bool> open{false};
  REQUIRE_CUDA(cudaLaunchHostFunc(nullptr, &wait_until_open, &open));
  CHECK(cudaStreamQuery(nullptr) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(cudaStreamPerThread) == cudaErrorNotReady);

  // Neither the queued fill nor the blocking copy of another thread meets this thread's stream.
  cudaError_t fill = cudaErrorUnknown, copy = cudaErrorUnknown;
  unsigned char value = 0;
  std::thread([&] {
    fill = cudaMemsetAsync(memory, 7, 64, nullptr);
    copy = cudaMemcpy(&value, memory, 1, cudaMemcpyDeviceToHost);
  }).join();
  CHECK(fill == cudaSuccess);
  CHECK(copy == cudaSuccess);
  CHECK(int{value} == 7);
  CHECK(cudaStreamQuery(nullptr) == cudaErrorNotReady);

  open = true;
  CHECK_CUDA(cudaStreamSynchronize(nullptr));
  CHECK_CUDA(cudaFree(memory));
}

// The same of a prefetch. The fill behind it would wait for the legacy stream, which waits for the
// first thread's.
TEST_CASE("a prefetch in stream 0 is in the thread's own where a program is compiled so",
          "[rules][default-stream][managed]") {
  int concurrent = 0;
  REQUIRE_CUDA(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, 0));
  if (concurrent == 0) return;
  void* memory = nullptr;
  REQUIRE_CUDA(cudaMallocManaged(&memory, 64, cudaMemAttachGlobal));
  std::atomic<bool> open{false};
  REQUIRE_CUDA(cudaLaunchHostFunc(nullptr, &wait_until_open, &open));
  cudaError_t prefetch = cudaErrorUnknown, fill = cudaErrorUnknown, wait = cudaErrorUnknown;
  std::thread([&] {
#if CUDART_VERSION >= 13000
    prefetch = cudaMemPrefetchAsync(memory, 64, {cudaMemLocationTypeDevice, 0}, 0, nullptr);
#else
    prefetch = cudaMemPrefetchAsync(memory, 64, 0, nullptr);
#endif
    fill = cudaMemsetAsync(memory, 7, 64, nullptr);
    wait = cudaStreamSynchronize(nullptr);
  }).join();
  CHECK(prefetch == cudaSuccess);
  CHECK(fill == cudaSuccess);
  CHECK(wait == cudaSuccess);
  CHECK(cudaStreamQuery(nullptr) == cudaErrorNotReady);

  open = true;
  CHECK_CUDA(cudaStreamSynchronize(nullptr));
  CHECK_CUDA(cudaFree(memory));
}

// The same of calls about captures and graphs: the legacy stream cannot be captured.
TEST_CASE(
    "a capture into a graph in stream 0 is of the thread's own where a program is compiled so",
    "[rules][default-stream][capture]") {
  static std::atomic<int> ran;
  ran = 0;
  cudaGraph_t graph = nullptr, same = nullptr;
  cudaGraphNode_t first = nullptr;
  REQUIRE_CUDA(cudaGraphCreate(&graph, 0));
  REQUIRE_CUDA(cudaGraphAddEmptyNode(&first, graph, nullptr, 0));
  REQUIRE_CUDA(cudaStreamBeginCaptureToGraph(nullptr, graph, nullptr, nullptr, 0,
                                             cudaStreamCaptureModeThreadLocal));
#if CUDART_VERSION >= 13000
  CHECK_CUDA(cudaStreamUpdateCaptureDependencies(nullptr, &first, nullptr, 1,
                                                 cudaStreamSetCaptureDependencies));
#else
  CHECK_CUDA(cudaStreamUpdateCaptureDependencies_v2(nullptr, &first, nullptr, 1,
                                                    cudaStreamSetCaptureDependencies));
#endif
  const auto count = [](void*) { ++ran; };
  CHECK_CUDA(cudaLaunchHostFunc(nullptr, count, nullptr));
  REQUIRE_CUDA(cudaStreamEndCapture(nullptr, &same));
  CHECK(same == graph);
  std::size_t dependents = 0;
#if CUDART_VERSION >= 13000
  CHECK_CUDA(cudaGraphNodeGetDependentNodes(first, nullptr, nullptr, &dependents));
#else
  CHECK_CUDA(cudaGraphNodeGetDependentNodes(first, nullptr, &dependents));
#endif
  CHECK(dependents == 1);
  cudaGraphInstantiateParams params{};
  params.flags = cudaGraphInstantiateFlagUpload;
  cudaGraphExec_t exec = nullptr;
  REQUIRE_CUDA(cudaGraphInstantiateWithParams(&exec, graph, &params));
  CHECK(params.uploadStream == nullptr);
  CHECK_CUDA(cudaGraphLaunch(exec, nullptr));
  CHECK_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
  CHECK(ran == 1);
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK_CUDA(cudaGraphDestroy(graph));
}
