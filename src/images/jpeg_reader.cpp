// SPDX-License-Identifier: Apache-2.0

#include "jpeg_reader.hpp"

#include <jerror.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>

#include "needed.hpp"

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

std::string size_text(ImageSize size) {
  return std::to_string(size.width) + " x " + std::to_string(size.height) + " pixels";
}

std::int64_t rounded_up(std::int64_t value, std::int64_t factor) {
  return (value + factor - 1) / factor * factor;
}

std::span<const jpeg_component_info> components_of(const jpeg_decompress_struct& info) {
  return {info.comp_info, static_cast<std::size_t>(info.num_components)};
}

/// Converts the inks of `count` pixels as Adobe's programs write them and as Pillow reads those of
/// any program: 255 means no ink.
void convert_inks(const std::uint8_t* inks, std::size_t count, std::uint8_t* out) {
  for (std::size_t x = 0; x < count; ++x, inks += 4)
    for (std::size_t c = 0; c < 3; ++c)
      *out++ = static_cast<std::uint8_t>((inks[c] * inks[3] + 127) / 255);
}

}  // namespace

JpegDecoder::Reader::Reader(const JpegOptions& options)
    : options_(options), decode_watch_(options) {
  info_.err = jpeg_std_error(&errors_.manager);
  errors_.manager.error_exit = end;
  errors_.manager.emit_message = note;
  errors_.warnings_are_errors = options.warnings_are_errors;
  if (!try_create()) {
    jpeg_destroy_decompress(&info_);
    throw std::bad_alloc();
  }
  memory_.serve(info_);
  monitor_.manager.progress_monitor = watch;
  monitor_.watch = &decode_watch_;
  info_.progress = &monitor_.manager;
}

JpegDecoder::Reader::~Reader() {
  jpeg_destroy_decompress(&info_);
}

// ---- What libjpeg calls -------------------------------------------------------------------------

void JpegDecoder::Reader::end(j_common_ptr info) {
  auto* errors = reinterpret_cast<Errors*>(info->err);
  errors->manager.format_message(info, errors->message.data());
  std::longjmp(errors->back, 1);
}

/// libjpeg reports damage that it can work around as a warning, including an early end.
void JpegDecoder::Reader::note(j_common_ptr info, int level) {
  const auto* errors = reinterpret_cast<const Errors*>(info->err);
  if (level < 0 && (errors->warnings_are_errors || info->err->msg_code == JWRN_JPEG_EOF)) end(info);
}

/// libjpeg calls this every few rows, for each scan and for the pixels.
void JpegDecoder::Reader::watch(j_common_ptr info) {
  const auto* monitor = reinterpret_cast<const Monitor*>(info->progress);
  const int scan = reinterpret_cast<j_decompress_ptr>(info)->input_scan_number;
  if (!monitor->watch->may_go_on(scan)) std::longjmp(reinterpret_cast<Errors*>(info->err)->back, 1);
}

// ---- What libjpeg does --------------------------------------------------------------------------

bool JpegDecoder::Reader::try_create() {
  if (setjmp(errors_.back) != 0) return false;
  jpeg_create_decompress(&info_);
  // The source manager that libjpeg creates here is kept.
  constexpr static unsigned char kNothing[] = {0};
  jpeg_mem_src(&info_, kNothing, sizeof(kNothing));
  return true;
}

bool JpegDecoder::Reader::try_read_header() {
  if (setjmp(errors_.back) != 0) return false;
  jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(file_.data()), file_.size());
  if (options_.apply_orientation) jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xffff);
  jpeg_read_header(&info_, TRUE);
  return true;
}

/// For a file with several scans, this reads all of them.
bool JpegDecoder::Reader::try_start() {
  if (setjmp(errors_.back) != 0) return false;
  jpeg_start_decompress(&info_);
  return true;
}

bool JpegDecoder::Reader::try_crop(JDIMENSION* left, JDIMENSION* width) {
  if (setjmp(errors_.back) != 0) return false;
  jpeg_crop_scanline(&info_, left, width);
  return true;
}

bool JpegDecoder::Reader::try_skip(JDIMENSION rows) {
  constexpr JDIMENSION kAtOnce = 512;  // libjpeg does not call `watch` here.
  if (setjmp(errors_.back) != 0) return false;
  while (info_.output_scanline < rows) {
    jpeg_skip_scanlines(&info_, std::min(kAtOnce, rows - info_.output_scanline));
    watch(reinterpret_cast<j_common_ptr>(&info_));
  }
  return true;
}

bool JpegDecoder::Reader::try_read_rows(std::uint8_t* out, std::size_t stride, JDIMENSION rows) {
  if (setjmp(errors_.back) != 0) return false;
  const JDIMENSION first = info_.output_scanline;
  while (info_.output_scanline - first < rows) {
    JSAMPROW row = out + (info_.output_scanline - first) * stride;
    jpeg_read_scanlines(&info_, &row, 1);
  }
  return true;
}

bool JpegDecoder::Reader::try_read_inks(std::uint8_t* inks, std::uint8_t* out, JDIMENSION rows) {
  if (setjmp(errors_.back) != 0) return false;
  const JDIMENSION first = info_.output_scanline;
  const std::size_t width = info_.output_width;
  while (info_.output_scanline - first < rows) {
    std::uint8_t* const pixels = out + (info_.output_scanline - first) * width * 3;
    JSAMPROW row = inks;
    jpeg_read_scanlines(&info_, &row, 1);
    convert_inks(inks, width, pixels);
  }
  return true;
}

bool JpegDecoder::Reader::try_finish() {
  if (setjmp(errors_.back) != 0) return false;
  jpeg_finish_decompress(&info_);
  return true;
}

// ---- An image -----------------------------------------------------------------------------------

void JpegDecoder::Reader::fail() {
  file_ = {};
  decode_watch_.require_no_end();
  if (info_.err->msg_code == JERR_OUT_OF_MEMORY) throw std::bad_alloc();
  throw ImageError(std::string("broken JPEG: ") + errors_.message.data());
}

/// Checks the limits by the header alone.
void JpegDecoder::Reader::require_limits() const {
  const ImageSize size = stored_size_;
  if (info_.data_precision != 8)
    throw ImageError("a JPEG of " + std::to_string(info_.data_precision) +
                     " bits: only those of 8 are decoded");
  if (std::int64_t{size.height} * size.width > options_.max_pixels)
    throw ImageError("too large: " + size_text(size) + ", and at most " +
                     std::to_string(options_.max_pixels) + " are decoded");
  if (jpeg_has_multiple_scans(const_cast<j_decompress_ptr>(&info_)) == FALSE) return;
  std::int64_t bytes = 0;
  for (const jpeg_component_info& component : components_of(info_))
    bytes += static_cast<std::int64_t>(sizeof(JBLOCK)) *
             rounded_up(component.width_in_blocks, component.h_samp_factor) *
             rounded_up(component.height_in_blocks, component.v_samp_factor);
  if (bytes > options_.max_coefficient_bytes)
    throw ImageError("too large: the scans of " + size_text(size) + " need " +
                     std::to_string((bytes >> 20) + 1) + " MiB of memory, and at most " +
                     std::to_string(options_.max_coefficient_bytes >> 20) + " are given");
}

/// Allocates no memory for more pixels than the file can contain: with Huffman coding, a block has
/// at least one bit. Arithmetic coding has no such bound.
void JpegDecoder::Reader::require_file_bytes() const {
  if (info_.arith_code != FALSE) return;
  std::int64_t blocks = 0;
  for (const jpeg_component_info& component : components_of(info_))
    blocks += std::int64_t{component.width_in_blocks} * component.height_in_blocks;
  if (blocks / 8 > static_cast<std::int64_t>(file_.size()))
    throw ImageError("cut short: " + std::to_string(file_.size()) + " bytes cannot hold " +
                     size_text(stored_size_));
}

Orientation JpegDecoder::Reader::stored_orientation() const {
  for (const jpeg_marker_struct* marker = info_.marker_list; marker; marker = marker->next) {
    const std::span<const std::uint8_t> contents(marker->data, marker->data_length);
    if (is_exif(contents)) return exif_orientation(contents);
  }
  return {};
}

void JpegDecoder::Reader::read_header() {
  jpeg_abort_decompress(&info_);
  // Tables of another file would replace those that this one lacks, and their memory is gone too.
  std::ranges::fill(info_.quant_tbl_ptrs, nullptr);
  std::ranges::fill(info_.dc_huff_tbl_ptrs, nullptr);
  std::ranges::fill(info_.ac_huff_tbl_ptrs, nullptr);
  if (!try_read_header()) fail();
  header_is_read_ = true;
}

ImageSize JpegDecoder::Reader::open(std::span<const std::byte> file) {
  file_ = {};
  if (file.empty()) throw ImageError("the file is empty");
  decode_watch_.start({});
  file_ = file;
  read_header();
  stored_size_ = {static_cast<std::int32_t>(info_.image_height),
                  static_cast<std::int32_t>(info_.image_width)};
  try {
    require_limits();
    require_file_bytes();
  } catch (const ImageError&) {
    file_ = {};
    throw;
  }
  orientation_ = stored_orientation();
  return shown_size(orientation_, stored_size_);
}

void JpegDecoder::Reader::choose_output(int eighths) {
  const bool inks = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
  info_.out_color_space = inks ? JCS_CMYK : JCS_RGB;
  info_.dct_method = options_.fast_dct ? JDCT_IFAST : JDCT_ISLOW;
  info_.scale_num = static_cast<unsigned>(eighths);
  info_.scale_denom = 8;
}

Decoded JpegDecoder::Reader::decode(const View& shown, const std::stop_token& stop) {
  if (file_.empty()) throw std::logic_error("JpegDecoder::decode: no image is open");
  require_within(shown, shown_size(orientation_, stored_size_));
  decode_watch_.start(stop);
  if (!header_is_read_) read_header();
  header_is_read_ = false;

  const View stored = stored_view(orientation_, shown, stored_size_);
  const int eighths = options_.scaled_dct ? smallest_eighths(stored) : 8;
  choose_output(eighths);
  if (!try_start()) fail();
  const ImageSize scaled_size{static_cast<std::int32_t>(info_.output_height),
                              static_cast<std::int32_t>(info_.output_width)};
  const View scaled = scaled_view(stored, eighths, scaled_size);
  const Region part = needed_region(scaled);
  Pixels pixels = read(part);
  const View view = within(scaled, part);
  if (orientation_ == Orientation{}) return {pixels, view};

  const ImageSize size = shown_size(orientation_, pixels.size);
  std::uint8_t* const turned = turned_.room(std::size_t{3} * static_cast<std::size_t>(size.height) *
                                            static_cast<std::size_t>(size.width));
  turn(orientation_, pixels, turned);
  return {{turned, size, std::int64_t{3} * size.width},
          shown_view(orientation_, view, pixels.size)};
}

/// Reads `part` of the image at the chosen scale.
Pixels JpegDecoder::Reader::read(const Region& part) {
  // At the borders of the decoded part, libjpeg interpolates colours of a lower resolution from
  // fewer neighbours. With two more colour columns on either side, the pixels are the same as in
  // the whole image.
  const auto margin = static_cast<std::int32_t>(2 * info_.max_h_samp_factor);
  const auto image_width = static_cast<std::int32_t>(info_.output_width);
  const std::int32_t begin = std::max(part.left - margin, 0);
  const std::int32_t end = std::min(part.left + part.width + margin, image_width);
  JDIMENSION left = 0, width = info_.output_width;
  // libjpeg-turbo 2.1.5 loses colour columns if it scales the colours down less than the brightness
  // and must still widen them, as in 4:1:0.
  const bool may_crop = info_.scale_num == info_.scale_denom || info_.max_h_samp_factor <= 2;
  if (may_crop && end - begin < image_width) {
    left = static_cast<JDIMENSION>(begin);
    width = static_cast<JDIMENSION>(end - begin);
    if (!try_crop(&left, &width)) fail();
  }
  if (!try_skip(static_cast<JDIMENSION>(part.top))) fail();

  const auto rows = static_cast<JDIMENSION>(part.height);
  const std::size_t stride = std::size_t{3} * info_.output_width;
  std::uint8_t* const out = pixels_.room(rows * stride);
  const bool inks = info_.out_color_space == JCS_CMYK;
  if (inks ? !try_read_inks(inks_.room(std::size_t{4} * info_.output_width), out, rows)
           : !try_read_rows(out, stride, rows))
    fail();
  // The rest of the image has no needed pixels, but it may be damaged.
  if (options_.warnings_are_errors && info_.output_scanline == info_.output_height && !try_finish())
    fail();
  return {out + std::size_t{3} * (static_cast<std::size_t>(part.left) - left),
          {part.height, part.width},
          static_cast<std::int64_t>(stride)};
}

}  // namespace penstock::images
