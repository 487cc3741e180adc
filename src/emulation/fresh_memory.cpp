// SPDX-License-Identifier: Apache-2.0
#include "fresh_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <optional>

#include "annotations.hpp"
#include "memory_file.hpp"
#include "random.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

constexpr std::size_t kFileBytes = std::size_t{1} << 20;      // 16 GiB need 16,384 mappings of it
constexpr std::size_t kFilledBytes = std::size_t{256} << 10;  // filled faster than mapped again

/// Makes a file in memory in which each byte is `value`. Returns -1 if the system refuses.
int make_file(unsigned char value) {
  const int file = make_memory_file("penstock fresh memory", kFileBytes, 0);
  if (file < 0) return -1;
  void* const bytes = mmap(nullptr, kFileBytes, kReadWrite, MAP_SHARED, file, 0);
  if (bytes == MAP_FAILED) {
    close(file);
    return -1;
  }
  std::memset(bytes, value, kFileBytes);
  munmap(bytes, kFileBytes);
  return file;
}

/// Returns the file full of `value`. It is made once, because some tests restart the runtime
/// thousands of times.
int file_of(unsigned char value) {
  static std::mutex mutex;
  static std::array<std::optional<int>, 256> files;
  const std::lock_guard lock(mutex);
  std::optional<int>& file = files[value];
  if (!file) file = make_file(value);
  return *file;
}

}  // namespace

unsigned char fresh_byte(const Options& options) {
  switch (options.schedule) {
    case Schedule::lazy:
      return 0x7f;
    case Schedule::random:
      return static_cast<unsigned char>(0xc0 + random_bits(options.seed, 0, 0) % 63);
    default:
      return 0xff;
  }
}

FreshMemory::FreshMemory(unsigned char value) : value_(value), file_(file_of(value)) {}

bool FreshMemory::map(void* address, std::size_t bytes, int sharing) const {
  const bool from_file = sharing == MAP_PRIVATE && file_ >= 0;
  const int flags = sharing | MAP_NORESERVE | MAP_FIXED | (from_file ? 0 : MAP_ANONYMOUS);
  const std::size_t step = from_file ? kFileBytes : bytes;
  auto* const begin = static_cast<std::byte*>(address);
  for (std::size_t at = 0; at < bytes; at += step)
    if (mmap(begin + at, std::min(step, bytes - at), kReadWrite, flags, from_file ? file_ : -1,
             0) == MAP_FAILED)
      return false;
  if (!from_file) fill(address, bytes);
  return true;
}

void FreshMemory::fill(void* data, std::size_t bytes) const {
  std::memset(data, value_, bytes);
}

void FreshMemory::renew(void* data, std::size_t bytes) const {
  // The written pages are discarded, so the memory shows the file again.
  if (file_ >= 0 && bytes > kFilledBytes && madvise(data, bytes, MADV_DONTNEED) == 0) return;
  fill(data, bytes);
}

}  // namespace penstock::emulation::detail
