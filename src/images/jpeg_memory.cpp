// SPDX-License-Identifier: Apache-2.0

// C code calls these functions, so none of them throws. libjpeg's error exit is a jump.

#include "jpeg_memory.hpp"

#include <jerror.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

constexpr std::size_t kAlignment = 64;  // libjpeg-turbo's vector code needs 32

constexpr std::size_t rounded_up(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// An object to which libjpeg only holds a pointer.
struct AllBlocks {
  JBLOCKARRAY rows;
  JDIMENSION height;
};

}  // namespace

void JpegMemory::serve(jpeg_decompress_struct& info) {
  info.client_data = this;
  info.mem->alloc_small = small_or_large;
  info.mem->alloc_large = small_or_large;
  info.mem->alloc_sarray = samples;
  info.mem->alloc_barray = blocks;
  info.mem->request_virt_barray = all_blocks;
  info.mem->access_virt_barray = some_blocks;
  info.mem->free_pool = free_pool;
}

void JpegMemory::reset() noexcept {
  used_ = 0;
  if (count_ < 2) return;
  std::size_t bytes = 0;
  while (count_ > 0) {
    bytes += blocks_[--count_].bytes;
    blocks_[count_] = {};
  }
  add_block(bytes);  // If there is no memory, the next image tries again.
}

bool JpegMemory::add_block(std::size_t bytes) noexcept {
  if (count_ == blocks_.size()) return false;
  blocks_[count_].memory.reset(new (std::nothrow) std::byte[bytes]);
  if (!blocks_[count_].memory) return false;
  blocks_[count_++].bytes = bytes;
  used_ = 0;
  return true;
}

void* JpegMemory::take(j_common_ptr info, std::size_t bytes) {
  constexpr std::size_t kFirst = std::size_t{1} << 18;
  const auto fits = [&] {
    return count_ > 0 && blocks_[count_ - 1].bytes - used_ >= bytes + kAlignment;
  };
  bytes = rounded_up(bytes);
  if (!fits()) {
    std::size_t before = 0;
    for (std::size_t block = 0; block < count_; ++block) before += blocks_[block].bytes;
    if (!add_block(std::max({bytes + kAlignment, before, kFirst})))
      ERREXIT1(info, JERR_OUT_OF_MEMORY, 0);
  }
  std::byte* const begin = blocks_[count_ - 1].memory.get();
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(begin) % kAlignment;
  const std::size_t at = used_ + (misaligned == 0 ? 0 : kAlignment - misaligned);
  used_ += bytes;
  return begin + at;
}

template <class Row>
Row* JpegMemory::rows(j_common_ptr info, std::size_t row_bytes, std::size_t count) {
  auto* const result = static_cast<Row*>(take(info, count * sizeof(Row)));
  auto* const memory = static_cast<std::byte*>(take(info, count * row_bytes));
  for (std::size_t row = 0; row < count; ++row)
    result[row] = reinterpret_cast<Row>(memory + row * row_bytes);
  return result;
}

void* JpegMemory::small_or_large(j_common_ptr info, int, std::size_t bytes) {
  return of(info).take(info, bytes);
}

JSAMPARRAY JpegMemory::samples(j_common_ptr info, int, JDIMENSION width, JDIMENSION height) {
  // Vector code writes up to the next multiple of 64.
  return of(info).rows<JSAMPROW>(info, rounded_up(width), height);
}

JBLOCKARRAY JpegMemory::blocks(j_common_ptr info, int, JDIMENSION width, JDIMENSION height) {
  return of(info).rows<JBLOCKROW>(info, width * sizeof(JBLOCK), height);
}

jvirt_barray_ptr JpegMemory::all_blocks(j_common_ptr info, int pool, boolean zeros,
                                        JDIMENSION width, JDIMENSION height, JDIMENSION) {
  auto* const all = static_cast<AllBlocks*>(of(info).take(info, sizeof(AllBlocks)));
  *all = {blocks(info, pool, width, height), height};
  if (zeros != FALSE && height > 0)
    std::memset(all->rows[0], 0, std::size_t{height} * width * sizeof(JBLOCK));
  return reinterpret_cast<jvirt_barray_ptr>(all);
}

JBLOCKARRAY JpegMemory::some_blocks(j_common_ptr info, jvirt_barray_ptr opaque, JDIMENSION first,
                                    JDIMENSION count, boolean) {
  const auto* const all = reinterpret_cast<const AllBlocks*>(opaque);
  if (std::uint64_t{first} + count > all->height) ERREXIT(info, JERR_BAD_VIRTUAL_ACCESS);
  return all->rows + first;
}

void JpegMemory::free_pool(j_common_ptr info, int) {
  of(info).reset();
}

}  // namespace penstock::images
