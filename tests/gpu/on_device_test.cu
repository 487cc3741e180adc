// SPDX-License-Identifier: Apache-2.0

// Sources on a GPU: kernels that write the slot, and rows that many workers fill.

#include <penstock/prefetcher.hpp>

#include <algorithm>
#include <cstdint>

#include "check_batch.cuh"
#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/numbers.hpp"

namespace penstock::test {
namespace {

/// The numbers of the samples, as a kernel argument.
struct Samples {
  std::uint64_t number[64];
};

__global__ void write_batch(Numbers batch, Samples samples) {
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < batch.sample.extent(0);
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const std::uint64_t sample = samples.number[i];
    batch.sample(i) = sample;
    for (std::int64_t j = 0; j < kPayload; ++j) {
      std::uint64_t x =
          (sample + 1) * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(j) * 0xD1B54A32D192ED03u;
      x ^= x >> 29;
      batch.payload(i, j) = static_cast<std::uint32_t>(x * 0xBF58476D1CE4E5B9u >> 32);
    }
  }
}

void write_on_device(const Ticket& ticket, Numbers& batch, cudaStream_t stream) {
  Samples samples;
  std::copy(ticket.samples.begin(), ticket.samples.end(), samples.number);
  write_batch<<<2, 64, 0, stream>>>(batch, samples);
}

/// Runs `prefetcher` to its end; every value is checked by a kernel.
void check_all(Prefetcher<Numbers>& prefetcher, std::uint64_t samples, std::uint64_t epochs) {
  TestStream stream;
  DeviceMemory<std::uint64_t> sum(1);
  DeviceMemory<unsigned> torn(1);
  while (auto batch = prefetcher.next(stream)) {
    check_batch<<<4, 32, 0, stream>>>(*batch, sum.data(), torn.data());
    REQUIRE_CUDA(cudaGetLastError());
  }
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(torn.read()[0] == 0);
  CHECK(sum.read()[0] == epochs * samples * (samples + 1) / 2);
}

TEST_CASE("on_device: kernels of many workers write the slots", "[on_device]") {
  const int workers = GENERATE(1, 4);
  constexpr std::uint64_t kSamples = 64 * 500;
  Prefetcher<Numbers> prefetcher(numbers_layout(64), shuffled(kSamples, 64),
                                 on_device(write_on_device),
                                 {.workers = workers, .device_depth = 3, .epochs = 4});
  check_all(prefetcher, kSamples, 4);
  CHECK(prefetcher.stats().copy.bytes == 0);
}

TEST_CASE("on_device: a launch that fails takes the place of its batch", "[on_device]") {
  Prefetcher<Numbers> prefetcher(
      numbers_layout(64), sequential(64 * 6, 64),
      on_device([](const Ticket& ticket, Numbers& batch, cudaStream_t stream) {
        if (ticket.batch == 2) {
          write_batch<<<1, 100'000, 0, stream>>>(batch, Samples{});  // more threads than there are
          return;
        }
        write_on_device(ticket, batch, stream);
      }),
      {.workers = 2});
  TestStream stream;
  for (std::uint64_t i = 0; i < 6; ++i) {
    if (i == 2)
      CHECK_THROWS_AS(prefetcher.next(stream), SourceError);
    else
      CHECK(prefetcher.next(stream).ticket().batch == i);
  }
  CHECK_FALSE(prefetcher.next(stream));
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("per_sample: rows of many workers are whole on the device", "[per_sample]") {
  constexpr std::uint64_t kSamples = 64 * 500;
  Prefetcher<Numbers> prefetcher(numbers_layout(64), shuffled(kSamples, 64),
                                 per_sample([](const Sample& sample, Numbers& batch) {
                                   batch.sample(sample.row) = sample.index;
                                   for (std::int64_t j = 0; j < kPayload; ++j)
                                     batch.payload(sample.row, j) = payload_of(sample.index, j);
                                 }),
                                 {.workers = 8, .epochs = 4});
  check_all(prefetcher, kSamples, 4);
}

}  // namespace
}  // namespace penstock::test
