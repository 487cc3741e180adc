// SPDX-License-Identifier: Apache-2.0
#pragma once

// JPEG files to a batch in GPU memory, decoded by the CPU: the workers decode what the crops need,
// at a reduced scale, and nothing else; a kernel in the copy stream does the rest.
//
//   namespace images = penstock::images;
//   const images::OutputFormat format{.size = {224, 224}};
//   const images::RandomResizedCrop crop{.output = format.size};
//   penstock::Prefetcher<images::Images<float>, images::DecodedImages> prefetcher{
//       images::decoded_images_layout(256, format.size), sampler,
//       penstock::per_sample(penstock::per_worker(
//           [] { return images::RowDecoder(); },
//           [&](images::RowDecoder& decode, const penstock::Sample& sample,
//               images::DecodedImages& batch) {
//             decode(files[sample.index],
//                    [&](images::ImageSize size) { return crop(sample.seed, size); }, sample.row,
//                    batch);
//             batch.labels(sample.row) = labels[sample.index];
//           })),
//       images::resize_images<float>(format)};
//
// Where a store has the files, image_source.hpp is that source.
//
// Every image has the same room in a batch, by default twice its output's size; an image that needs
// more is resized by the CPU. So a batch always fits, and which images are resized where depends on
// the image and its crop alone. Not a Ragged: its rows are contiguous, so those that several
// workers decode in any order would have to be moved, twice through the memory of the host. Room
// that is not used crosses the bus, where there is plenty: 5 GB/s for 16,000 images a second.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <penstock/device_transform.hpp>
#include <penstock/error.hpp>
#include <penstock/images/jpeg_decoder.hpp>
#include <penstock/images/resize_batch.hpp>
#include <penstock/images/resizer.hpp>
#include <penstock/images/view.hpp>
#include <penstock/layout.hpp>
#include <penstock/tensor.hpp>
#include <span>
#include <stop_token>
#include <utility>

namespace penstock::images {

/// What a source writes: decoded parts of images, of different sizes, and what to make of them.
struct DecodedImages {
  Tensor<std::uint8_t, 2> pixels;     ///< (samples, room for one image in bytes)
  Tensor<ImageGeometry, 1> geometry;  ///< where an image lies in its room, and its view
  Tensor<std::int32_t, 1> labels;     ///< (samples); copied to Images::labels
};

/// What the consumer gets.
template <OutputElement T>
struct Images {
  Tensor<T, 4> pixels;  ///< (samples, height, width, channels), or (samples, channels, ...)
  Tensor<std::int32_t, 1> labels;  ///< (samples)
};

/// `room` is that for one image, in sizes of the output (3 bytes a pixel): at least 1. Between 1
/// and 2 is what scaled decoding leaves of most crops. Throws std::invalid_argument for less, and
/// for an empty output.
Layout<DecodedImages> decoded_images_layout(std::int64_t batch_size, ImageSize output,
                                            double room = 2);

namespace detail {

template <OutputElement T>
Layout<Images<T>> describe_images(Layout<Images<T>> layout, const OutputFormat& format) {
  check_format<T>(format);
  const int height = format.size.height, width = format.size.width, channels = format.channels;
  const bool nhwc = format.order == PixelOrder::nhwc;
  layout.field(&Images<T>::pixels,
               {nhwc ? height : channels, nhwc ? width : height, nhwc ? channels : width});
  layout.field(&Images<T>::labels, {});
  return layout;
}

}  // namespace detail

/// The layout of a batch of outputs of `format`. Throws std::invalid_argument for a format that
/// resize_batch cannot write.
template <OutputElement T>
Layout<Images<T>> images_layout(std::int64_t batch_size, const OutputFormat& format) {
  return detail::describe_images(Layout<Images<T>>(batch_size), format);
}
/// The same without a batch size, for a DeviceTransform.
template <OutputElement T>
Layout<Images<T>> images_layout(const OutputFormat& format) {
  return detail::describe_images(Layout<Images<T>>(), format);
}

/// The images of a batch, for resize_batch. Of a batch in device memory.
inline ImageBatch image_batch(const DecodedImages& batch) {
  return {batch.pixels.data_handle(), batch.pixels.extent(1), batch.geometry.data_handle(),
          batch.geometry.extent(0)};
}

namespace detail {

template <OutputElement T>
DeviceTransform<DecodedImages, Images<T>> resize_to(Layout<Images<T>> layout,
                                                    const OutputFormat& format) {
  return {std::move(layout), [format](const Ticket&, const DecodedImages& decoded, Images<T>& batch,
                                      cudaStream_t stream) {
            resize_batch(stream, image_batch(decoded), format, batch.pixels.data_handle());
            const auto bytes = static_cast<std::size_t>(batch.labels.extent(0)) * sizeof(int);
            penstock::detail::check(
                cudaMemcpyAsync(batch.labels.data_handle(), decoded.labels.data_handle(), bytes,
                                cudaMemcpyDeviceToDevice, stream),
                "cudaMemcpyAsync", bytes);
          }};
}

}  // namespace detail

/// Makes a batch of outputs of decoded images, and copies the labels: for a Prefetcher, whose host
/// layout has the batch size. Throws std::invalid_argument for a format that resize_batch cannot
/// write.
template <OutputElement T>
DeviceTransform<DecodedImages, Images<T>> resize_images(const OutputFormat& format) {
  return detail::resize_to(images_layout<T>(format), format);
}
/// The same for batches of at most `batch_size` images.
template <OutputElement T>
DeviceTransform<DecodedImages, Images<T>> resize_images(std::int64_t batch_size,
                                                        const OutputFormat& format) {
  return detail::resize_to(images_layout<T>(batch_size, format), format);
}

/// Copies what the view needs of an image to `room`, without gaps. If there is no room for that, it
/// is resized: `room` then has the output. Which of both depends on the view's region and the
/// sizes alone. Returns where the image lies in `room`; the offset is 0. Throws
/// std::invalid_argument if the output has no room either.
ImageGeometry place_image(const Decoded& image, Resizer& resize, std::span<std::uint8_t> room);

/// Decodes JPEG files into the rows of batches. One for each worker; allocates nothing after the
/// largest image.
class RowDecoder {
 public:
  /// With the options of its JpegDecoder.
  explicit RowDecoder(const JpegOptions& options = {}) : decoder_(options) {}

  /// Writes pixels and geometry of row `row`. `view_of(size)` returns the View of an image of that
  /// size. Its output must be that of the transform, which cannot check it. Throws what JpegDecoder
  /// does: the message does not name the file, which the caller knows.
  template <class ViewOf>
  void operator()(std::span<const std::byte> file, ViewOf&& view_of, std::int64_t row,
                  DecodedImages& batch, const std::stop_token& stop = {}) {
    const View view = view_of(decoder_.open(file));
    const auto room = static_cast<std::size_t>(batch.pixels.extent(1));
    batch.geometry(row) =
        decode(view, {batch.pixels.data_handle() + row * batch.pixels.extent(1), room}, stop);
  }

  /// The parts of the above. The image's size.
  ImageSize open(std::span<const std::byte> file) { return decoder_.open(file); }
  /// Decodes what `view` needs of the opened image into `room`, see place_image.
  ImageGeometry decode(const View& view, std::span<std::uint8_t> room,
                       const std::stop_token& stop = {}) {
    return place_image(decoder_.decode(view, stop), resize_, room);
  }

 private:
  JpegDecoder decoder_;
  Resizer resize_;
};

}  // namespace penstock::images
