// SPDX-License-Identifier: Apache-2.0

// A program of somebody else's: a kernel adds up the numbers of batches that a prefetcher brings.

#include <cstdio>
#include <penstock/penstock.hpp>

struct Batch {
  penstock::Tensor<int, 1> numbers;
};

__global__ void add_up(Batch batch, int* sum) {
  for (int i = 0; i < batch.numbers.extent(0); ++i) *sum += batch.numbers(i);
}

int main() {
  const auto layout = penstock::Layout<Batch>{4}.field(&Batch::numbers, {});
  const penstock::Sampler sampler{{.samples = 16, .batch_size = 4}};
  penstock::Prefetcher<Batch> prefetcher{layout, sampler,
                                         [](const penstock::Ticket& ticket, Batch& batch) {
                                           for (std::size_t i = 0; i < ticket.samples.size(); ++i)
                                             batch.numbers(i) = static_cast<int>(ticket.samples[i]);
                                         }};

  const penstock::Stream stream;
  int* device_sum = nullptr;
  cudaMalloc(&device_sum, sizeof(int));
  cudaMemsetAsync(device_sum, 0, sizeof(int), stream.get());
  while (auto batch = prefetcher.next(stream.get()))
    add_up<<<1, 1, 0, stream.get()>>>(*batch, device_sum);
  stream.synchronize();

  int sum = -1;
  cudaMemcpy(&sum, device_sum, sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(device_sum);
  std::printf("0 + 1 + ... + 15 = %d\n", sum);
  return sum == 120 ? 0 : 1;
}
