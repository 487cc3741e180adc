// SPDX-License-Identifier: Apache-2.0
#pragma once

// Decodes JPEG files on the CPU into a batch in GPU memory. The workers decode only what the crops
// need, at a reduced scale; a kernel in the copy stream does the rest.
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
// For files in a store, image_source.hpp has that source.
//
// Every image has the same space in a batch, by default twice the size of its output. The CPU
// resizes an image that needs more. So a batch always fits, and only the image and its crop decide
// where it is resized. A Ragged would not do: its rows are contiguous, so rows that several workers
// decode in any order would have to be moved, twice through the memory of the host. Unused space is
// copied to the device too, but the bus has capacity to spare: 16,000 images a second are 5 GB/s.

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

namespace penstock::inline PENSTOCK_ABI::images {

/// The batch that a source writes: decoded parts of images, of different sizes, and their views.
struct DecodedImages {
  Tensor<std::uint8_t, 2> pixels;     ///< (samples, room for one image in bytes)
  Tensor<ImageGeometry, 1> geometry;  ///< where an image lies in its space, and its view
  Tensor<std::int32_t, 1> labels;     ///< (samples); copied to Images::labels
};

/// The batch that the consumer receives.
template <OutputElement T>
struct Images {
  Tensor<T, 4> pixels;  ///< (samples, height, width, channels), or (samples, channels, ...)
  Tensor<std::int32_t, 1> labels;  ///< (samples)
};

/// `room` is the space for one image, in sizes of the output (3 bytes per pixel): at least 1.
/// Scaled decoding leaves between 1 and 2 of most crops. Throws std::invalid_argument for less, and
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
/// The layout without a batch size, for a DeviceTransform.
template <OutputElement T>
Layout<Images<T>> images_layout(const OutputFormat& format) {
  return detail::describe_images(Layout<Images<T>>(), format);
}

/// Returns the images of a batch in device memory, for resize_batch.
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

/// Returns the transform that makes a batch of outputs from decoded images and copies the labels.
/// It is for a Prefetcher whose host layout has the batch size. Throws std::invalid_argument for a
/// format that resize_batch cannot write.
template <OutputElement T>
DeviceTransform<DecodedImages, Images<T>> resize_images(const OutputFormat& format) {
  return detail::resize_to(images_layout<T>(format), format);
}
/// Returns the transform for batches of at most `batch_size` images.
template <OutputElement T>
DeviceTransform<DecodedImages, Images<T>> resize_images(std::int64_t batch_size,
                                                        const OutputFormat& format) {
  return detail::resize_to(images_layout<T>(batch_size, format), format);
}

/// Copies the pixels that the view needs to `room`, without gaps. If there is not enough space, it
/// writes the resized output to `room` instead. Only the view's region and the sizes decide which.
/// Returns where the image lies in `room`; the offset is 0. Throws std::invalid_argument if there
/// is not enough space for the output either.
ImageGeometry place_image(const Decoded& image, Resizer& resize, std::span<std::uint8_t> room);

/// Decodes JPEG files into the rows of batches. Use one object per worker. After the largest image
/// it allocates nothing.
class RowDecoder {
 public:
  /// Uses these options for its JpegDecoder.
  explicit RowDecoder(const JpegOptions& options = {}) : decoder_(options) {}

  /// Writes pixels and geometry of row `row`. `view_of(size)` returns the View of an image of that
  /// size. Its output must be that of the transform, which cannot check it. Throws like
  /// JpegDecoder; the message does not name the file, which the caller knows.
  template <class ViewOf>
  void operator()(std::span<const std::byte> file, ViewOf&& view_of, std::int64_t row,
                  DecodedImages& batch, const std::stop_token& stop = {}) {
    const View view = view_of(decoder_.open(file));
    const auto room = static_cast<std::size_t>(batch.pixels.extent(1));
    batch.geometry(row) =
        decode(view, {batch.pixels.data_handle() + row * batch.pixels.extent(1), room}, stop);
  }

  /// Opens a file as the first step of the function above, and returns the image's size.
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
