// SPDX-License-Identifier: Apache-2.0

// What only kernels can show: that they see each batch complete, and that nothing writes it
// meanwhile.

#include <penstock/launch.hpp>
#include <penstock/prefetcher.hpp>

#include <cstdint>
#include <vector>

#include "check_batch.cuh"
#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"

using penstock::Prefetcher;
using penstock::Sampler;
using penstock::test::check_batch;
using penstock::test::DeviceMemory;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::serial_sample_numbers;
using penstock::test::TestStream;
using penstock::test::write_numbers;

TEST_CASE("kernels see every batch complete and unchanged", "[gpu][kernel]") {
  const int workers = GENERATE(0, 1, 4);
  constexpr std::int64_t kBatch = 512;
  const Sampler sampler{{.samples = 100'003, .batch_size = kBatch, .shuffle = true, .seed = 3}};
  TestStream stream;
  DeviceMemory<std::uint64_t> sum(1);
  DeviceMemory<unsigned> torn(1);
  Prefetcher<Numbers> prefetcher(numbers_layout(kBatch), sampler, write_numbers,
                                 {.workers = workers, .epochs = 4});
  while (auto batch = prefetcher.next(stream)) {
    check_batch<<<4, 128, 0, stream>>>(*batch, sum.data(), torn.data());
    REQUIRE_CUDA(cudaGetLastError());
  }
  std::uint64_t expected = 0;
  for (const std::uint64_t sample : serial_sample_numbers(sampler, 4)) expected += sample + 1;
  CHECK(sum.read().front() == expected);
  CHECK(torn.read().front() == 0);
}

TEST_CASE("for_each is a kernel in stream order", "[gpu][kernel]") {
  constexpr std::int64_t kCount = 1'000'000;
  TestStream stream;
  DeviceMemory<std::int64_t> values(kCount);
  std::int64_t* data = values.data();
  for (int round = 0; round < 3; ++round)
    penstock::for_each(static_cast<cudaStream_t>(stream), kCount,
                       [data] __device__(std::int64_t i) { data[i] = 2 * data[i] + i; });
  std::size_t wrong = 0;
  const std::vector<std::int64_t> result = values.read();
  for (std::int64_t i = 0; i < kCount; ++i) wrong += result[static_cast<std::size_t>(i)] != 7 * i;
  CHECK(wrong == 0);
}
