// SPDX-License-Identifier: Apache-2.0
#pragma once

// Batches of CIFAR-10 as the rungs move them, and what a network takes made of them. Whole images
// in float cross the bus, and a kernel packs them into the network's format; or images as bytes,
// which it normalises, too; or the records, and a kernel decodes, crops, flips, resizes, normalises
// and packs.
//
//   const ImageSource source{&records, {.seed = 7, .size = 224}};       // fills Images on workers
//   const InputFormat input{extents, settings.precision, settings.format};
//   pack_images(images, input, memory, stream);
//
// What is queued on a stream neither blocks nor synchronises.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <penstock/device_transform.hpp>
#include <penstock/layout.hpp>
#include <penstock/record_file.hpp>
#include <penstock/source.hpp>
#include <span>

#include "../ops/ops.hpp"
#include "image_writer.hpp"

namespace resnet {

/// Normalised float images.
struct Images {
  penstock::Tensor<float, 4> pixels;         // sample x channel x height x width
  penstock::Tensor<std::int32_t, 1> labels;  // sample
};
penstock::Layout<Images> images_layout(std::int64_t batch_size, std::int32_t size);

/// Images as bytes: a quarter of the floats.
struct ByteImages {
  penstock::Tensor<std::uint8_t, 4> pixels;  // sample x channel x height x width
  penstock::Tensor<std::int32_t, 1> labels;  // sample
};
penstock::Layout<ByteImages> byte_images_layout(std::int64_t batch_size, std::int32_t size);

/// Records as they lie in the files: a 196th of the bytes of 224x224 float images.
struct Records {
  penstock::Tensor<std::uint8_t, 2> bytes;     // sample x cifar10::record_bytes
  penstock::Tensor<std::uint64_t, 1> numbers;  // sample: its number in the data set
};
penstock::Layout<Records> records_layout(std::int64_t batch_size);

/// How records become images.
struct Augmentation {
  std::uint64_t seed = 0;
  std::int32_t size = 32;  ///< height and width of the images
  bool random = true;      ///< crop and flip; false: as they are, to evaluate
};

/// Makes whole images on the CPU. Throws cifar10::DataError for a label over 9. Any number of
/// threads may use one.
struct ImageSource {
  const penstock::RecordFile* records;
  Augmentation augmentation;
  ImageWriter write{augmentation.size};  ///< its table is made once, here

  void operator()(const penstock::Ticket& ticket, Images& batch) const;
  /// `pixels`: samples x 3 x size x size; `labels`: samples.
  void fill(std::uint64_t epoch, std::span<const std::uint64_t> samples, float* pixels,
            std::int32_t* labels) const;
};

/// The same images, each value rounded to a byte. Throws and may be used as ImageSource.
struct ByteImageSource {
  const penstock::RecordFile* records;
  Augmentation augmentation;
  ImageWriter write{augmentation.size};

  void operator()(const penstock::Ticket& ticket, ByteImages& batch) const;
};

/// Copies records. Throws and may be used as ImageSource.
struct RecordSource {
  const penstock::RecordFile* records;

  void operator()(const penstock::Ticket& ticket, Records& batch) const;
};

/// What a network takes: `extents` with the padded channels.
struct InputFormat {
  Extents extents;
  Precision precision = Precision::fp32;
  Format format = Format::nchw;
  std::size_t element_bytes = sizeof(float);
};

/// Converts `samples` images to `out`. Without a GPU an element is a float, whose value has been
/// rounded to the precision: so the reference operations take it.
void pack_images(const float* pixels, std::int64_t samples, const InputFormat& input, void* out,
                 cudaStream_t stream);
/// The same of bytes, which it normalises.
void pack_images(const std::uint8_t* pixels, std::int64_t samples, const InputFormat& input,
                 void* out, cudaStream_t stream);
/// What a network takes, with the labels.
struct Packed {
  penstock::Tensor<std::byte, 2> input;      // sample x bytes of an image
  penstock::Tensor<std::int32_t, 1> labels;  // sample
};
/// Makes images of records, on the device: the same pixels as ImageSource, up to rounding on a GPU.
penstock::DeviceTransform<Records, Packed> decode_on_device(const InputFormat& input,
                                                            const Augmentation& augmentation);
void pack_records(const Records& records, std::uint64_t epoch, const Augmentation& augmentation,
                  const InputFormat& input, void* out, std::int32_t* labels, cudaStream_t stream);

}  // namespace resnet
