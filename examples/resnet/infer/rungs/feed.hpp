// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a Prefetcher brings, and how a context takes it. Batch is Images: float images cross the
// bus, and the inference begins with their conversion; or Packed: records do, and the copy stream
// makes of them what the network reads (--uint8).
//
//   auto prefetcher = make_prefetcher<Batch>(run, 2);
//   const penstock::Lease<Batch> batch = prefetcher.next(stream);
//   infer_batch(run, context, *batch, n, logits, stream);

#include <penstock/prefetcher.hpp>
#include <type_traits>

#include "../../../common/check.hpp"
#include "../../../common/watch.hpp"
#include "run.hpp"

namespace resnet::rungs {

/// As pack_images and pack_records write: floats, wherever the CPU computes.
inline InputFormat input_format(const InferenceNetwork& network) {
  const Precision precision = network.input_precision();
  const bool narrow = (precision == Precision::fp16 || precision == Precision::bf16) &&
                      !operations_name().starts_with("reference");
  return {network.input(), precision, network.format(), narrow ? std::size_t{2} : sizeof(float)};
}

inline penstock::DeviceTransform<Records, Packed> decoding(const Run& run) {
  return decode_on_device(input_format(run.network()), run.augmentation());
}

/// `slots`: batches on the device.
template <class Batch>
auto make_prefetcher(const Run& run, std::size_t slots) {
  const penstock::PrefetcherOptions options{
      .workers = run.options().workers, .device_depth = slots, .device_times = run.options().watch};
  if constexpr (std::is_same_v<Batch, Images>)
    return penstock::Prefetcher<Images>(run.layout(), run.requests(), run.image_source(), options);
  else
    return penstock::Prefetcher<Packed, Records>(records_layout(run.batch()), run.requests(),
                                                 run.record_source(), decoding(run), options);
}

/// What the copy stream computes for a batch, on a stream and memory of its own, so that it can be
/// timed: nothing for float images.
template <class Batch>
class Preparation {
 public:
  explicit Preparation(const Run&) {}
  void queue(std::int64_t) {}
  void wait() const {}
};
template <>
class Preparation<Packed> {
 public:
  explicit Preparation(const Run& run)
      : records_(records_layout(run.batch())),
        decode_(decoding(run)),
        from_(static_cast<std::int64_t>(records_.bytes())),
        to_(static_cast<std::int64_t>(decode_.layout().bytes())) {}
  void queue(std::int64_t samples) {
    Packed packed = decode_.layout().bind(to_.data(), samples);
    decode_({}, records_.bind(from_.data(), samples), packed, stream_.get());
  }
  void wait() const { stream_.synchronize(); }

 private:
  penstock::Layout<Records> records_;
  penstock::DeviceTransform<Records, Packed> decode_;
  DeviceArray<std::byte> from_, to_;
  penstock::Stream stream_;
};

/// Queues. There is memory for `n` images, whatever the batch has.
inline void infer_batch(const Run& run, InferenceContext& context, const Images& batch,
                        std::int64_t n, float* logits, cudaStream_t stream) {
  context.run(run.images(n), batch.pixels.data_handle(), logits, stream);
}
inline void infer_batch(const Run&, InferenceContext& context, const Packed& batch, std::int64_t n,
                        float* logits, cudaStream_t stream) {
  context.run_packed(batch.input.data_handle(), n, logits, stream);
}

/// Queues: zeros behind the batch's own images, up to the n-th. A slot has room for them.
template <class Batch>
void clear_behind(const Batch& batch, std::int64_t n, cudaStream_t stream) {
  const auto& images = [&]() -> const auto& {
    if constexpr (std::is_same_v<Batch, Images>)
      return batch.pixels;
    else
      return batch.input;
  }
  ();
  const std::int64_t there = images.extent(0), image = images.stride(0);
  if (there >= n) return;
  auto* behind = images.data_handle() + there * image;
  examples::check(
      cudaMemsetAsync(behind, 0, static_cast<std::size_t>((n - there) * image) * sizeof(*behind),
                      stream),
      "cudaMemsetAsync");
}

/// Once before captures: runs all kernels, so that they are loaded. Waits for the stream.
inline void warm_up(const Run& run, InferenceContext& context, float* logits, cudaStream_t stream) {
  const DeviceArray<float> image(run.images(1).images.count());
  context.run(run.images(1), image.data(), logits, stream);
  context.warm_up(stream);
}

}  // namespace resnet::rungs
