// SPDX-License-Identifier: Apache-2.0
#pragma once

// Work of known length for traces, and the events that it leaves in a timeline.

#include <sys/syscall.h>
#include <unistd.h>
#include <penstock/trace/session.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/memory.hpp"

namespace penstock::test {

inline constexpr std::size_t kBytes = 1 << 20;

static __global__ void add_one(unsigned char* data, std::size_t size) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < size) ++data[i];
}

/// Takes that long by the device's clock, whose steps are up to a microsecond.
static __global__ void spin_for(unsigned long long nanoseconds) {
  unsigned long long start = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}

static void launch_add(const DeviceMemory<unsigned char>& memory, cudaStream_t stream) {
  add_one<<<256, 256, 0, stream>>>(memory.data(), memory.bytes());
  REQUIRE_CUDA(cudaGetLastError());
}

static void launch_spin(unsigned long long nanoseconds, cudaStream_t stream) {
  spin_for<<<1, 1, 0, stream>>>(nanoseconds);
  REQUIRE_CUDA(cudaGetLastError());
}

inline trace::Time host_time() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

inline std::uint64_t thread_id() {
  return static_cast<std::uint64_t>(::syscall(SYS_gettid));
}

inline std::vector<trace::Event> of_kind(const trace::Timeline& timeline, trace::Kind kind) {
  std::vector<trace::Event> found;
  for (const trace::Event& event : timeline.events)
    if (event.kind == kind) found.push_back(event);
  return found;
}

inline std::vector<trace::Event> copies(const trace::Timeline& timeline,
                                        trace::Direction direction) {
  std::vector<trace::Event> found;
  for (const trace::Event& event : of_kind(timeline, trace::Kind::copy))
    if (event.direction == direction) found.push_back(event);
  return found;
}

inline std::uint64_t bytes_of(const std::vector<trace::Event>& events) {
  std::uint64_t sum = 0;
  for (const trace::Event& event : events) sum += event.value;
  return sum;
}

inline std::vector<trace::Event> calls(const trace::Timeline& timeline, const std::string& name) {
  std::vector<trace::Event> found;
  for (const trace::Event& event : of_kind(timeline, trace::Kind::call))
    if (timeline.name(event) == name) found.push_back(event);
  return found;
}

/// The call that put the event on its stream.
inline std::optional<trace::Event> call_of(const trace::Timeline& timeline,
                                           const trace::Event& event) {
  for (const trace::Event& call : timeline.events)
    if (call.kind == trace::Kind::call && call.correlation == event.correlation) return call;
  return std::nullopt;
}

inline void check_order(const trace::Timeline& timeline) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < timeline.events.size(); ++i) {
    const trace::Event& event = timeline.events[i];
    wrong += event.end < event.begin || event.begin < timeline.begin || event.end > timeline.end;
    wrong += i > 0 && event.begin < timeline.events[i - 1].begin;
  }
  CHECK(wrong == 0);
}

}  // namespace penstock::test
