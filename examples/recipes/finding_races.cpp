// SPDX-License-Identifier: Apache-2.0

// docs/recipes/finding-races.md: a batch is used on two streams. With the argument "wrong" the
// pipeline is not told of the second one, and overwrites the batch while that stream still reads
// it. ThreadSanitizer over penstock::emulated reports it. Exit code 0: both streams saw every
// sample.

#include <cstdint>
#include <iostream>
#include <penstock/penstock.hpp>
#include <string_view>

namespace {

struct Numbers {
  penstock::Tensor<std::int64_t, 1> values;  // sample
};

struct Train {
  Numbers batch;
  std::int64_t* sum;

  __host__ __device__ void operator()(std::int64_t) const {
    for (std::int64_t i = 0; i < batch.values.extent(0); ++i) *sum += batch.values(i);
  }
};

struct Watch {
  Numbers batch;
  std::int64_t* largest;

  __host__ __device__ void operator()(std::int64_t) const {
    for (std::int64_t i = 0; i < batch.values.extent(0); ++i)
      if (*largest < batch.values(i)) *largest = batch.values(i);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const bool wrong = argc > 1 && std::string_view(argv[1]) == "wrong";
  const penstock::Stream training, watching;
  penstock::DeviceArena arena{2, sizeof(std::int64_t)};
  const penstock::DeviceSlot sum_slot = arena.acquire(training.get());
  const penstock::DeviceSlot largest_slot = arena.acquire(watching.get());
  auto* const sum = reinterpret_cast<std::int64_t*>(sum_slot.data());
  auto* const largest = reinterpret_cast<std::int64_t*>(largest_slot.data());
  cudaMemsetAsync(sum, 0, sizeof *sum, training.get());
  cudaMemsetAsync(largest, 0, sizeof *largest, watching.get());

  penstock::Prefetcher<Numbers> prefetcher{
      penstock::Layout<Numbers>{100}.field(&Numbers::values, {}),
      {.samples = 2'000, .shuffle = true},
      [](const penstock::Ticket& ticket, Numbers& batch) {
        for (std::size_t i = 0; i < ticket.samples.size(); ++i)
          batch.values(i) = static_cast<std::int64_t>(ticket.samples[i]);
      },
      {.workers = 2}};
  while (auto batch = prefetcher.next(training.get())) {
    penstock::for_each(training.get(), 1, Train{*batch, sum});
    if (!wrong) batch.also_used_on(watching.get());  // before the work on that stream
    penstock::for_each(watching.get(), 1, Watch{*batch, largest});
  }

  std::int64_t total = 0, most = 0;
  penstock::Readback<std::int64_t> line{2};
  line.push(sum, training.get(), [&](std::int64_t value) { total = value; });
  line.push(largest, watching.get(), [&](std::int64_t value) { most = value; });
  line.drain();
  if (total != 1'999 * 1'000 || most != 1'999) {
    std::cerr << "the sum is " << total << ", the largest number " << most << '\n';
    return 1;
  }
  std::cout << "both streams saw 2000 samples\n";
  return 0;
}
