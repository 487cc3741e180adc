// SPDX-License-Identifier: Apache-2.0
#include "ahead.hpp"

#include <algorithm>
#include <cstring>
#include <exception>

namespace penstock::inline PENSTOCK_ABI::remote {
namespace {

constexpr std::uint64_t kGap = std::uint64_t{64} << 10;
constexpr std::chrono::seconds kAfterDue{10}, kWithoutDue{60};

}  // namespace

void Ahead::fetch(const std::shared_ptr<const RemoteObject>& object,
                  std::span<const FileRange> ranges, Time due, Time now) noexcept {
  const Wish wish{due, now};
  try {
    std::uint64_t begin = 0, end = 0, wanted = 0;
    for (const FileRange& range : ranges) {
      if (range.bytes == 0 || range.offset >= object->size) continue;
      const std::uint64_t first = range.offset;
      const std::uint64_t behind = first + std::min(range.bytes, object->size - first);
      const bool is_asked_for = wanted > 0 && first >= begin && behind <= end;
      if (is_asked_for || covers(*object, first, behind - first)) continue;
      const bool joins = wanted > 0 && first >= end && first - end < kGap &&
                         behind - begin <= transfers_.options.part_bytes;
      if (!joins) {
        fetch_one(object, begin, end - begin, wanted, wish);
        begin = first;
        wanted = 0;
      }
      end = behind;
      wanted += behind - first;
    }
    fetch_one(object, begin, end - begin, wanted, wish);
  } catch (const std::exception&) {  // A hint has no errors.
  }
}

bool Ahead::fetch_whole(const std::shared_ptr<const RemoteObject>& object, std::size_t room,
                        Time due, Time now) noexcept try {
  return add(object, 0, room, room, {due, now, true});
} catch (const std::exception&) {
  return false;
}

bool Ahead::covers(const RemoteObject& object, std::uint64_t offset, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  auto next = blocks_.upper_bound({&object, offset});
  if (next == blocks_.begin()) return false;
  const Block& block = std::prev(next)->second;
  return block.key_.first == &object && !block.unwanted_ && block.state_ != Block::State::failed &&
         offset + bytes <= block.key_.second + block.bytes_;
}

void Ahead::fetch_one(const std::shared_ptr<const RemoteObject>& object, std::uint64_t offset,
                      std::uint64_t bytes, std::uint64_t wanted, const Wish& wish) {
  const std::size_t most = transfers_.options.part_bytes;
  const std::uint64_t parts = bytes == 0 ? 0 : (bytes - 1) / most + 1;
  for (std::uint64_t part = 0; part < parts; ++part) {
    const std::uint64_t begin = bytes * part / parts, end = bytes * (part + 1) / parts;
    // A range that was cut is wanted whole; those that were joined are one part.
    const std::uint64_t of_these = parts == 1 ? wanted : end - begin;
    if (!add(object, offset + begin, static_cast<std::size_t>(end - begin),
             static_cast<std::size_t>(of_these), wish))
      return;
  }
}

/// False: there is no memory, the client was cancelled, or something of it is there already.
bool Ahead::add(const std::shared_ptr<const RemoteObject>& object, std::uint64_t offset,
                std::size_t bytes, std::size_t wanted, const Wish& wish) {
  const std::lock_guard lock(mutex_);
  const Block::Key key{object.get(), offset};
  // Blocks do not overlap.
  const auto next = blocks_.lower_bound(key);
  if (next != blocks_.end() && next->first.first == key.first &&
      next->first.second < offset + bytes)
    return false;
  if (next != blocks_.begin()) {
    const Block& before = std::prev(next)->second;
    if (before.key_.first == key.first && before.key_.second + before.bytes_ > offset) return false;
  }
  Buffer buffer = buffers_.take(bytes);
  if (!buffer) {
    drop_stale(wish.now);
    buffer = buffers_.take(bytes);
  }
  if (!buffer) return false;
  Part& part = transfers_.take_part();
  Block* block = nullptr;
  try {
    if (spare_.empty()) {
      spare_.reserve(blocks_.size() + 1);  // drop_if_done() must not allocate
      block = &blocks_.try_emplace(key).first->second;
    } else {
      Blocks::node_type node = std::move(spare_.back());
      spare_.pop_back();
      node.key() = key;
      block = &blocks_.insert(std::move(node)).position->second;
    }
  } catch (...) {
    transfers_.give_back(part);
    throw;
  }
  count_.store(blocks_.size(), std::memory_order_release);
  block->ahead_ = this;
  block->key_ = key;
  block->object_ = object;
  block->bytes_ = bytes;
  block->wanted_ = wanted;
  block->buffer_ = std::move(buffer);
  block->state_ = Block::State::under_way;
  block->readers_ = 0;
  block->unwanted_ = false;
  block->stale_ =
      wish.due == Time{} ? wish.now + kWithoutDue : std::max(wish.due, wish.now) + kAfterDue;
  block->part_ = &part;
  block->cancelled_.store(false, std::memory_order_release);
  part.object = object;
  part.offset = offset;
  part.target = {block->buffer_.data(), bytes};
  part.owner = block;
  part.cancelled = &block->cancelled_;
  part.due = wish.due;
  part.opening = part.whole = wish.whole;
  part.ahead = true;
  // It cannot end before the lock is released: ended() takes it.
  if (transfers_.submit(part)) return true;
  block->part_ = nullptr;
  block->state_ = Block::State::failed;
  drop_if_done(*block);
  return false;
}

Ahead::Piece Ahead::find(const RemoteObject& object, std::uint64_t offset,
                         std::size_t bytes) noexcept {
  if (count_.load(std::memory_order_acquire) == 0) return {nullptr, bytes};
  const std::lock_guard lock(mutex_);
  auto next = blocks_.upper_bound({&object, offset});
  if (next != blocks_.begin()) {
    Block& block = std::prev(next)->second;
    const std::uint64_t end = block.key_.second + block.bytes_;
    if (block.key_.first == &object && offset < end && !block.unwanted_ &&
        block.state_ != Block::State::failed) {
      ++block.readers_;
      if (block.part_ != nullptr) transfers_.promote(*block.part_);
      return {&block, static_cast<std::size_t>(std::min<std::uint64_t>(bytes, end - offset))};
    }
  }
  if (next == blocks_.end() || next->first.first != &object) return {nullptr, bytes};
  return {nullptr,
          static_cast<std::size_t>(std::min<std::uint64_t>(bytes, next->first.second - offset))};
}

bool Ahead::take(Block& block, std::uint64_t offset, std::span<std::byte> target) noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return block.state_ != Block::State::under_way; });
  const bool is_whole = block.state_ == Block::State::whole;
  if (is_whole && !target.empty()) {
    const std::byte* const from = block.buffer_.data() + (offset - block.key_.second);
    lock.unlock();  // readers_ keeps the block.
    std::memcpy(target.data(), from, target.size());
    count(transfers_.counters.from_ahead, target.size());
    lock.lock();
    block.wanted_ -= std::min(block.wanted_, target.size());
  }
  --block.readers_;
  drop_if_done(block);
  return is_whole;
}

std::optional<AheadBlock::Opened> Ahead::take_whole(const RemoteObject& object, const Room& room) {
  Block* const block = find(object, 0, 1).block;
  if (block == nullptr) return std::nullopt;
  std::optional<Block::Opened> opened;
  std::span<std::byte> target;
  try {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return block->state_ != Block::State::under_way; });
      if (block->state_ == Block::State::whole) opened = block->opened_;
    }
    if (opened) target = room(opened->total).first(opened->received);
  } catch (...) {
    take(*block, 0, {});
    throw;
  }
  take(*block, 0, target);
  return opened;
}

bool Ahead::has(const RemoteObject& object) noexcept {
  const std::lock_guard lock(mutex_);
  const auto next = blocks_.lower_bound({&object, 0});
  return next != blocks_.end() && next->first.first == &object && !next->second.unwanted_ &&
         next->second.state_ != Block::State::failed;
}

void Ahead::forget(const RemoteObject& object) noexcept {
  if (count_.load(std::memory_order_acquire) == 0) return;
  bool cancelled = false;
  {
    const std::lock_guard lock(mutex_);
    for (auto next = blocks_.lower_bound({&object, 0});
         next != blocks_.end() && next->first.first == &object;) {
      Block& block = (next++)->second;
      block.unwanted_ = true;
      if (block.part_ != nullptr) {
        block.cancelled_.store(true, std::memory_order_release);
        cancelled = true;
      }
      drop_if_done(block);
    }
  }
  if (cancelled) transfers_.look_for_cancelled();
}

void AheadBlock::part_ended(Part& part) noexcept {
  ahead_->ended(*this, part);
}

void Ahead::ended(Block& block, Part& part) noexcept {
  const std::lock_guard lock(mutex_);
  block.part_ = nullptr;
  block.state_ = part.failure ? Block::State::failed : Block::State::whole;
  if (part.opening) {
    block.opened_.received = block.wanted_ = part.received;
    block.opened_.total = part.total;
    block.opened_.etag.swap(part.etag);
    block.opened_.checksum = part.checksum;
  }
  changed_.notify_all();
  drop_if_done(block);
}

/// Under the lock.
void Ahead::drop_if_done(Block& block) noexcept {
  if (block.part_ != nullptr || block.readers_ > 0) return;
  const bool is_of_use =
      block.state_ == Block::State::whole && !block.unwanted_ && block.wanted_ > 0;
  if (is_of_use) return;
  block.buffer_ = {};
  block.object_.reset();
  Blocks::node_type node = blocks_.extract(block.key_);
  count_.store(blocks_.size(), std::memory_order_release);
  if (spare_.size() < spare_.capacity()) spare_.push_back(std::move(node));
}

/// Under the lock.
void Ahead::drop_stale(Time now) noexcept {
  for (auto next = blocks_.begin(); next != blocks_.end();) {
    Block& block = (next++)->second;
    if (block.state_ != Block::State::whole || block.stale_ > now) continue;
    block.unwanted_ = true;
    drop_if_done(block);
  }
}

}  // namespace penstock::remote
