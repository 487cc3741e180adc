// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ahead: bytes that are fetched before they are read, in blocks of a bounded memory.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <penstock/file.hpp>
#include <span>
#include <utility>
#include <vector>

#include "buffers.hpp"
#include "clock.hpp"
#include "part.hpp"
#include "transfers.hpp"

namespace penstock::remote {

class Ahead;

/// Bytes of an object, fetched by one part.
class AheadBlock final : public PartOwner {
 public:
  using Key = std::pair<const RemoteObject*, std::uint64_t>;  ///< the object, and where it begins

  void part_ended(Part& part) noexcept override;

 private:
  friend class Ahead;
  enum class State : std::uint8_t { under_way, whole, failed };

  Ahead* ahead_ = nullptr;
  Key key_{};
  std::size_t bytes_ = 0;
  std::size_t wanted_ = 0;  // bytes that are still to be read
  Buffer buffer_;
  State state_ = State::under_way;
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
  /// has read it 10 seconds after its due time (without one: 60 seconds after it was asked for).
  void fetch(const std::shared_ptr<const RemoteObject>& object, std::span<const FileRange> ranges,
             Time due) noexcept;

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

  /// Nobody will read the object any more.
  void forget(const RemoteObject& object) noexcept;

 private:
  friend AheadBlock;
  using Blocks = std::map<Block::Key, Block>;

  Block* add(const std::shared_ptr<const RemoteObject>& object, std::uint64_t offset,
             std::size_t bytes, std::size_t wanted, Time due);
  bool covers(const RemoteObject& object, std::uint64_t offset, std::uint64_t bytes);
  void fetch_one(const std::shared_ptr<const RemoteObject>& object, std::uint64_t offset,
                 std::uint64_t bytes, std::uint64_t wanted, Time due);
  void ended(Block& block, bool failed) noexcept;
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
