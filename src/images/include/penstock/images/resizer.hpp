// SPDX-License-Identifier: Apache-2.0
#pragma once

// Resizer: makes the output of a view on the CPU, antialiased bilinear as view.hpp defines it.
//
//   penstock::images::Resizer resize;  // one for each worker
//   const std::vector<std::uint8_t> image(375 * 500 * 3);
//   std::vector<std::uint8_t> small(224 * 224 * 3);
//   const penstock::images::View view =
//       penstock::images::ResizeCenterCrop{.resize = 256, .output = {224, 224}}({375, 500});
//   resize({{image.data(), {375, 500}, 500 * 3}, view}, small);
//
// The values match those of torchvision's v2 `resized_crop` and `resize` with antialias=True, on
// tensors of uint8, within 1 of 255, and those of Pillow's BILINEAR.

#include <cstdint>
#include <memory>
#include <penstock/images/view.hpp>
#include <penstock/version.hpp>
#include <span>

namespace penstock::inline PENSTOCK_ABI::images {

/// Makes the output of a view on the CPU. Use each object on one thread at a time. Its memory grows
/// to the need of the largest picture; then nothing is allocated.
class Resizer {
 public:
  /// The object has no memory yet.
  Resizer();
  Resizer(Resizer&&) noexcept;
  Resizer& operator=(Resizer&&) noexcept;
  ~Resizer();

  /// Writes `out`: output.height x output.width x 3 bytes of the view, red, green and blue
  /// interleaved. Throws std::invalid_argument if `out` has another size, or if the view's region
  /// is empty or not within the pixels.
  void operator()(const Decoded& image, std::span<std::uint8_t> out);

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

}  // namespace penstock::images
