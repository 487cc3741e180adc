// SPDX-License-Identifier: Apache-2.0
#pragma once

// FramePlanes: a decoded picture in memory: luma, and chroma with half as many rows and columns.

#include <cstdint>
#include <penstock/detail/inline.hpp>
#include <penstock/images/view.hpp>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::video {

/// How samples lie in memory. All are 4:2:0.
enum class PlaneFormat : std::uint8_t {
  i420,     ///< three planes of bytes: Y, Cb, Cr
  nv12,     ///< two planes of bytes: Y; Cb and Cr in turn
  i420p10,  ///< as i420, with 16 bits a sample, of which the lower 10 are used
  p010,     ///< as nv12, with 16 bits a sample, of which the upper 10 are used
};

/// A picture. The creator owns the memory, which is the host's or a device's.
struct FramePlanes {
  PlaneFormat format = PlaneFormat::i420;  ///< how the samples lie in memory
  images::ImageSize size;                  ///< of the luma plane in pixels
  const std::uint8_t* luma = nullptr;      ///< its first sample
  const std::uint8_t* blue = nullptr;      ///< the first sample of Cb
  const std::uint8_t* red = nullptr;       ///< the first sample of Cr; nv12 and p010: behind Cb's
  std::int64_t luma_stride = 0;            ///< bytes from one row to the next
  std::int64_t chroma_stride = 0;          ///< bytes from one row to the next
};

/// Bytes of a sample.
PENSTOCK_HOST_DEVICE constexpr std::int64_t sample_bytes(PlaneFormat format) noexcept {
  return format == PlaneFormat::i420 || format == PlaneFormat::nv12 ? 1 : 2;
}
/// Whether Cb and Cr take turns in one plane.
PENSTOCK_HOST_DEVICE constexpr bool is_interleaved(PlaneFormat format) noexcept {
  return format == PlaneFormat::nv12 || format == PlaneFormat::p010;
}
/// The size of a plane of chroma: half of the luma's, rounded up.
constexpr images::ImageSize chroma_size(images::ImageSize luma) noexcept {
  return {(luma.height + 1) / 2, (luma.width + 1) / 2};
}
/// Bytes of a picture without gaps.
constexpr std::int64_t frame_bytes(PlaneFormat format, images::ImageSize size) noexcept {
  const images::ImageSize chroma = chroma_size(size);
  return sample_bytes(format) *
         (std::int64_t{size.height} * size.width + std::int64_t{2} * chroma.height * chroma.width);
}

}  // namespace penstock::video
