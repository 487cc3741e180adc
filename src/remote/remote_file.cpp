// SPDX-License-Identifier: Apache-2.0
#include "remote_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <penstock/markers.hpp>
#include <stdexcept>
#include <utility>

#include "part_group.hpp"
#include "renewal.hpp"

namespace penstock::remote {
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
  Ahead& ahead = session_->ahead;
  // It waits for requests when the claims are let go.
  PartGroup group(session_->transfers, object_);
  Claims claims(ahead);
  while (!target.empty()) {
    const Ahead::Piece piece = claims.full() ? Ahead::Piece{nullptr, target.size()}
                                             : ahead.find(*object_, offset, target.size());
    const std::span<std::byte> here = target.first(piece.bytes);
    if (piece.block != nullptr)
      claims.add(*piece.block, offset, here);
    else
      group.ask(offset, here);
    offset += piece.bytes;
    target = target.subspan(piece.bytes);
  }
  claims.take([&](std::uint64_t from, std::span<std::byte> into) { group.ask(from, into); });
  group.wait();
}

void RemoteFile::will_need(std::span<const FileRange> ranges,
                           std::chrono::steady_clock::time_point due) const noexcept {
  if (!session_->owner.is_this()) return;
  {
    std::array<FileRange, 64> behind_head;
    std::size_t count = 0;
    for (FileRange range : ranges) {
      if (range.offset < head_.size()) {
        const std::uint64_t in_head = head_.size() - range.offset;
        if (range.bytes <= in_head) continue;
        range = {head_.size(), range.bytes - in_head};
      }
      behind_head[count++] = range;
      if (count < behind_head.size()) continue;
      session_->ahead.fetch(object_, behind_head, due);
      count = 0;
    }
    session_->ahead.fetch(object_, std::span(behind_head).first(count), due);
  }
}

}  // namespace penstock::remote
