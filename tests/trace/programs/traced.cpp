// SPDX-License-Identifier: Apache-2.0

// A program to be traced, by penstock_trace_test.sh: traced <what it does>. Knows nothing of the
// trace but for "session". "traced input N" waits N microseconds for each batch.

#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <latch>
#include <penstock/cuda.hpp>
#include <penstock/launch.hpp>
#include <penstock/trace/session.hpp>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kBytes = std::size_t{256} << 10;
constexpr int kSteps = 20;

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::cerr << cudaGetErrorString(status) << std::endl;
  std::exit(1);
}

struct Scale {
  unsigned char* data;
  void operator()(std::int64_t i) const { data[i] = static_cast<unsigned char>(data[i] * 3); }
};

struct Memory {
  Memory() {
    check(cudaMalloc(&device, kBytes));
    check(cudaMallocHost(&pinned, kBytes));
    std::memset(pinned, 1, kBytes);
  }
  ~Memory() {
    cudaFree(device);
    cudaFreeHost(pinned);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* device = nullptr;
  void* pinned = nullptr;
  std::vector<unsigned char> pageable = std::vector<unsigned char>(kBytes, 1);
};

void get_batch(int microseconds) {
  nvtxRangePushA("get batch");
  nvtxRangePushA("load");
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  nvtxRangePop();
  nvtxRangePop();
}

void step(const std::string& how, int microseconds, const Memory& memory, cudaStream_t stream) {
  nvtxRangePushA("step");
  if (how == "input") get_batch(microseconds);
  if (how == "synchronous")
    check(cudaMemcpy(memory.device, memory.pinned, kBytes, cudaMemcpyHostToDevice));
  else
    check(cudaMemcpyAsync(memory.device, how == "pageable" ? memory.pageable.data() : memory.pinned,
                          kBytes, cudaMemcpyHostToDevice, stream));
  penstock::for_each(stream, kBytes, Scale{static_cast<unsigned char*>(memory.device)});
  if (how != "unfinished") check(cudaStreamSynchronize(stream));
  nvtxRangePop();
}

/// What stands for the end of a program that somebody stops.
int wait_for_a_signal() {
  std::cout << "ready" << std::endl;
  while (true) ::pause();
}

/// Two threads, within each other's handler.
int crash_twice() {
  std::latch both(2);
  const auto crash = [&both] {
    both.arrive_and_wait();
    std::raise(SIGSEGV);
  };
  std::thread other(crash);
  crash();
  other.join();
  return 0;
}

/// In a program that is traced already.
int try_a_session() {
  try {
    const penstock::trace::Session session;
  } catch (const penstock::trace::Unavailable& error) {
    std::cout << error.what() << std::endl;
    return 0;
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "clean";
  const Memory memory;
  const penstock::Stream stream;
  if (how == "range") check(cudaProfilerStart());
  for (int i = 0; i < kSteps; ++i) {
    step(how, argc > 2 ? std::atoi(argv[2]) : 0, memory, stream.get());
    if (how == "range" && i == 4) check(cudaProfilerStop());
  }
  if (how == "abort") std::abort();
  if (how == "crash") return crash_twice();
  if (how == "wait") return wait_for_a_signal();
  if (how == "session") return try_a_session();
  if (how == "quick") std::quick_exit(5);
  if (how == "unfinished") std::exit(0);  // its work is still in the stream
  if (how == "drops_root" && ::setuid(65534) != 0) return 1;
  if (how == "fails") return 9;
  return 0;
}
