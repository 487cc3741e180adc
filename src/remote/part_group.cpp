// SPDX-License-Identifier: Apache-2.0
#include "part_group.hpp"

#include <algorithm>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::remote {

PartGroup::~PartGroup() {
  wait_for_all();
}

void PartGroup::ask(std::uint64_t offset, std::span<std::byte> target) {
  if (target.empty()) return;
  const std::size_t most = transfers_.options.part_bytes;
  const std::size_t parts = (target.size() - 1) / most + 1;
  const std::size_t part_bytes = (target.size() - 1) / parts + 1;
  for (std::size_t begin = 0; begin < target.size(); begin += part_bytes)
    submit(offset + begin, target.subspan(begin, std::min(part_bytes, target.size() - begin)),
           Kind::range);
}

void PartGroup::open(std::span<std::byte> target) {
  submit(0, target, Kind::opening);
}

void PartGroup::open_whole(std::span<std::byte> target) {
  submit(0, target, Kind::whole);
}

void PartGroup::submit(std::uint64_t offset, std::span<std::byte> target, Kind kind) {
  Part& part = transfers_.take_part();
  part.object = object_;
  part.offset = offset;
  part.target = target;
  part.owner = this;
  part.cancelled = &cancelled_;
  part.opening = kind != Kind::range;
  part.whole = kind == Kind::whole;
  {
    const std::lock_guard lock(mutex_);
    ++under_way_;
  }
  if (transfers_.submit(part)) return;
  const std::lock_guard lock(mutex_);
  --under_way_;
  throw RemoteError("the client was cancelled", object_->name, 0, 0);
}

void PartGroup::part_ended(Part& part) noexcept {
  // The lock is held to the end: when it is gone, so may this object be.
  const std::lock_guard lock(mutex_);
  --under_way_;
  if (part.failure && !failure_) failure_ = std::move(part.failure);
  if (part.opening && !part.failure) {
    received_ = part.received;
    total_ = part.total;
    etag_.swap(part.etag);
    checksum_ = part.checksum;
    unchanged_ = part.unchanged;
  }
  if (under_way_ == 0 || failure_) ended_.notify_all();
}

void PartGroup::wait_for_all() noexcept {
  std::unique_lock lock(mutex_);
  if (under_way_ == 0) return;
  cancelled_.store(true, std::memory_order_release);
  lock.unlock();
  transfers_.look_for_cancelled();
  lock.lock();
  ended_.wait(lock, [this] { return under_way_ == 0; });
}

void PartGroup::wait() {
  {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return under_way_ == 0 || failure_; });
    if (!failure_) return;
  }
  wait_for_all();
  const std::string text = failure_->text.empty() ? "out of memory" : failure_->text;
  if (failure_->expired)
    throw ExpiredError(text, object_->name, failure_->status, failure_->attempts);
  throw RemoteError(text, object_->name, failure_->status, failure_->attempts);
}

}  // namespace penstock::remote
