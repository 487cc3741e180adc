// SPDX-License-Identifier: Apache-2.0

#include "image_input.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/images/image_source.hpp>
#include <penstock/images/resize_batch.hpp>
#include <penstock/pinned_pool.hpp>
#include <vector>

#include "../../common/check.hpp"
#include "jpeg_images.hpp"
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#include <penstock/launch.hpp>

#include "../ops/reference/rounding.hpp"
#endif

namespace resnet {
namespace {

namespace images = penstock::images;

images::OutputFormat output_format(const InputFormat& input) {
  return {
      .size = {static_cast<std::int32_t>(input.extents.h),
               static_cast<std::int32_t>(input.extents.w)},
      .order = input.format == Format::nhwc ? images::PixelOrder::nhwc : images::PixelOrder::nchw,
      .channels = static_cast<int>(input.extents.c),
      .mean = imagenet_mean,
      .standard_deviation = imagenet_deviation};
}

#ifndef __CUDACC__
struct RoundElements {
  float* elements;
  Precision precision;

  void operator()(std::int64_t i) const {
    elements[i] = reference::rounded(precision, elements[i]);
  }
};
#endif

/// Calls f(T*), which queues on the stream, with the T of the input's precision. Without a GPU
/// that is float, whose values are rounded behind it: so the reference operations take them.
template <class F>
void with_elements(const InputFormat& input, std::int64_t samples, void* out, cudaStream_t stream,
                   F&& f) {
#ifdef __CUDACC__
  static_cast<void>(samples), static_cast<void>(stream);
  if (input.precision == Precision::fp16) return f(static_cast<__half*>(out));
  if (input.precision == Precision::bf16) return f(static_cast<__nv_bfloat16*>(out));
  f(static_cast<float*>(out));
#else
  auto* elements = static_cast<float*>(out);
  f(elements);
  if (input.precision == Precision::fp16 || input.precision == Precision::bf16)
    penstock::for_each(stream, samples * (input.extents.count() / input.extents.n),
                       RoundElements{elements, input.precision});
#endif
}

/// Decodes batches by the engines: the state of a worker.
class DecodeBatch {
 public:
  DecodeBatch(const ImageStore& store, const Augmentation& augmentation, const InputFormat& input,
              const images::HardwareOptions& options)
      : store_(&store),
        augmentation_(augmentation),
        input_(input),
        format_(output_format(input)),
        decoder_(options),
        files_(static_cast<std::size_t>(input.extents.n)) {
    // Copies of labels that are under way at a time: a worker has a batch or two on the device.
    constexpr std::size_t kBlocks = 4;
    pool_->reserve(kBlocks, files_.size() * sizeof(std::int32_t));
  }

  void operator()(const penstock::Ticket& ticket, Packed& batch, cudaStream_t stream,
                  const std::stop_token& stop) {
    read(ticket);
    copy_labels(ticket, batch, stream);
    const auto view = [&](std::uint64_t seed, images::ImageSize size) {
      return view_of(augmentation_, seed, size);
    };
    const auto samples = static_cast<std::int64_t>(items_.size());
    with_elements(input_, samples, batch.input.data_handle(), stream, [&](auto* out) {
      const auto results = decoder_.decode(items_, view, format_, out, stream, stop);
      for (std::size_t row = 0; row < results.size(); ++row)
        if (results[row].by == images::DecodedBy::nobody)
          throw images::ImageError(store_->name(ticket.samples[row]) + ": " + results[row].error);
    });
  }

 private:
  void read(const penstock::Ticket& ticket) {
    items_.clear();
    for (std::size_t row = 0; row < ticket.samples.size(); ++row)
      items_.push_back({store_->read(ticket.samples[row], files_[row]), ticket.sample_seed(row)});
  }

  void copy_labels(const penstock::Ticket& ticket, Packed& batch, cudaStream_t stream) {
    penstock::PinnedBlock block = pool_->acquire(ticket.samples.size() * sizeof(std::int32_t));
    auto* labels = reinterpret_cast<std::int32_t*>(block.data());
    for (const std::uint64_t sample : ticket.samples) *labels++ = store_->label(sample);
    block.copy_to(reinterpret_cast<std::byte*>(batch.labels.data_handle()),
                  ticket.samples.size() * sizeof(std::int32_t), stream);
  }

  const ImageStore* store_;
  Augmentation augmentation_;
  InputFormat input_;
  images::OutputFormat format_;
  std::unique_ptr<penstock::PinnedPool> pool_ = std::make_unique<penstock::PinnedPool>();
  images::HardwareDecoder decoder_;
  std::vector<std::vector<std::byte>> files_;  // by row
  std::vector<images::JpegItem> items_;
};

/// Memory for a chunk of images as ImageNet has them: more of page-locked memory than that delays
/// the first batch. A chunk of larger ones is decoded in parts.
images::HardwareOptions fit(images::HardwareOptions options, const InputFormat& input) {
  constexpr double kFile = 128 << 10, kPixels = 640 << 10;
  const auto n =
      static_cast<double>(std::clamp<std::int64_t>(input.extents.n, 16, options.engine.batch));
  const double crop = 256 + 2.0 * 3 * static_cast<double>(input.extents.h * input.extents.w);
  const double by_cpu = n * options.cpu_share.value_or(0.5);
  const double by_engine = n * (1 - options.cpu_share.value_or(0));
  options.engine.batch = static_cast<int>(n);
  options.device_bytes = static_cast<std::size_t>(by_engine * kPixels + (by_cpu + 1) * crop);
  options.staging_bytes = static_cast<std::size_t>(by_engine * kFile + (by_cpu + 1) * crop);
  return options;
}

}  // namespace

penstock::Layout<DecodedImages> decoded_layout(std::int64_t batch_size, std::int32_t size) {
  return images::decoded_images_layout(batch_size, {size, size});
}

penstock::Layout<Packed> packed_layout(const InputFormat& input) {
  const std::int64_t image_bytes =
      input.extents.count() / input.extents.n * static_cast<std::int64_t>(input.element_bytes);
  return penstock::Layout<Packed>{input.extents.n}
      .field(&Packed::input, {image_bytes})
      .field(&Packed::labels, {});
}

penstock::AnySource<DecodedImages> decode_on_workers(const ImageStore& store,
                                                     const Augmentation& augmentation) {
  return images::image_source(store, [augmentation](std::uint64_t seed, images::ImageSize size) {
    return view_of(augmentation, seed, size);
  });
}

penstock::DeviceTransform<DecodedImages, Packed> pack_on_device(const InputFormat& input) {
  return {
      packed_layout(input), [input](const penstock::Ticket&, const DecodedImages& decoded,
                                    Packed& packed, cudaStream_t stream) {
        with_elements(
            input, decoded.labels.extent(0), packed.input.data_handle(), stream, [&](auto* out) {
              images::resize_batch(stream, images::image_batch(decoded), output_format(input), out);
            });
        examples::check(cudaMemcpyAsync(packed.labels.data_handle(), decoded.labels.data_handle(),
                                        static_cast<std::size_t>(decoded.labels.extent(0)) *
                                            sizeof(std::int32_t),
                                        cudaMemcpyDeviceToDevice, stream),
                        "cudaMemcpyAsync");
      }};
}

penstock::AnySource<Packed> decode_by_engines(const ImageStore& store,
                                              const Augmentation& augmentation,
                                              const InputFormat& input,
                                              const images::HardwareOptions& options) {
  return penstock::on_device(
      penstock::per_worker([&store, augmentation, input, fitted = fit(options, input)] {
        return DecodeBatch(store, augmentation, input, fitted);
      }));
}

}  // namespace resnet
