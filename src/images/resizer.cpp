// SPDX-License-Identifier: Apache-2.0

// Resizes in two passes, each rounded to bytes: along the rows ("across") and along the columns
// ("down"), in the cheaper order. It reads only rows and columns with a weight.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <penstock/images/resizer.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "buffer.hpp"
#include "needed.hpp"
#include "resize_passes.hpp"

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

std::size_t as_size(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

ResizeAxis rows_of(const View& view) {
  return {view.region.top, view.region.top + view.region.height, view.origin_y, view.step_y,
          view.output.height};
}
ResizeAxis columns_of(const View& view) {
  return {view.region.left, view.region.left + view.region.width, view.origin_x, view.step_x,
          view.output.width};
}

}  // namespace

struct Resizer::Memory {
 public:
  void resize(const Decoded& image, std::uint8_t* out);

 private:
  bool down_is_cheaper_first() const;
  void down_first(const Pixels& pixels, std::uint8_t* out);
  void across_first(const Pixels& pixels, std::uint8_t* out);
  const std::uint8_t* input_row(const Pixels& pixels, std::int32_t row) const;
  const std::uint8_t* readable_row(const Pixels& pixels, std::int32_t row);
  /// Makes output row y from the rows that `row(i)` returns, where i is 0 for rows_.begin.
  template <class Row>
  void down(std::size_t y, Row row, std::size_t bytes, std::uint8_t* out);

  std::size_t out_bytes() const { return 3 * columns_.first.size(); }  // of one row
  std::size_t in_bytes() const { return as_size(3 * std::int64_t{columns_.end - columns_.begin}); }
  std::int32_t in_rows() const { return rows_.end - rows_.begin; }

  const ResizePasses& passes_ = fastest_passes();
  ResizeTaps rows_, columns_;
  std::vector<const std::uint8_t*> row_pointers_;
  Buffer<std::uint8_t> between_;  // the output of the first pass
  Buffer<std::uint8_t> edge_;     // two rows; see readable_row
};

void Resizer::Memory::resize(const Decoded& image, std::uint8_t* out) {
  rows_.find(rows_of(image.view), ResizePasses::kRowsMultiple);
  columns_.find(columns_of(image.view), ResizePasses::kColumnsMultiple, image.view.flip);
  // Both orders are prepared, so that a smaller view never needs more memory than a larger one did.
  row_pointers_.resize(as_size(rows_.count));
  const std::size_t row_bytes = read_bytes(columns_);
  between_.room(std::max(2 * row_bytes, as_size(in_rows()) * out_bytes()));
  edge_.room(2 * row_bytes);
  if (down_is_cheaper_first())
    down_first(image.pixels, out);
  else
    across_first(image.pixels, out);
}

/// Weighting a pixel across takes about as long as weighting kAcross bytes down.
bool Resizer::Memory::down_is_cheaper_first() const {
  constexpr double kAcross = 9;
  const double outputs_down = static_cast<double>(rows_.first.size());
  const double outputs_across = static_cast<double>(columns_.first.size());
  const double across = kAcross * outputs_across * columns_.count * (in_rows() - outputs_down);
  const double down =
      outputs_down * rows_.count * (static_cast<double>(in_bytes()) - 3 * outputs_across);
  return across > down;
}

template <class Row>
void Resizer::Memory::down(std::size_t y, Row row, std::size_t bytes, std::uint8_t* out) {
  for (std::int32_t tap = 0; tap < rows_.count; ++tap)  // The rows below have a weight of 0.
    row_pointers_[as_size(tap)] = row(std::min(rows_.first[y] + tap, in_rows() - 1));
  passes_.down(row_pointers_.data(), rows_.weights_of(y), rows_.count, rows_.bits, bytes, out);
}

void Resizer::Memory::down_first(const Pixels& pixels, std::uint8_t* out) {
  const std::size_t stride = read_bytes(columns_), height = rows_.first.size();
  std::uint8_t* const between = between_.data();
  const auto row = [&](std::int32_t i) { return input_row(pixels, i); };
  for (std::size_t y = 0; y < height; y += 2) {
    // the second row of the pair, or the first again
    const std::size_t second = y + 1 < height ? 1 : 0;
    down(y, row, in_bytes(), between);
    if (second != 0) down(y + 1, row, in_bytes(), between + stride);
    passes_.across(between, between + second * stride, columns_, out + y * out_bytes(),
                   out + (y + second) * out_bytes());
  }
}

void Resizer::Memory::across_first(const Pixels& pixels, std::uint8_t* out) {
  const std::size_t stride = out_bytes();
  const auto height = as_size(in_rows());
  std::uint8_t* const between = between_.data();
  for (std::size_t y = 0; y < height; y += 2) {
    const std::size_t second = y + 1 < height ? y + 1 : y;
    passes_.across(readable_row(pixels, static_cast<std::int32_t>(y)),
                   readable_row(pixels, static_cast<std::int32_t>(second)), columns_,
                   between + y * stride, between + second * stride);
  }
  const auto row = [&](std::int32_t i) { return between + as_size(i) * stride; };
  for (std::size_t y = 0; y < rows_.first.size(); ++y) down(y, row, stride, out + y * stride);
}

/// Returns the row from the first column with a weight on.
const std::uint8_t* Resizer::Memory::input_row(const Pixels& pixels, std::int32_t row) const {
  return pixels.data + (rows_.begin + row) * pixels.stride + std::ptrdiff_t{3} * columns_.begin;
}

/// Returns a row of which read_bytes() bytes may be read. Near the end of the pixels it is a copy,
/// for the next row too.
const std::uint8_t* Resizer::Memory::readable_row(const Pixels& pixels, std::int32_t row) {
  const std::uint8_t* const in = input_row(pixels, row);
  const std::uint8_t* const end = pixels.data + (pixels.size.height - 1) * pixels.stride +
                                  std::ptrdiff_t{3} * pixels.size.width;
  if (end - in >= static_cast<std::ptrdiff_t>(read_bytes(columns_))) return in;
  std::uint8_t* const copy = edge_.data() + as_size(row % 2) * read_bytes(columns_);
  std::copy_n(in, in_bytes(), copy);
  return copy;
}

Resizer::Resizer() : memory_(std::make_unique<Memory>()) {}
Resizer::Resizer(Resizer&&) noexcept = default;
Resizer& Resizer::operator=(Resizer&&) noexcept = default;
Resizer::~Resizer() = default;

void Resizer::operator()(const Decoded& image, std::span<std::uint8_t> out) {
  require_within(image.view, image.pixels.size);
  const ImageSize size = image.view.output;
  const std::int64_t bytes = std::int64_t{3} * size.height * size.width;
  if (std::ssize(out) != bytes)
    throw std::invalid_argument("Resizer: the output has " + std::to_string(out.size()) +
                                " bytes, and the view's " + std::to_string(size.height) + " x " +
                                std::to_string(size.width) + " pixels need " +
                                std::to_string(bytes));
  memory_->resize(image, out.data());
}

}  // namespace penstock::images
