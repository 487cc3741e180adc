// SPDX-License-Identifier: Apache-2.0
#pragma once

// The use of libjpeg in JpegDecoder. Errors of libjpeg are jumps (longjmp). Each function that such
// a jump may leave is named `try_...`, has no object with a destructor, and returns false after an
// error.

#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>  // before jpeglib.h, which wants FILE
#include <penstock/images/jpeg_decoder.hpp>
#include <penstock/version.hpp>
#include <span>
#include <stop_token>
//
#include <jpeglib.h>

#include "buffer.hpp"
#include "decode_watch.hpp"
#include "jpeg_memory.hpp"
#include "orientation.hpp"

namespace penstock::inline PENSTOCK_ABI::images {

class JpegDecoder::Reader {
 public:
  explicit Reader(const JpegOptions& options);
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader();

  const JpegOptions& options() const noexcept { return options_; }
  ImageSize open(std::span<const std::byte> file);
  void close() noexcept { file_ = {}; }
  Decoded decode(const View& view, const std::stop_token& stop);

 private:
  struct Errors {
    jpeg_error_mgr manager;  // It is the first member, because libjpeg has a pointer to it.
    std::jmp_buf back;
    std::array<char, JMSG_LENGTH_MAX> message;
    bool warnings_are_errors;
  };
  struct Monitor {
    jpeg_progress_mgr manager;  // It is the first member, as above.
    DecodeWatch* watch;
  };

  // libjpeg calls these functions.
  [[noreturn]] static void end(j_common_ptr info);
  static void note(j_common_ptr info, int level);
  static void watch(j_common_ptr info);

  [[noreturn]] void fail();
  void require_limits() const;
  void require_file_bytes() const;
  Orientation stored_orientation() const;
  void read_header();
  void choose_output(int eighths);
  Pixels read(const Region& part);

  bool try_create();
  bool try_read_header();
  bool try_start();
  bool try_crop(JDIMENSION* left, JDIMENSION* width);
  bool try_skip(JDIMENSION rows);
  bool try_read_rows(std::uint8_t* out, std::size_t stride, JDIMENSION rows);
  /// Reads up to the end marker of the image.
  bool try_finish();
  bool try_read_inks(std::uint8_t* inks, std::uint8_t* out, JDIMENSION rows);

  const JpegOptions options_;
  DecodeWatch decode_watch_;
  JpegMemory memory_;
  Errors errors_{};
  Monitor monitor_{};
  jpeg_decompress_struct info_{};
  std::span<const std::byte> file_;  // the open file
  bool header_is_read_ = false;      // the header is read, but nothing else
  ImageSize stored_size_;
  Orientation orientation_;
  Buffer<std::uint8_t> pixels_, inks_, turned_;
};

}  // namespace penstock::images
