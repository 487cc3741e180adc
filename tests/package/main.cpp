// SPDX-License-Identifier: Apache-2.0

// A program of somebody else's: moves 16 numbers in batches of 4 and reads back what arrived on the
// device. The same program for penstock::emulated and for penstock::penstock.

#include <array>
#include <cstdio>
#include <penstock/penstock.hpp>

struct Batch {
  penstock::Tensor<int, 1> numbers;
};

int main() {
  int unused = 0;  // On purpose: the warnings of penstock's own builds must not reach its users.

  const auto layout = penstock::Layout<Batch>{4}.field(&Batch::numbers, {});
  const penstock::Sampler sampler{{.samples = 16, .batch_size = 4}};
  penstock::Prefetcher<Batch> prefetcher{layout, sampler,
                                         [](const penstock::Ticket& ticket, Batch& batch) {
                                           for (std::size_t i = 0; i < ticket.samples.size(); ++i)
                                             batch.numbers(i) = static_cast<int>(ticket.samples[i]);
                                         }};

  const penstock::Stream stream;
  int arrived = 0;
  while (auto batch = prefetcher.next(stream.get())) {
    std::array<int, 4> numbers{};
    cudaMemcpyAsync(numbers.data(), batch->numbers.data_handle(), sizeof numbers,
                    cudaMemcpyDeviceToHost, stream.get());
    stream.synchronize();
    for (const int number : numbers) {
      if (number != arrived++) return std::fprintf(stderr, "%d came out of turn\n", number), 1;
    }
  }
  std::printf("%d of 16 numbers arrived\n", arrived);
  return arrived == 16 ? 0 : 1;
}
