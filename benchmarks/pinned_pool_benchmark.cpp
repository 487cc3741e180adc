// SPDX-License-Identifier: Apache-2.0

// What it costs to get a block from a PinnedPool and to give it back, against the standard
// library's pool that threads may share. One pool for all threads; neither side touches the memory.
// Both pools have their memory before the time begins: to page-lock a block takes a thousand times
// as long as to hand it out.

#include <penstock/pinned_pool.hpp>

#include <array>
#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

#include "side_by_side.hpp"

namespace {

constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;

class Ours {
 public:
  static constexpr const char* kName = "ours";
  /// Each thread calls it, for the block that it may hold while the others hold theirs.
  void warm_up(std::size_t bytes) { pool_.reserve(1, bytes); }
  void acquire_and_release(std::size_t bytes) {
    const penstock::PinnedBlock block = pool_.acquire(bytes);
    benchmark::DoNotOptimize(block.data());
  }

 private:
  penstock::PinnedPool pool_{{.max_bytes = 256 * kMiB}};
};

class Standard {
 public:
  static constexpr const char* kName = "std::pmr";
  /// Each thread calls it: this pool keeps memory for each thread.
  void warm_up(std::size_t bytes) { acquire_and_release(bytes); }
  void acquire_and_release(std::size_t bytes) {
    void* const block = resource_.allocate(bytes, 256);
    benchmark::DoNotOptimize(block);
    resource_.deallocate(block, bytes, 256);
  }

 private:
  // Without the option, large blocks would go to the upstream resource each time.
  std::pmr::synchronized_pool_resource resource_{{.largest_required_pool_block = 4 * kMiB}};
};

/// Lives from before the threads of a run start until they have ended: the standard pool's own
/// clean-up at the end of a thread is a race with its destructor.
template <class Pool>
std::optional<Pool> shared_pool;

/// Each thread goes around `sizes`. The time begins when all of them are warm.
template <class Pool>
void acquire_and_release(benchmark::State& state, const std::vector<std::size_t>& sizes) {
  Pool& pool = *shared_pool<Pool>;
  for (const std::size_t bytes : sizes) pool.warm_up(bytes);
  std::size_t turn = 0;
  for (auto _ : state) {
    pool.acquire_and_release(sizes[turn]);
    turn = turn + 1 == sizes.size() ? 0 : turn + 1;
  }
}

/// The way of a block in a pipeline: it comes back when what its stream holds is done. No peer does
/// that; the time includes CUDA's own for the event.
void acquire_and_release_after(benchmark::State& state) {
  const penstock::Stream stream;
  penstock::PinnedPool pool{{.max_bytes = kMiB}};
  pool.reserve(kMiB / (4 * kKiB), 4 * kKiB);
  for (auto _ : state) {
    penstock::PinnedBlock block = pool.acquire(4 * kKiB);
    benchmark::DoNotOptimize(block.data());
    block.release_after(stream.get());
  }
}

template <class Pool>
void add(const std::string& name, const std::vector<std::size_t>& sizes) {
  benchmark::RegisterBenchmark((name + '/' + Pool::kName).c_str(), acquire_and_release<Pool>, sizes)
      ->Setup([](const benchmark::State&) { shared_pool<Pool>.emplace(); })
      ->Teardown([](const benchmark::State&) { shared_pool<Pool>.reset(); })
      ->Threads(1)
      ->Threads(8)
      ->UseRealTime();
}

}  // namespace

int main(int argc, char** argv) {
  const auto add_both = [](const std::string& name, const std::vector<std::size_t>& sizes) {
    add<Ours>(name, sizes);
    add<Standard>(name, sizes);
  };
  add_both("acquire_release/4KiB", {4 * kKiB});
  add_both("acquire_release/1MiB", {kMiB});
  add_both("acquire_release/mixed", {4 * kKiB, 48 * kKiB, 300 * kKiB, kMiB});
  benchmark::RegisterBenchmark("acquire_release_after/4KiB", acquire_and_release_after);
  return penstock::benchmarks::run_side_by_side(argc, argv);
}
