// SPDX-License-Identifier: Apache-2.0

#include <penstock/penstock.hpp>

#include <atomic>
#include <cstdint>

namespace {

struct Values {
  penstock::Tensor<std::uint64_t, 1> value;
};

}  // namespace

/// Sums 0 ... samples - 1 on the way through a pipeline, `epochs` times.
extern "C" __attribute__((visibility("default"))) std::uint64_t PIPELINE(std::uint64_t samples,
                                                                         std::uint64_t epochs) {
  const penstock::Stream stream;
  std::atomic<std::uint64_t> sum{0};
  penstock::Prefetcher<Values> prefetcher(
      penstock::Layout<Values>{16}.field(&Values::value, {}),
      penstock::Sampler{{.samples = samples, .batch_size = 16, .shuffle = true}},
      [](const penstock::Ticket& ticket, Values& batch) {
        for (std::size_t i = 0; i < ticket.samples.size(); ++i)
          batch.value(static_cast<std::int64_t>(i)) = ticket.samples[i];
      },
      {.workers = 2, .epochs = epochs});
  while (auto batch = prefetcher.next(stream.get()))
    penstock::for_each(stream.get(), batch->value.extent(0),
                       [values = batch->value, &sum](std::int64_t i) { sum += values(i); });
  stream.synchronize();
  return sum;
}
