// SPDX-License-Identifier: Apache-2.0

// What memory holds before the program has written it: never zeros, and under each schedule
// something else.

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <penstock/emulation.hpp>
#include <set>
#include <vector>

#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"

using namespace penstock::test;
namespace emulation = penstock::emulation;

namespace {

// More than one piece of the copy-on-write mapping, and no whole number of them or of pages.
constexpr std::size_t kManyBytes = (std::size_t{9} << 20) + 77;

enum class Kind { device, managed, ordered, host_alloc, malloc_host };

void* allocate(Kind kind, std::size_t bytes, cudaStream_t stream) {
  void* data = nullptr;
  switch (kind) {
    case Kind::device:
      REQUIRE_CUDA(cudaMalloc(&data, bytes));
      break;
    case Kind::managed:
      REQUIRE_CUDA(cudaMallocManaged(&data, bytes, cudaMemAttachGlobal));
      break;
    case Kind::ordered:
      REQUIRE_CUDA(cudaMallocAsync(&data, bytes, stream));
      break;
    case Kind::host_alloc:
      REQUIRE_CUDA(cudaHostAlloc(&data, bytes, cudaHostAllocPortable));
      break;
    case Kind::malloc_host:
      REQUIRE_CUDA(cudaMallocHost(&data, bytes));
      break;
  }
  return data;
}

void release(Kind kind, void* data, cudaStream_t stream) {
  if (kind == Kind::ordered)
    CHECK_CUDA(cudaFreeAsync(data, stream));
  else if (kind == Kind::host_alloc || kind == Kind::malloc_host)
    CHECK_CUDA(cudaFreeHost(data));
  else
    CHECK_CUDA(cudaFree(data));
}

/// The different bytes that the memory holds.
std::set<unsigned> values(const void* data, std::size_t bytes, cudaStream_t stream) {
  std::vector<std::uint8_t> copy(bytes);
  REQUIRE_CUDA(cudaMemcpyAsync(copy.data(), data, bytes, cudaMemcpyDefault, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  std::array<bool, 256> found{};  // A set of all bytes takes long under ThreadSanitizer.
  for (const std::uint8_t byte : copy) found[byte] = true;
  std::set<unsigned> values;
  for (unsigned value = 0; value < found.size(); ++value)
    if (found[value]) values.insert(value);
  return values;
}

unsigned fresh_value(emulation::Schedule schedule, std::uint64_t seed) {
  emulation::Options options;
  options.schedule = schedule;
  options.seed = seed;
  emulation::reset(options);
  const TestStream stream;
  void* const data = allocate(Kind::device, 1, stream);
  const std::set<unsigned> found = values(data, 1, stream);
  release(Kind::device, data, stream);
  return *found.begin();
}

std::size_t resident_bytes() {
  std::size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

TEST_CASE("fresh memory of every kind is not zero", "[emulation][memory][held]") {
  const TestStream stream;
  const Kind kind =
      GENERATE(Kind::device, Kind::managed, Kind::ordered, Kind::host_alloc, Kind::malloc_host);
  void* const data = allocate(kind, kManyBytes, stream);
  const std::set<unsigned> found = values(data, kManyBytes, stream);
  CHECK(found.size() == 1);
  CHECK(found.count(0) == 0);
  release(kind, data, stream);
}

// CUDA does not say what such memory holds, and a program on a GPU may find the old bytes there.
TEST_CASE("memory that is used again holds nothing of what it held",
          "[emulation][memory][stricter]") {
  const TestStream stream;
  const Kind kind =
      GENERATE(Kind::device, Kind::managed, Kind::ordered, Kind::host_alloc, Kind::malloc_host);
  for (int round = 0; round < 2; ++round) {
    void* const data = allocate(kind, 100'000, stream);
    CHECK(values(data, 100'000, stream).count(0) == 0);
    REQUIRE_CUDA(cudaMemsetAsync(data, 0, 100'000, stream));
    release(kind, data, stream);
  }
}

// CUDA does not say what the memory holds when it is used again.
TEST_CASE("stream-ordered memory that cudaFree freed holds nothing of what it held",
          "[emulation][memory][pool][stricter]") {
  const TestStream stream;
  cudaMemPool_t pool = nullptr;
  std::uint64_t threshold = ~std::uint64_t{0};
  REQUIRE_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
  REQUIRE_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  void* first = nullptr;
  for (int round = 0; round < 2; ++round) {
    void* const data = allocate(Kind::ordered, 4096, stream);
    if (round == 1) CHECK(data == first);
    first = data;
    CHECK(values(data, 4096, stream).count(0) == 0);
    REQUIRE_CUDA(cudaMemsetAsync(data, 0, 4096, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaFree(data));
  }
}

// CUDA does not say what the memory holds, and a GPU may leave what the launch before wrote.
TEST_CASE("memory of a graph is fresh in each launch", "[emulation][memory][graph][stricter]") {
  const TestStream stream;
  const PinnedMemory<std::uint8_t> seen(64);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  void* data = nullptr;
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK_CUDA(cudaMallocAsync(&data, 64, stream));
  CHECK_CUDA(cudaMemcpyAsync(seen.data(), data, 64, cudaMemcpyDeviceToHost, stream));
  CHECK_CUDA(cudaMemsetAsync(data, 0, 64, stream));
  CHECK_CUDA(cudaFreeAsync(data, stream));
  REQUIRE_CUDA(cudaStreamEndCapture(stream, &graph));
  REQUIRE_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (int launch = 0; launch < 2; ++launch) {
    seen.set(0);
    REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    CHECK(seen.all(seen[0]));
    CHECK(seen[0] != 0);
  }
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK_CUDA(cudaGraphDestroy(graph));
}

TEST_CASE("fresh memory differs from schedule to schedule", "[emulation][memory]") {
  const unsigned eager = fresh_value(emulation::Schedule::eager, 1);
  const unsigned lazy = fresh_value(emulation::Schedule::lazy, 1);
  std::set<unsigned> random;
  for (std::uint64_t seed = 1; seed <= 8; ++seed)
    random.insert(fresh_value(emulation::Schedule::random, seed));
  CHECK(eager != lazy);
  CHECK(random.count(eager) + random.count(lazy) == 0);
  CHECK(random.size() > 4);
  CHECK(fresh_value(emulation::Schedule::random, 3) == fresh_value(emulation::Schedule::random, 3));
}

TEST_CASE("the runtime's files do not become a closed standard input", "[emulation][memory]") {
  const int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 100);
  close(STDIN_FILENO);
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = open_files();
  for (std::uint64_t seed = 1000; seed < 1100; ++seed) {  // There is a file for each fresh value.
    emulation::Options options;
    options.schedule = emulation::Schedule::random;
    options.seed = seed;
    emulation::reset(options);
    void* data = nullptr;
    REQUIRE_CUDA(cudaMalloc(&data, kManyBytes));
    CHECK_CUDA(cudaFree(data));
  }
  CHECK(open_files() > before);
  CHECK(fcntl(STDIN_FILENO, F_GETFD) == -1);
  if (kept < 0) return;
  dup2(kept, STDIN_FILENO);
  close(kept);
}

TEST_CASE("device memory that nobody touches takes no memory of the host", "[emulation][memory]") {
  constexpr std::size_t four_gib = std::size_t{4} << 30;
  const std::size_t before = resident_bytes();
  void* data = nullptr;
  REQUIRE_CUDA(cudaMalloc(&data, four_gib));
  CHECK(resident_bytes() < before + four_gib / 64);
  CHECK_CUDA(cudaFree(data));
}

TEST_CASE("a stream-ordered free of memory that nobody touched writes none of it",
          "[emulation][memory][pool][held]") {
  constexpr std::size_t one_gib = std::size_t{1} << 30;
  const TestStream stream;
  cudaMemPool_t pool = nullptr;
  std::uint64_t keep_all = ~std::uint64_t{0};
  REQUIRE_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
  REQUIRE_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_all));
  const bool by_the_host = GENERATE(false, true);
  const std::size_t before = resident_bytes();
  void* const data = allocate(Kind::ordered, one_gib, stream);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  REQUIRE_CUDA(by_the_host ? cudaFree(data) : cudaFreeAsync(data, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  // Of the shadow that sanitizers keep there may be an eighth.
  CHECK(resident_bytes() < before + one_gib / 4);
}

// CUDA does not say what the memory holds when it is used again.
TEST_CASE("large stream-ordered memory that is used again holds nothing of what it held",
          "[emulation][memory][pool][stricter]") {
  constexpr std::size_t bytes = std::size_t{32} << 20;
  const TestStream stream;
  cudaMemPool_t pool = nullptr;
  std::uint64_t keep_all = ~std::uint64_t{0};
  REQUIRE_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
  REQUIRE_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_all));
  void* const first = allocate(Kind::ordered, bytes, stream);
  REQUIRE_CUDA(cudaMemsetAsync(first, 0, bytes, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  const std::size_t written = resident_bytes();
  release(Kind::ordered, first, stream);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(resident_bytes() + bytes / 2 < written);
  void* const second = allocate(Kind::ordered, bytes, stream);
  CHECK(second == first);
  CHECK(values(second, bytes, stream).count(0) == 0);
  release(Kind::ordered, second, stream);
}
