// SPDX-License-Identifier: Apache-2.0

// A thousand epochs that the consumer leaves early. Runs emulated, and on a GPU.

#include <penstock/prefetcher.hpp>

#include <cstdint>
#include <filesystem>
#include <iterator>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"

using penstock::Prefetcher;
using penstock::Sampler;
using penstock::test::eventually;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::TestStream;
using penstock::test::write_numbers;

namespace {

constexpr std::uint64_t kEpochs = 1000, kBatchesOfEpoch = 6;

/// Before this epoch each stream has had work, so the emulated runtime has a thread for each.
constexpr std::uint64_t kWarmUp = 20;

Sampler six_batches() {
  return Sampler{{.samples = kBatchesOfEpoch * 4, .batch_size = 4, .shuffle = true}};
}

/// Threads of this process.
std::ptrdiff_t threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

/// How many batches are taken of an epoch before the consumer leaves it: from none to all of them.
std::uint64_t taken_of(std::uint64_t epoch) {
  return epoch * 5 % (kBatchesOfEpoch + 1);
}

}  // namespace

TEST_CASE("a thousand epochs with a prefetcher each, left early", "[endings]") {
  TestStream stream;
  std::ptrdiff_t threads_before = 0;
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    Prefetcher<Numbers> prefetcher(numbers_layout(4), six_batches(), write_numbers,
                                   {.workers = 2, .host_depth = 2 + epoch % 3, .epochs = kEpochs});
    auto state = prefetcher.state();
    state.epoch = epoch;
    prefetcher.restore(state);
    std::uint64_t wrong = 0, taken = 0;
    while (auto batch = prefetcher.next(stream)) {
      wrong += batch.ticket().epoch != epoch || batch.ticket().batch != taken;
      if (++taken >= taken_of(epoch)) break;
    }
    if (wrong != 0) FAIL("epoch " << epoch << " delivered " << wrong << " wrong batches");
    if (epoch == kWarmUp) threads_before = threads();
  }
  CHECK(eventually([&] { return threads() <= threads_before; }));
}

TEST_CASE("a thousand epochs of one prefetcher, left early", "[endings]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), six_batches(), write_numbers,
                                 {.workers = 2, .epochs = kEpochs});
  std::ptrdiff_t threads_before = 0;
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    for (std::uint64_t i = 0; i < taken_of(epoch); ++i) {
      const auto batch = prefetcher.next(stream);
      if (!batch || batch.ticket().epoch != epoch || batch.ticket().batch != i)
        FAIL("epoch " << epoch << " went wrong at batch " << i);
    }
    if (epoch == kWarmUp) threads_before = threads();
    auto next = prefetcher.state();
    next.epoch = epoch + 1;
    next.batch = 0;
    prefetcher.restore(next);
  }
  CHECK_FALSE(prefetcher.next(stream));
  CHECK(eventually([&] { return threads() <= threads_before; }));
}
