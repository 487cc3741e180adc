// SPDX-License-Identifier: Apache-2.0
#pragma once

// Memory for libjpeg that is kept from image to image. libjpeg's own manager gives it back to the
// system after each.

#include <array>
#include <cstddef>
#include <cstdio>  // before jpeglib.h, which wants FILE
#include <memory>
//
#include <jpeglib.h>

namespace penstock::images {

/// All memory of one image, in one block once the largest image was seen.
class JpegMemory {
 public:
  /// From now on `info` takes all memory from here, and gives all of it back together, with
  /// jpeg_abort. What a libjpeg object keeps for longer it must have by then: that is all but
  /// tables, and whoever reads another header has to forget those. Must outlive `info`.
  void serve(jpeg_decompress_struct& info);

  /// Nothing taken is used any more.
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

  // libjpeg's functions
  static JpegMemory& of(j_common_ptr info) { return *static_cast<JpegMemory*>(info->client_data); }
  static void* small_or_large(j_common_ptr info, int pool, std::size_t bytes);
  static JSAMPARRAY samples(j_common_ptr info, int pool, JDIMENSION width, JDIMENSION height);
  static JBLOCKARRAY blocks(j_common_ptr info, int pool, JDIMENSION width, JDIMENSION height);
  static jvirt_barray_ptr all_blocks(j_common_ptr info, int pool, boolean zeros, JDIMENSION width,
                                     JDIMENSION height, JDIMENSION most);
  static JBLOCKARRAY some_blocks(j_common_ptr info, jvirt_barray_ptr all, JDIMENSION first,
                                 JDIMENSION count, boolean writable);
  static void free_pool(j_common_ptr info, int pool);

  std::array<Block, 48> blocks_;  // each as large as all before it
  std::size_t count_ = 0;
  std::size_t used_ = 0;  // bytes of the last block
};

}  // namespace penstock::images
