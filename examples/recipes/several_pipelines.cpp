// SPDX-License-Identifier: Apache-2.0

// docs/recipes/several-pipelines.md: three pipelines in one process. Two feed the same step, on
// one stream; the third feeds a validation on another thread and stream, at the same time. Exit
// code 0: each sum is right.

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <penstock/penstock.hpp>
#include <thread>

namespace {

struct Numbers {
  penstock::Tensor<std::int64_t, 1> values;  // sample
};

/// Adds all values of a batch to *sum.
struct Add {
  Numbers batch;
  std::int64_t* sum;

  __host__ __device__ void operator()(std::int64_t) const {
    for (std::int64_t i = 0; i < batch.values.extent(0); ++i) *sum += batch.values(i);
  }
};

/// A sum on the device, and on the host at the end.
class Sum {
 public:
  explicit Sum(cudaStream_t stream) : stream_(stream), slot_(arena_.acquire(stream)) {
    cudaMemsetAsync(slot_.data(), 0, sizeof(std::int64_t), stream_);
  }
  void add(const Numbers& batch) { penstock::for_each(stream_, 1, Add{batch, device()}); }
  std::int64_t value() {
    std::int64_t result = 0;
    penstock::Readback<std::int64_t> line{1};
    line.push(device(), stream_, [&](std::int64_t value) { result = value; });
    line.drain();
    return result;
  }

 private:
  std::int64_t* device() const { return reinterpret_cast<std::int64_t*>(slot_.data()); }
  cudaStream_t stream_;
  penstock::DeviceArena arena_{1, sizeof(std::int64_t)};
  penstock::DeviceSlot slot_;
};

/// A pipeline over the numbers 0 ... samples - 1.
auto make_pipeline(std::uint64_t samples, std::int64_t batch_size, int workers) {
  return std::make_unique<penstock::Prefetcher<Numbers>>(
      penstock::Layout<Numbers>{batch_size}.field(&Numbers::values, {}),
      penstock::SamplerOptions{.samples = samples, .shuffle = true},
      [](const penstock::Ticket& ticket, Numbers& batch) {
        for (std::size_t i = 0; i < ticket.samples.size(); ++i)
          batch.values(i) = static_cast<std::int64_t>(ticket.samples[i]);
      },
      penstock::PrefetcherOptions{.workers = workers, .max_host_bytes = 64 << 20});
}

}  // namespace

int main() {
  const int cores = std::max(4, penstock::PrefetcherOptions{}.workers);  // the default: all but one
  const penstock::Stream stream, validation_stream;
  Sum sum(stream.get()), validation_sum(validation_stream.get());
  const auto labelled = make_pipeline(1'000, 10, cores / 4);
  const auto unlabelled = make_pipeline(7'000, 70, cores / 2);
  const auto validation = make_pipeline(5'000, 100, cores / 4);

  std::thread validator([&] {  // its own stream: it does not wait for the training, nor does that
    while (const auto batch = validation->next(validation_stream.get())) validation_sum.add(*batch);
  });
  for (;;) {  // One step takes a batch of each, on one stream.
    const auto few = labelled->next(stream.get());
    const auto many = unlabelled->next(stream.get());
    if (!few || !many) break;
    sum.add(*few);
    sum.add(*many);
  }
  validator.join();

  if (sum.value() != 999 * 500 + 6'999 * 3'500 || validation_sum.value() != 4'999 * 2'500) {
    std::cerr << "the sums are " << sum.value() << " and " << validation_sum.value() << '\n';
    return 1;
  }
  for (const auto* pipeline : {&labelled, &unlabelled, &validation}) {
    const penstock::Stats stats = (*pipeline)->stats();
    std::cout << stats.workers << " workers, " << stats.host_bytes << " bytes of pinned memory, "
              << stats.device_bytes << " on the device, " << stats.consumer.batches << " batches\n";
  }
  return 0;
}
