// SPDX-License-Identifier: Apache-2.0
#pragma once

// JPEG files to the input of a network, as T15 and T16 move them: workers decode what the crops
// need, or the GPU's engines decode; a kernel crops, resizes, flips, normalises and packs.
//
// What is queued on a stream neither blocks nor synchronises.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>
#include <penstock/device_transform.hpp>
#include <penstock/images/decoded_images.hpp>
#include <penstock/images/hardware_decoder.hpp>
#include <penstock/layout.hpp>
#include <penstock/source.hpp>

#include "image_store.hpp"
#include "input.hpp"

namespace resnet {

using penstock::images::DecodedImages;

/// PrefetcherOptions::copy_priority: what makes a batch of images does not wait for the training
/// step's kernels.
inline constexpr int kUrgent = std::numeric_limits<int>::min();

/// What the workers write: decoded crops, with room for most of them at twice the output's size.
penstock::Layout<DecodedImages> decoded_layout(std::int64_t batch_size, std::int32_t size);

/// A per_sample source: reads and decodes an image on a worker. It throws images::ImageError, which
/// names the file and nests the cause. The store outlives it.
penstock::AnySource<DecodedImages> decode_on_workers(const ImageStore& store,
                                                     const Augmentation& augmentation);

/// Makes the network's input of decoded crops, on the device.
penstock::DeviceTransform<DecodedImages, Packed> pack_on_device(const InputFormat& input);

/// An on_device source: the GPU's JPEG engines decode, and the CPU what they refuse, see
/// HardwareDecoder. It throws images::ImageError and penstock::StoreError, which name a file, for
/// the batch. The store and
/// `options.totals` outlive it.
penstock::AnySource<Packed> decode_by_engines(const ImageStore& store,
                                              const Augmentation& augmentation,
                                              const InputFormat& input,
                                              const penstock::images::HardwareOptions& options);

/// Batches of a network's input.
penstock::Layout<Packed> packed_layout(const InputFormat& input);

}  // namespace resnet
