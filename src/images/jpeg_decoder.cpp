// SPDX-License-Identifier: Apache-2.0

#include <penstock/images/jpeg_decoder.hpp>

#include "jpeg_reader.hpp"

namespace penstock::images {

JpegDecoder::JpegDecoder(const JpegOptions& options) : reader_(std::make_unique<Reader>(options)) {}
JpegDecoder::JpegDecoder(JpegDecoder&&) noexcept = default;
JpegDecoder& JpegDecoder::operator=(JpegDecoder&&) noexcept = default;
JpegDecoder::~JpegDecoder() = default;

ImageSize JpegDecoder::open(std::span<const std::byte> file) {
  return reader_->open(file);
}

Decoded JpegDecoder::decode(const View& view, const std::stop_token& stop) {
  return reader_->decode(view, stop);
}

}  // namespace penstock::images
