// SPDX-License-Identifier: Apache-2.0

#include <penstock/images/jpeg_decoder.hpp>

#include "jpeg_reader.hpp"
#include "needed.hpp"
#include "raw_image.hpp"

namespace penstock::inline PENSTOCK_ABI::images {

JpegDecoder::JpegDecoder(const JpegOptions& options) : reader_(std::make_unique<Reader>(options)) {}
JpegDecoder::JpegDecoder(JpegDecoder&&) noexcept = default;
JpegDecoder& JpegDecoder::operator=(JpegDecoder&&) noexcept = default;
JpegDecoder::~JpegDecoder() = default;

ImageSize JpegDecoder::open(std::span<const std::byte> file) {
  reader_->close();
  raw_ = {};
  raw_ = raw_pixels(file, reader_->options().max_pixels);
  return raw_.data == nullptr ? reader_->open(file) : raw_.size;
}

Decoded JpegDecoder::decode(const View& view, const std::stop_token& stop) {
  if (raw_.data == nullptr) return reader_->decode(view, stop);
  require_within(view, raw_.size);
  const Region part = needed_region(view);
  const std::uint8_t* const first =
      raw_.data + part.top * raw_.stride + std::int64_t{3} * part.left;
  return {{first, {part.height, part.width}, raw_.stride}, within(view, part)};
}

}  // namespace penstock::images
