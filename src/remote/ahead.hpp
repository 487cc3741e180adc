// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ahead: bytes that are fetched before they are read, in blocks of a bounded memory.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <penstock/file.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "buffers.hpp"
#include "clock.hpp"
#include "part.hpp"
#include "transfers.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

class Ahead;

/// Bytes of an object, fetched by one part.
class AheadBlock final : public PartOwner {
 public:
  using Key = std::pair<const RemoteObject*, std::uint64_t>;  ///< the object, and where it begins

  /// What the answer says about an object that was not known, and how much of it has come.
  struct Opened {
    std::size_t received = 0;
    std::uint64_t total = 0;
    std::string etag;
    std::optional<std::uint32_t> checksum;  ///< as Part::checksum
  };

  void part_ended(Part& part) noexcept override;

 private:
  friend class Ahead;
  enum class State : std::uint8_t { under_way, whole, failed };

  Ahead* ahead_ = nullptr;
  Key key_{};
  std::shared_ptr<const RemoteObject> object_;  // No other object has its address meanwhile.
  std::size_t bytes_ = 0;
  std::size_t wanted_ = 0;  // bytes that are still to be read
  Buffer buffer_;
  State state_ = State::under_way;
  Opened opened_;    // of fetch_whole()
  int readers_ = 0;  // between find() and the end of take()
  bool unwanted_ = false;
  Time stale_{};
  Part* part_ = nullptr;
  std::atomic<bool> cancelled_{false};
};

/// Of all files of a client. Any number of threads may use it. `transfers` must have stopped when
/// it ends, and must outlive it.
class Ahead {
 public:
  using Block = AheadBlock;

  Ahead(Transfers& transfers, std::size_t bytes) : transfers_(transfers), buffers_(bytes) {}

  /// Fetches these ranges, as far as there is memory. Ranges with less than 64 KiB between them are
  /// fetched together, up to Options::part_bytes. What is fetched already, or is to come, is not
  /// fetched again. Memory is free again when all bytes of a range have been read, or when nobody
  /// has read it 10 seconds after its due time (without one: 60 seconds after it was asked for) and
  /// something else needs it.
  void fetch(const std::shared_ptr<const RemoteObject>& object, std::span<const FileRange> ranges,
             Time due, Time now = Clock::now()) noexcept;
  /// Fetches an object that is not known, whole or its first `room` bytes, by one request without a
  /// range. Returns false if there is no memory or the client was cancelled.
  bool fetch_whole(const std::shared_ptr<const RemoteObject>& object, std::size_t room, Time due,
                   Time now = Clock::now()) noexcept;

  /// Some bytes of an object. With a block, which is kept until take(), they are in it, or will be;
  /// else they must be asked for.
  struct Piece {
    Block* block = nullptr;
    std::size_t bytes = 0;
  };
  /// What is known of the bytes from `offset` on: at most `bytes` of them. Its part, if it waits
  /// for its turn, goes before those for which nobody waits.
  Piece find(const RemoteObject& object, std::uint64_t offset, std::size_t bytes) noexcept;
  /// Waits for the block, copies its bytes from the object's `offset` on, and lets the block go.
  /// False: it has failed, and nothing was copied.
  bool take(Block& block, std::uint64_t offset, std::span<std::byte> target) noexcept;

  /// Waits for what fetch_whole() has asked for, copies it to the beginning of the memory that
  /// `room(bytes of the object)` returns, and lets it go. nullopt: there is nothing, or it has
  /// failed. Throws what `room` throws.
  using Room = std::function<std::span<std::byte>(std::uint64_t)>;
  std::optional<Block::Opened> take_whole(const RemoteObject& object, const Room& room);
  /// Whether something of the object is there, or is to come.
  bool has(const RemoteObject& object) noexcept;

  /// Nobody will read the object any more.
  void forget(const RemoteObject& object) noexcept;

 private:
  friend AheadBlock;
  using Blocks = std::map<Block::Key, Block>;

  /// When a block is wanted, and what for.
  struct Wish {
    Time due, now;
    bool whole = false;
  };

  bool add(const std::shared_ptr<const RemoteObject>& object, std::uint64_t offset,
           std::size_t bytes, std::size_t wanted, const Wish& wish);
  bool covers(const RemoteObject& object, std::uint64_t offset, std::uint64_t bytes);
  void fetch_one(const std::shared_ptr<const RemoteObject>& object, std::uint64_t offset,
                 std::uint64_t bytes, std::uint64_t wanted, const Wish& wish);
  void ended(Block& block, Part& part) noexcept;
  void drop_if_done(Block& block) noexcept;
  void drop_stale(Time now) noexcept;

  Transfers& transfers_;
  Buffers buffers_;
  std::atomic<std::size_t> count_{0};  // of blocks: a read without any takes no lock
  std::mutex mutex_;
  std::condition_variable changed_;
  Blocks blocks_;
  std::vector<Blocks::node_type> spare_;
};

}  // namespace penstock::remote
