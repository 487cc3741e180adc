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
  penstock::Stats stats() const override { return prefetcher_.stats(); }
  std::vector<penstock::Failure> failures() const override { return prefetcher_.failures(); }

 private:
  penstock::Prefetcher<Packed, Host> prefetcher_;
};

/// Every world_size-th batch of what one rank would have.
class DealtOut {
 public:
  DealtOut(const penstock::SamplerOptions& options, const penstock::Ranks& ranks)
      : all_(options), ranks_(ranks) {}
  std::uint64_t batches() const {
    const auto rank = static_cast<std::uint64_t>(ranks_.rank);
    return all_.batches() <= rank ? 0 : (all_.batches() - rank - 1) / step() + 1;
  }
  void samples(std::uint64_t epoch, std::uint64_t batch, std::vector<std::uint64_t>& out) const {
    all_.samples(epoch, batch * step() + static_cast<std::uint64_t>(ranks_.rank), out);
  }

 private:
  std::uint64_t step() const { return static_cast<std::uint64_t>(ranks_.world_size); }

  penstock::Sampler all_;
  penstock::Ranks ranks_;
};

}  // namespace

std::unique_ptr<PackedBatches> packed_batches(const TrainingData& data, const InputFormat& input,
                                              const Augmentation& augmentation,
                                              const PackedOptions& options) {
  const penstock::SamplerOptions all{.samples = data.size(),
                                     .batch_size = input.extents.n,
                                     .shuffle = augmentation.random,
                                     .seed = augmentation.seed,
                                     .drop_last = augmentation.random};
  const DealtOut dealt_out(all, options.ranks);
  if (!augmentation.random && dealt_out.batches() == 0) return nullptr;
  penstock::AnySampler sampler = dealt_out;
  if (augmentation.random)
    sampler = options.resumed ? penstock::Sampler(all, options.ranks, *options.resumed)
                              : penstock::Sampler(all, options.ranks);
  penstock::PrefetcherOptions prefetch;
  prefetch.workers = options.workers;
  prefetch.epochs = options.epochs;
  prefetch.device_times = options.device_times;
  if (!data.has_images())
    return std::make_unique<Prefetched<Records>>(records_layout(input.extents.n), sampler,
                                                 RecordSource{&data.records()},
                                                 decode_on_device(input, augmentation), prefetch);
  if (options.broken > 0)
    prefetch.on_failure = augmentation.random ? penstock::FailurePolicy::replace(options.broken)
                                              : penstock::FailurePolicy::skip(options.broken);
  prefetch.read_ahead = penstock::read_ahead(data.images(), 4);
  prefetch.copy_priority = kUrgent;
  return std::make_unique<Prefetched<DecodedImages>>(
      decoded_layout(input.extents.n, augmentation.size), sampler,
      decode_on_workers(data.images(), augmentation), pack_on_device(input), prefetch);
}

}  // namespace resnet
