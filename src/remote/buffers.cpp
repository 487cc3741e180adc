// SPDX-License-Identifier: Apache-2.0
#include "buffers.hpp"

#include <bit>
#include <new>

namespace penstock::inline PENSTOCK_ABI::remote {
namespace {

constexpr std::size_t kSmallest = std::size_t{64} << 10;

std::size_t bytes_of(std::size_t size_class) {
  return kSmallest << size_class;
}

}  // namespace

Buffer::~Buffer() {
  if (pool_ != nullptr) pool_->give_back(std::move(memory_), size_class_);
}

Buffer Buffers::take(std::size_t bytes) noexcept {
  const std::size_t blocks = bytes / kSmallest + (bytes % kSmallest > 0 ? 1 : 0);
  const auto size_class =
      blocks <= 1 ? std::size_t{0} : static_cast<std::size_t>(std::bit_width(blocks - 1));
  Buffer buffer;
  if (size_class >= free_.size()) return buffer;
  const std::lock_guard lock(mutex_);
  std::vector<Memory>& free = free_[size_class];
  if (!free.empty()) {
    buffer.memory_ = std::move(free.back());
    free.pop_back();
  } else {
    if (!make_room(bytes_of(size_class))) return buffer;
    buffer.memory_.reset(new (std::nothrow) std::byte[bytes_of(size_class)]);
    if (!buffer.memory_) return buffer;
    bytes_ += bytes_of(size_class);
  }
  buffer.pool_ = this;
  buffer.size_class_ = size_class;
  return buffer;
}

bool Buffers::make_room(std::size_t bytes) noexcept {
  for (std::size_t size_class = 0; size_class < free_.size(); ++size_class)
    while (bytes_ + bytes > most_bytes_ && !free_[size_class].empty()) {
      free_[size_class].pop_back();
      bytes_ -= bytes_of(size_class);
    }
  return bytes_ + bytes <= most_bytes_;
}

void Buffers::give_back(Memory memory, std::size_t size_class) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    free_[size_class].push_back(std::move(memory));
  } catch (const std::bad_alloc&) {  // The list cannot grow: the memory goes.
    bytes_ -= bytes_of(size_class);
  }
}

}  // namespace penstock::remote
