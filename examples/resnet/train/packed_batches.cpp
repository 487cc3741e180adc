// SPDX-License-Identifier: Apache-2.0

#include "packed_batches.hpp"

#include <utility>

#include "../data/image_input.hpp"

namespace resnet {
namespace {

template <class Host>
class Prefetched final : public PackedBatches {
 public:
  template <class... Arguments>
  explicit Prefetched(Arguments&&... arguments)
      : prefetcher_(std::forward<Arguments>(arguments)...) {}

  penstock::Lease<Packed> next(cudaStream_t stream) override { return prefetcher_.next(stream); }
  penstock::State state() const override { return prefetcher_.state(); }
  void restore(const penstock::State& state) override { prefetcher_.restore(state); }
  penstock::Stats stats() const override { return prefetcher_.stats(); }
  std::vector<penstock::Failure> failures() const override { return prefetcher_.failures(); }

 private:
  penstock::Prefetcher<Packed, Host> prefetcher_;
};

}  // namespace

std::unique_ptr<PackedBatches> packed_batches(const TrainingData& data, const InputFormat& input,
                                              const Augmentation& augmentation,
                                              const PackedOptions& options) {
  const penstock::Sampler sampler({.samples = data.size(),
                                   .batch_size = input.extents.n,
                                   .shuffle = augmentation.random,
                                   .seed = augmentation.seed,
                                   .drop_last = augmentation.random});
  penstock::PrefetcherOptions prefetch{
      .workers = options.workers, .epochs = options.epochs, .device_times = options.device_times};
  if (!data.has_images())
    return std::make_unique<Prefetched<Records>>(records_layout(input.extents.n), sampler,
                                                 RecordSource{&data.records()},
                                                 decode_on_device(input, augmentation), prefetch);
  if (options.broken > 0)
    prefetch.on_failure = augmentation.random ? penstock::FailurePolicy::replace(options.broken)
                                              : penstock::FailurePolicy::skip(options.broken);
  prefetch.read_ahead = penstock::read_ahead(data.images(), 4);
  return std::make_unique<Prefetched<DecodedImages>>(
      decoded_layout(input.extents.n, augmentation.size), sampler,
      decode_on_workers(data.images(), augmentation), pack_on_device(input), prefetch);
}

}  // namespace resnet
