// SPDX-License-Identifier: Apache-2.0

// What a trace costs the program that is traced: the same loop without and with a trace::Session,
// in turn, in one run; the medians of the rounds and what the second is above the first.
//
//   1 ms step      a step of 8 kernels of 0.12 ms and a copy of 1 MiB beside them, in an NVTX
//                  range; the host is two steps ahead, as training loops are
//   launch-bound   kernels that do nothing, one after the other: the worst case
//   graph          a graph of 20 such kernels, each of which is an event
//
// And what it costs to keep the last second alone (SessionOptions::last), and to look at it
// (Session::recent) while the 1 ms steps go on.
//
// trace_overhead_benchmark [rounds]

#include <cuda_runtime.h>
#include <nvtx3/nvtx3.hpp>
#include <penstock/cuda.hpp>
#include <penstock/error.hpp>
#include <penstock/trace/session.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

namespace {

using penstock::trace::Session;
using penstock::trace::Timeline;

constexpr std::size_t kBytes = 1 << 20;
constexpr int kSteps = 400, kLaunches = 20'000, kGraphs = 2'000, kGraphKernels = 20;

void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw penstock::CudaError(status, call);
}

__global__ void nothing() {}

__global__ void spin_for(unsigned long long nanoseconds) {
  unsigned long long start = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}

/// What the loops use; made once, so that no round allocates.
struct Machine {
  Machine() {
    check(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cudaStreamCreateWithFlags(&copy, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    for (cudaEvent_t& event : ends)
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    check(cudaMalloc(&device, kBytes), "cudaMalloc");
    check(cudaMallocHost(&host, kBytes), "cudaMallocHost");
    cudaGraph_t captured = nullptr;
    check(cudaStreamBeginCapture(compute, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    for (int i = 0; i < kGraphKernels; ++i) nothing<<<1, 1, 0, compute>>>();
    check(cudaStreamEndCapture(compute, &captured), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&graph, captured, 0), "cudaGraphInstantiate");
    check(cudaGraphDestroy(captured), "cudaGraphDestroy");
  }

  cudaStream_t compute = nullptr, copy = nullptr;
  std::array<cudaEvent_t, 2> ends{};
  void *device = nullptr, *host = nullptr;
  cudaGraphExec_t graph = nullptr;
};

void steps(Machine& machine, int count) {
  for (int step = 0; step < count; ++step) {
    const nvtx3::scoped_range range("step");
    cudaEvent_t& end = machine.ends[static_cast<std::size_t>(step) % machine.ends.size()];
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    check(
        cudaMemcpyAsync(machine.device, machine.host, kBytes, cudaMemcpyHostToDevice, machine.copy),
        "cudaMemcpyAsync");
    for (int i = 0; i < 8; ++i) spin_for<<<1, 1, 0, machine.compute>>>(120'000);
    check(cudaEventRecord(end, machine.compute), "cudaEventRecord");
  }
}

void launches(Machine& machine, int count) {
  for (int i = 0; i < count; ++i) nothing<<<1, 1, 0, machine.compute>>>();
}

void graphs(Machine& machine, int count) {
  for (int i = 0; i < count; ++i)
    check(cudaGraphLaunch(machine.graph, machine.compute), "cudaGraphLaunch");
}

struct Case {
  const char* name;
  const char* unit;
  int count;
  void (*loop)(Machine&, int count);
};

/// Microseconds for each pass of the loop, its end on the device included.
double time_of(const Case& what, Machine& machine) {
  what.loop(machine, what.count / 20);  // What the first launches of a session allocate is no cost
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // of a step.
  const auto begin = std::chrono::steady_clock::now();
  what.loop(machine, what.count);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
  return taken.count() / what.count;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double time_with(const penstock::trace::SessionOptions& options, const Case& what,
                 Machine& machine) {
  Session session(options);
  const double time = time_of(what, machine);
  session.stop();
  return time;
}

/// The steps' time while another thread looks ten times a second, and how long a look takes.
void look(Machine& machine, int rounds) {
  const Case what{"1 ms step", "step", kSteps, steps};
  std::vector<double> without, with, looks;
  for (int round = 0; round < rounds; ++round) {
    Session session({.last = std::chrono::seconds(1)});
    without.push_back(time_of(what, machine));
    std::atomic<bool> ends{false};
    std::thread looker([&] {
      while (!ends) {
        const auto begin = std::chrono::steady_clock::now();
        session.recent();
        const std::chrono::duration<double, std::milli> taken =
            std::chrono::steady_clock::now() - begin;
        looks.push_back(taken.count());
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
    });
    with.push_back(time_of(what, machine));
    ends = true;
    looker.join();
  }
  std::printf(
      "a look at the last second takes %.2f ms; steps of %.2f us take %.2f us beside one "
      "each 100 ms\n",
      median(looks), median(without), median(with));
}

void compare(const Case& what, Machine& machine, int rounds) {
  std::vector<double> off, on, no_calls, last;
  std::size_t events = 0, dropped = 0;
  for (int round = 0; round < rounds; ++round) {
    off.push_back(time_of(what, machine));
    {
      Session session;
      on.push_back(time_of(what, machine));
      const Timeline timeline = session.stop();
      events += timeline.events.size();
      dropped += timeline.dropped;
    }
    no_calls.push_back(time_with({.calls = false}, what, machine));
    last.push_back(time_with({.last = std::chrono::seconds(1)}, what, machine));
  }
  const double plain = median(off);
  const auto above = [&](double traced) { return 100 * (traced / plain - 1); };
  std::printf("%-14s off %9.2f us   on %9.2f us  %+6.2f %%   without calls %9.2f us  %+6.2f %%   ",
              what.name, plain, median(on), above(median(on)), median(no_calls),
              above(median(no_calls)));
  std::printf("the last second %9.2f us  %+6.2f %%   ", median(last), above(median(last)));
  std::printf("a %s; %zu events, %zu dropped\n", what.unit, events, dropped);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 7;
  if (argc > 2 || rounds < 1) {
    std::fprintf(stderr, "use: trace_overhead_benchmark [ROUNDS]\n");
    return 2;
  }
  try {
    Machine machine;
    compare({"1 ms step", "step", kSteps, steps}, machine, rounds);
    compare({"launch-bound", "launch", kLaunches, launches}, machine, rounds);
    compare({"graph", "graph of 20 kernels", kGraphs, graphs}, machine, rounds);
    look(machine, rounds);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trace_overhead_benchmark: %s\n", error.what());
    return 1;
  }
  return 0;
}
