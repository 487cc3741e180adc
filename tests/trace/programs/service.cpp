// SPDX-License-Identifier: Apache-2.0

// A service to be traced for its last moments, by service_test.sh: service <what it does>. It says
// "ready" and its number, takes numbered steps until SIGTERM, and says "steps N". Each step has a
// copy of 1000 + its number bytes, and a thread of its own with names that no other has. Knows
// nothing of the trace.
//
//   steps            no more than that
//   early, late      handles SIGUSR2 itself, from before its first call of CUDA or only then
//   stall            has a pipeline that stalls at step 20
//   memory <n>       says how much memory it has, eight times in n steps, and ends

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <penstock/cuda.hpp>
#include <penstock/prefetcher.hpp>
#include <string>
#include <thread>

#include "../nvtx_attributes.hpp"

namespace {

using namespace std::chrono_literals;

volatile std::sig_atomic_t ended = 0, own_signals = 0;

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::cerr << cudaGetErrorString(status) << std::endl;
  std::exit(1);
}

struct Buffers {
  static constexpr std::size_t kBytes = 1 << 20;
  Buffers() {
    check(cudaMalloc(&device, kBytes));
    check(cudaMallocHost(&host, kBytes));
  }
  ~Buffers() {
    cudaFree(device);
    cudaFreeHost(host);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  void* device = nullptr;
  void* host = nullptr;
};

void serve_request(std::uint64_t number, const Buffers& buffers) {
  const std::string name = "request " + std::to_string(number);
  nvtxNameOsThreadA(static_cast<std::uint32_t>(::syscall(SYS_gettid)), name.c_str());
  nvtxRangePushA(name.c_str());
  const penstock::Stream stream;
  check(cudaMemsetAsync(buffers.device, 0, 64, stream.get()));
  check(cudaStreamSynchronize(stream.get()));
  nvtxRangePop();
}

void step(std::uint64_t number, const Buffers& buffers, cudaStream_t stream) {
  penstock::test::push_step(number);
  check(
      cudaMemcpyAsync(buffers.device, buffers.host, 1000 + number, cudaMemcpyHostToDevice, stream));
  check(cudaStreamSynchronize(stream));
  std::thread(serve_request, number, std::cref(buffers)).join();
  nvtxRangePop();
}

struct Batch {
  penstock::Tensor<float, 1> values;
};

/// The source of a pipeline does not return, for a while.
void stall(cudaStream_t stream) {
  const auto layout = penstock::Layout<Batch>{4}.field(&Batch::values, {});
  const penstock::Sampler sampler({.samples = 4, .batch_size = 4});
  penstock::PrefetcherOptions options;
  options.stall_timeout = 100ms;
  penstock::Prefetcher<Batch> prefetcher(
      layout, sampler, [](const penstock::Ticket&, Batch&) { std::this_thread::sleep_for(150ms); },
      options);
  try {
    prefetcher.next(stream);
  } catch (const penstock::StallError& error) {
    std::cout << "stalled: " << error.what() << std::endl;
  }
}

/// KiB that the process has in memory.
long resident() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmRSS:")) return std::atol(line.c_str() + 6);
  return 0;
}

int run(const std::string& how, std::uint64_t steps) {
  const Buffers buffers;
  const penstock::Stream stream;
  if (how == "late") std::signal(SIGUSR2, [](int) { own_signals = own_signals + 1; });
  std::uint64_t number = 0;
  for (; ended == 0; ++number) {
    if (steps != 0 && number % (steps / 8) == 0) std::cout << "memory " << resident() << std::endl;
    if (steps != 0 && number == steps) break;
    if (how == "stall" && number == 20) stall(stream.get());
    step(number, buffers, stream.get());
    if (number == 0) std::cout << "ready " << ::getpid() << std::endl;
    if (steps == 0) std::this_thread::sleep_for(1ms);
  }
  std::cout << "steps " << number << std::endl;
  std::cout << "own signals " << own_signals << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "steps";
  std::signal(SIGTERM, [](int) { ended = 1; });
  if (how == "early") std::signal(SIGUSR2, [](int) { own_signals = own_signals + 1; });
  return run(how, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0);
}
