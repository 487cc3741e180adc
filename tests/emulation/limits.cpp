// SPDX-License-Identifier: Apache-2.0

// The emulated runtime in a process that the system gives no more (ulimit -v): calls fail with
// cudaErrorMemoryAllocation, and standard error says why.
//
//   limits addresses     none for the memory of the machine
//   limits eager|lazy|random     none for the stack of a stream's thread, under this schedule

#include <cuda_runtime_api.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <penstock/emulation.hpp>
#include <string>

namespace emulation = penstock::emulation;

namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(EXIT_FAILURE);
}
#define REQUIRE(condition) require(condition, #condition)

void limit_addresses(rlim_t bytes) {
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_AS, &limit) == 0);
  limit.rlim_cur = bytes;
  REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
}

rlim_t addresses_in_use() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

bool throws_for(const emulation::Options& options) {
  try {
    emulation::reset(options);
  } catch (const std::bad_alloc& error) {
    return std::string(error.what()).find("ulimit -v") != std::string::npos;
  }
  return false;
}

void without_addresses() {
  void* data = nullptr;
  limit_addresses(rlim_t{4} << 30);
  REQUIRE(cudaMalloc(&data, 64) == cudaErrorMemoryAllocation);
  REQUIRE(cudaGetLastError() == cudaErrorMemoryAllocation);
  REQUIRE(throws_for({}));
  REQUIRE(cudaMalloc(&data, 64) == cudaErrorMemoryAllocation);
  emulation::Options small;
  small.machine.device_bytes = small.machine.pinned_bytes = std::size_t{64} << 20;
  emulation::reset(small);
  REQUIRE(cudaMalloc(&data, 64) == cudaSuccess);
  REQUIRE(cudaMemset(data, 0, 64) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  REQUIRE(cudaFree(data) == cudaSuccess);
}

void without_threads(emulation::Schedule schedule) {
  emulation::Options options;
  options.schedule = schedule;
  emulation::reset(options);
  cudaStream_t stream = nullptr;
  void *data = nullptr, *ordered = nullptr;
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  REQUIRE(cudaMalloc(&data, std::size_t{1} << 20) == cudaSuccess);
  REQUIRE(emulation::live().device_allocations == 1);
  const auto nothing = [](void*) {};
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  limit_addresses(addresses_in_use() + (rlim_t{2} << 20));  // A stack has more.
  REQUIRE(cudaLaunchHostFunc(stream, nothing, nullptr) == cudaErrorMemoryAllocation);
  REQUIRE(cudaMemsetAsync(data, 0, std::size_t{1} << 20, stream) == cudaErrorMemoryAllocation);
  if (schedule != emulation::Schedule::eager) {
    REQUIRE(cudaMallocAsync(&ordered, 64, stream) == cudaErrorMemoryAllocation);
    REQUIRE(emulation::live().device_allocations == 1);
  }
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  cudaGetLastError();
  REQUIRE(cudaLaunchHostFunc(stream, nothing, nullptr) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
  REQUIRE(cudaFree(data) == cudaSuccess);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string scenario = argc == 2 ? argv[1] : "";
  if (scenario == "addresses") {
    without_addresses();
  } else if (scenario == "eager") {
    without_threads(emulation::Schedule::eager);
  } else if (scenario == "lazy") {
    without_threads(emulation::Schedule::lazy);
  } else if (scenario == "random") {
    without_threads(emulation::Schedule::random);
  } else {
    std::fprintf(stderr, "limits addresses | eager | lazy | random\n");
    return EXIT_FAILURE;
  }
  std::puts("all as it should be");
}
