// SPDX-License-Identifier: Apache-2.0
#pragma once

// Memory for libjpeg that is kept from image to image. libjpeg's own manager returns it to the
// system after each image.

#include <array>
#include <cstddef>
#include <cstdio>  // before jpeglib.h, which wants FILE
#include <memory>
//
#include <jpeglib.h>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::images {

/// All memory of one image. It is a single block once the largest image has been decoded.
class JpegMemory {
 public:
  /// From now on `info` allocates all memory here, and jpeg_abort frees all of it together. Objects
  /// that libjpeg keeps longer must be allocated before this call. Only tables are an exception:
  /// the code that reads another header must discard them. This object must outlive `info`.
  void serve(jpeg_decompress_struct& info);

  /// No allocation of the last image is used any more.
  void reset() noexcept;

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
  };

  void* take(j_common_ptr info, std::size_t bytes);
  template <class Row>
  Row* rows(j_common_ptr info, std::size_t row_bytes, std::size_t count);
  bool add_block(std::size_t bytes) noexcept;

  // functions of libjpeg
  static JpegMemory& of(j_common_ptr info) { return *static_cast<JpegMemory*>(info->client_data); }
  static void* small_or_large(j_common_ptr info, int pool, std::size_t bytes);
  static JSAMPARRAY samples(j_common_ptr info, int pool, JDIMENSION width, JDIMENSION height);
  static JBLOCKARRAY blocks(j_common_ptr info, int pool, JDIMENSION width, JDIMENSION height);
  static jvirt_barray_ptr all_blocks(j_common_ptr info, int pool, boolean zeros, JDIMENSION width,
                                     JDIMENSION height, JDIMENSION most);
  static JBLOCKARRAY some_blocks(j_common_ptr info, jvirt_barray_ptr all, JDIMENSION first,
                                 JDIMENSION count, boolean writable);
  static void free_pool(j_common_ptr info, int pool);

  std::array<Block, 48> blocks_;  // each block is as large as all before it together
  std::size_t count_ = 0;
  std::size_t used_ = 0;  // bytes used in the last block
};

}  // namespace penstock::images
