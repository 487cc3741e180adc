// SPDX-License-Identifier: Apache-2.0

// A program that forks while a prefetcher, its workers and its leases are alive. The parent goes on
// as if nothing had been; the child can end, by every road.

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <optional>
#include <penstock/batch_producer.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/readback.hpp>
#include <semaphore>
#include <utility>
#include <vector>

#include "pipeline.hpp"

namespace {

using endings::Lease;
using endings::Prefetcher;
using endings::require;

/// Runs `body` in a child, which must end with status 0 within 30 seconds.
void in_child(const std::function<void()>& body) {
  std::fflush(nullptr);
  const ::pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    body();
    ::_exit(EXIT_SUCCESS);
  }
  int status = 0;
  require(::waitpid(child, &status, 0) == child, "the child can be waited for");
  if (WIFSIGNALED(status)) std::fprintf(stderr, "the child ended by signal %d\n", WTERMSIG(status));
  require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ends well");
}

/// A prefetcher and a lease that go at the end of a scope, as they do in a program that returns.
struct Pipeline {
  std::optional<Prefetcher> prefetcher{std::in_place, endings::layout(), endings::sampler(),
                                       endings::fill, endings::kOptions};
  Lease lease = prefetcher->next(nullptr);
};

/// Consumes the whole epoch, and calls `between` after each batch.
void consume(Pipeline& pipeline, const std::function<void(std::uint64_t)>& between) {
  std::uint64_t batch = 0;
  for (; pipeline.lease; pipeline.lease = pipeline.prefetcher->next(nullptr)) {
    require(pipeline.lease.ticket().batch == batch, "the parent's batches come in order");
    between(batch++);
  }
  require(batch == endings::kBatches, "the parent gets them all");
}

constexpr std::uint64_t kForks = 10;  // spread over the epoch, so that workers are anywhere

void parent_goes_on() {
  Pipeline pipeline;
  consume(pipeline, [](std::uint64_t batch) {
    if (batch % (endings::kBatches / kForks) == 0) in_child([] {});
  });
}

void child_destroys() {
  Pipeline pipeline;
  consume(pipeline, [&](std::uint64_t batch) {
    if (batch % (endings::kBatches / kForks) != 0) return;
    in_child([&] {
      pipeline.lease.release();
      pipeline.prefetcher.reset();
    });
    in_child([&] {
      pipeline.prefetcher.reset();
      pipeline.lease.release();
    });
  });
}

void child_exits() {
  static Pipeline pipeline;  // which std::exit destroys
  consume(pipeline, [&](std::uint64_t batch) {
    if (batch % (endings::kBatches / kForks) != 0) return;
    in_child([] { std::exit(EXIT_SUCCESS); });
    in_child([] { std::quick_exit(EXIT_SUCCESS); });
  });
}

/// The parts of a pipeline, each on its own.
void child_destroys_the_parts() {
  const std::size_t bytes =
      penstock::BatchProducer<endings::Values>::block_bytes(endings::layout());
  penstock::PinnedPool pool{{.max_bytes = bytes}};
  std::optional<penstock::PinnedPool> small{std::in_place, penstock::PinnedPoolOptions{bytes}};
  std::optional<penstock::PinnedBlock> block{small->acquire(bytes)};
  penstock::DeviceArena arena{1, 1024};
  std::optional<penstock::DeviceSlot> slot{arena.acquire(nullptr)};
  std::optional<penstock::BatchProducer<endings::Values>> producer{
      std::in_place,
      endings::layout(),
      endings::sampler(),
      endings::fill,
      pool,
      penstock::ProducerOptions{.workers = 2}};
  require(producer->next().has_value(), "there is a batch");
  std::optional<penstock::Readback<float>> readback{std::in_place, 1};
  in_child([&] {
    readback.reset();
    block.reset();
    slot.reset();
    producer.reset();
    small.reset();
  });
  std::uint64_t batches = 1;
  while (producer->next()) ++batches;
  require(batches == endings::kBatches, "the parent gets them all");
}

/// Whatever lock another thread has when the fork happens, nobody opens it in the child.
void child_releases_beside_locks() {
  constexpr std::size_t kBytes = 1024;
  std::optional<penstock::PinnedPool> pool{std::in_place, penstock::PinnedPoolOptions{2 * kBytes}};
  std::optional<penstock::PinnedBlock> block{pool->acquire(kBytes)};
  std::optional<penstock::DeviceArena> arena{std::in_place, 2, kBytes};
  std::optional<penstock::DeviceSlot> slot{arena->acquire(nullptr)};
  const std::jthread locker([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      static_cast<void>(pool->stats());
      static_cast<void>(arena->free_slots());
    }
  });
  for (std::uint64_t i = 0; i < 20 * kForks; ++i)
    in_child([&] {
      block.reset();
      slot.reset();
      pool.reset();
      arena.reset();
    });
}

/// Page-locked memory is shared with the parent, so the child must not write it.
void child_leaves_memory_alone() {
  penstock::PinnedPool pool{{.max_bytes = 1024}};
  std::optional<penstock::PinnedBlock> block{pool.acquire(1024)};
  std::memset(block->data(), 7, block->size());
  in_child([&] { block.reset(); });
  for (std::size_t i = 0; i < block->size(); ++i)
    require(block->data()[i] == std::byte{7}, "the parent's block is as it was");
}

/// CUDA is gone, so a new pipeline cannot be; the constructor says so, and leaves nothing behind.
void child_cannot_begin_anew() {
  Pipeline pipeline;
  in_child([&] {
    try {
      const Pipeline another;
      require(false, "there is no CUDA in a forked child");
    } catch (const penstock::CudaError& error) {
      require(error.code() == cudaErrorInitializationError, "the error is CUDA's");
    }
  });
  consume(pipeline, [](std::uint64_t) {});
}

/// The fork happens on a thread that has nothing to do with the pipeline, while another consumes.
void another_thread_forks() {
  Pipeline pipeline;
  std::binary_semaphore consuming{0};
  std::thread other([&] {
    consuming.acquire();
    for (std::uint64_t i = 0; i < kForks; ++i) in_child([&] { pipeline.prefetcher.reset(); });
  });
  consume(pipeline, [&](std::uint64_t batch) {
    if (batch == 0) consuming.release();
  });
  other.join();
}

const std::vector<std::pair<const char*, void (*)()>> scenarios{
    {"parent_goes_on", parent_goes_on},
    {"child_destroys", child_destroys},
    {"child_exits", child_exits},
    {"child_destroys_the_parts", child_destroys_the_parts},
    {"child_releases_beside_locks", child_releases_beside_locks},
    {"child_leaves_memory_alone", child_leaves_memory_alone},
    {"child_cannot_begin_anew", child_cannot_begin_anew},
    {"another_thread_forks", another_thread_forks},
};

}  // namespace

int main(int argc, char** argv) {
  for (const auto& [name, run] : scenarios)
    if (argc == 2 && std::strcmp(name, argv[1]) == 0) {
      run();
      return EXIT_SUCCESS;
    }
  std::fprintf(stderr, "no such scenario\n");
  return 2;
}
