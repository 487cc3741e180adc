// SPDX-License-Identifier: Apache-2.0
#include "remote_file.hpp"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstring>
#include <penstock/markers.hpp>
#include <stdexcept>
#include <utility>

#include "part_group.hpp"
#include "renewal.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {
namespace {

struct OpenRange {
  static constexpr const char* message = "remote open";
  static constexpr MarkerCategory category = markers::category::wait;
};
struct ReadRange {
  static constexpr const char* message = "remote read";
  static constexpr MarkerCategory category = markers::category::wait;
};

/// The pieces of a read that are in blocks: each is let go at the end.
class Claims {
 public:
  explicit Claims(Ahead& ahead) : ahead_(ahead) {}
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;
  ~Claims() {
    for (; taken_ < count_; ++taken_)
      ahead_.take(*claims_[taken_].block, claims_[taken_].offset, {});
  }

  bool full() const noexcept { return count_ == claims_.size(); }
  void add(Ahead::Block& block, std::uint64_t offset, std::span<std::byte> target) noexcept {
    claims_[count_++] = {&block, offset, target};
  }
  /// Copies each from its block; calls `otherwise(offset, target)` for those whose block has
  /// failed.
  template <class Otherwise>
  void take(Otherwise otherwise) {
    while (taken_ < count_) {
      const Claim& claim = claims_[taken_++];
      if (!ahead_.take(*claim.block, claim.offset, claim.target))
        otherwise(claim.offset, claim.target);
    }
  }

 private:
  struct Claim {
    Ahead::Block* block = nullptr;
    std::uint64_t offset = 0;
    std::span<std::byte> target;
  };

  Ahead& ahead_;
  std::array<Claim, 32> claims_{};
  std::size_t count_ = 0, taken_ = 0;
};

/// What a read gets from the server, or from what was fetched ahead.
class Fetch {
 public:
  Fetch(Session& session, const std::shared_ptr<const RemoteObject>& object)
      : ahead_(session.ahead),
        object_(*object),
        group_(session.transfers, object),
        claims_(session.ahead) {}

  void ask(std::uint64_t offset, std::span<std::byte> target) {
    while (!target.empty()) {
      const Ahead::Piece piece = claims_.full() ? Ahead::Piece{nullptr, target.size()}
                                                : ahead_.find(object_, offset, target.size());
      const std::span<std::byte> here = target.first(piece.bytes);
      if (piece.block != nullptr)
        claims_.add(*piece.block, offset, here);
      else
        group_.ask(offset, here);
      offset += piece.bytes;
      target = target.subspan(piece.bytes);
    }
  }
  void wait() {
    claims_.take([&](std::uint64_t from, std::span<std::byte> into) { group_.ask(from, into); });
    group_.wait();
  }

 private:
  Ahead& ahead_;
  const RemoteObject& object_;
  PartGroup group_;
  Claims claims_;  // Its end lets go what the end of group_ may wait for.
};

constexpr std::size_t kMostPieces = 1024;  // that one read takes from the cache

}  // namespace

RemoteFile::RemoteFile(std::shared_ptr<Session> session, RemoteObject opened,
                       std::shared_ptr<Signatures> signatures)
    : session_(std::move(session)), signatures_(std::move(signatures)) {
  session_->require_own_process();
  const ScopedRange range(OpenRange{}, 0);
  const auto object = std::make_shared<RemoteObject>(std::move(opened));
  object_ = object;
  try {
    with_credentials(signatures_.get(), [&] {
      try {
        open(*object, false);
      } catch (const ExpiredError&) {
        throw;
      } catch (const RemoteError& error) {
        // Some servers refuse a range that ends behind the end of the object.
        if (error.status() != 400 && error.status() != 416) throw;
        open(*object, true);
        if (object->size > head_.size()) throw;
      }
    });
    head_.shrink_to_fit();
    if (session_->cache) version_ = object_version(object->url, object->etag, object->size);
  } catch (const RemoteError& error) {
    throw RemoteError(object_->name + ": " + error.what(), object_->name, error.status(),
                      error.attempts());
  }
}

void RemoteFile::open(RemoteObject& object, bool whole) {
  head_.resize(session_->options.head_bytes);
  PartGroup group(session_->transfers, object_);
  if (whole)
    group.open_whole(head_);
  else
    group.open(head_);
  group.wait();
  object.size = group.total();
  object.etag = group.etag();
  head_.resize(group.received());
}

RemoteFile::~RemoteFile() {
  if (session_->owner.is_this()) session_->ahead.forget(*object_);
}

std::size_t RemoteFile::read(std::uint64_t offset, std::span<std::byte> target) const {
  session_->require_own_process();
  if (offset >= size()) return 0;
  const auto bytes =
      static_cast<std::size_t>(std::min<std::uint64_t>(target.size(), size() - offset));
  target = target.first(bytes);
  if (offset < head_.size() && bytes > 0) {
    const std::size_t from_head = std::min(bytes, static_cast<std::size_t>(head_.size() - offset));
    std::memcpy(target.data(), head_.data() + offset, from_head);
    offset += from_head;
    target = target.subspan(from_head);
  }
  if (!target.empty())
    with_credentials(signatures_.get(), [&] { read_behind_head(offset, target); });
  return bytes;
}

void RemoteFile::read_behind_head(std::uint64_t offset, std::span<std::byte> target) const {
  const ScopedRange range(ReadRange{}, target.size());
  Cache* const cache = session_->cache_of_reads();
  if (cache == nullptr || !version_ || !cache->takes(target.size())) {
    Fetch fetch(*session_, object_);
    fetch.ask(offset, target);
    fetch.wait();
    return;
  }
  const CachePieces pieces(offset, target.size(), cache->slot_bytes());
  for (std::uint64_t i = 0; i < pieces.count(); i += kMostPieces)
    read_by_cache(*cache, pieces, i, target);
}

/// Reads the pieces from `first` on, at most kMostPieces. `target` is that of all.
void RemoteFile::read_by_cache(Cache& cache, const CachePieces& pieces, std::uint64_t first,
                               std::span<std::byte> target) const {
  const auto count =
      static_cast<std::size_t>(std::min<std::uint64_t>(pieces.count() - first, kMostPieces));
  const auto key = [&](std::size_t i) { return pieces.key(*version_, first + i); };
  const auto range = [&](std::size_t begin, std::size_t end) {
    const auto at = static_cast<std::size_t>(pieces.begin(first + begin));
    return target.subspan(at, static_cast<std::size_t>(pieces.begin(first + end)) - at);
  };
  std::bitset<kMostPieces> missing;
  std::size_t first_missing = 0;
  Fetch fetch(*session_, object_);
  for (std::size_t i = 0; i <= count; ++i) {
    if (i < count && !cache.read(key(i), range(i, i + 1))) {
      missing.set(i);
      continue;
    }
    if (first_missing < i) fetch.ask(key(first_missing).offset, range(first_missing, i));
    first_missing = i + 1;
  }
  if (missing.none()) return;
  fetch.wait();
  for (std::size_t i = 0; i < count; ++i)
    if (missing[i]) cache.offer(key(i), range(i, i + 1));
}

void RemoteFile::will_need(std::span<const FileRange> ranges,
                           std::chrono::steady_clock::time_point due) const noexcept {
  if (!session_->owner.is_this()) return;
  Cache* const cache = version_ ? session_->cache_of_reads() : nullptr;
  std::array<FileRange, 256> to_fetch;
  std::size_t count = 0;
  const auto fetch = [&](const FileRange& range) {
    if (count > 0 && range.offset == to_fetch[count - 1].offset + to_fetch[count - 1].bytes) {
      to_fetch[count - 1].bytes += range.bytes;
      return;
    }
    to_fetch[count++] = range;
    if (count < to_fetch.size()) return;
    session_->ahead.fetch(object_, to_fetch, due);
    count = 0;
  };
  for (FileRange range : ranges) {
    if (range.offset < head_.size()) {
      const std::uint64_t in_head = head_.size() - range.offset;
      if (range.bytes <= in_head) continue;
      range = {head_.size(), range.bytes - in_head};
    }
    if (range.offset >= size()) continue;
    range.bytes = std::min(range.bytes, size() - range.offset);
    if (cache == nullptr || !cache->takes(range.bytes)) {
      if (due != later) fetch(range);
      continue;
    }
    const CachePieces pieces(range.offset, range.bytes, cache->slot_bytes());
    for (std::uint64_t i = 0; i < pieces.count(); ++i) {
      const CacheKey key = pieces.key(*version_, i);
      if (due == later)
        cache->will_read(key);
      else if (!cache->will_need(key))
        fetch({key.offset, key.bytes});
    }
  }
  if (due != later) session_->ahead.fetch(object_, std::span(to_fetch).first(count), due);
}

}  // namespace penstock::remote
