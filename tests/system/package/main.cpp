// SPDX-License-Identifier: Apache-2.0

// A program of somebody else's: moves 16 numbers in batches of 4 and reads back what arrived on the
// device. The same program for penstock::emulated and for penstock::penstock.

#include <cstdio>

#include "batch.hpp"

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
  while (auto batch = prefetcher.next(stream.get()))
    if (!arrive_in_order(*batch, arrived, stream)) return 1;
  std::printf("%d of 16 numbers arrived\n", arrived);
  return arrived == 16 ? 0 : 1;
}
