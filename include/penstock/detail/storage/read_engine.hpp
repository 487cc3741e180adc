// SPDX-License-Identifier: Apache-2.0
#pragma once

// ReadEngine: how a ReadQueue works. It joins neighbours to reads, takes from the page cache what
// is there, keeps as many other reads in flight as it has slots, and hands over what has arrived.
//
// What a read does not bring whole is told to the caller as missed, who reads it alone, as without
// a queue: so it has the same errors, and short reads are continued.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/detail/function_ref.hpp>
#include <penstock/detail/storage/page_cache_look.hpp>
#include <penstock/detail/storage/read_ring.hpp>
#include <penstock/detail/storage/read_slot.hpp>
#include <penstock/detail/usable.hpp>
#include <penstock/read_queue_options.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

class ReadEngine {
 public:
  using Bytes = std::span<const std::byte>;
  using Arrived = FunctionRef<void(const WantedBytes&, Bytes)>;
  using Missed = FunctionRef<void(const WantedBytes&)>;

  explicit ReadEngine(const ReadQueueOptions& options)
      : options_(checked(options)),
        ring_(options.depth, options.method),
        slots_(std::make_unique<ReadSlot[]>(options.depth)) {
    for (std::size_t i = options.depth; i-- > 0;) free_.push_back(i);
    announced_.reserve(options.depth);
    done_.reserve(options.depth);
  }

  /// Room for what is wanted, which is kept from one call to the next.
  std::vector<WantedBytes>& wanted() {
    if (is_reading_) throw std::logic_error("ReadQueue: it is called while it reads");
    wanted_.clear();
    return wanted_;
  }
  /// For samples that are read alone.
  std::vector<std::byte>& scratch() { return scratch_; }

  /// Reads what is in wanted(). `data_bytes`: of all the data, of which this is a part. Calls
  /// `arrived` or `missed` for each.
  void read(std::uint64_t data_bytes, Arrived arrived, Missed missed) {
    const Reading reading(*this);
    is_larger_than_memory_ = data_bytes > memory_;
    stats_.requests += wanted_.size();
    for (std::span<WantedBytes> left = wanted_; !left.empty();) {
      const std::span<WantedBytes> some = left.first(std::min(left.size(), kSortedAtOnce));
      left = left.subspan(some.size());
      for (const std::span<const WantedBytes> one : joined(some)) start(one, arrived, missed);
    }
    while (in_flight_ > 0) finish_some(arrived, missed);
  }

  /// Reads whole files, of which those of this machine are opened and read by the ring.
  /// `path_of(i, path)` appends the path of file i, whose key becomes i.
  void read_files(std::size_t count, bool are_local,
                  FunctionRef<void(std::size_t, PathText&)> path_of, Arrived arrived,
                  Missed missed) {
    const Reading reading(*this);
    stats_.requests += count;
    look_.begin_file();
    looked_in_ = nullptr;
    for (std::size_t i = 0; i < count; ++i)
      if (are_local && ring_.is_there())
        start_file(i, path_of, arrived, missed);
      else
        miss({.key = i}, missed);
    while (in_flight_ > 0) finish_some(arrived, missed);
  }

  const ReadQueueStats& stats() const noexcept { return stats_; }
  const std::string& why_not() const noexcept { return ring_.why_not(); }

 private:
  static ReadQueueOptions checked(const ReadQueueOptions& options) {
    if (options.depth >= 1 && options.depth <= 4096) return options;
    throw std::invalid_argument("ReadQueue: a depth of " + std::to_string(options.depth) +
                                ": set ReadQueueOptions::depth to 1 to 4096");
  }

  static constexpr std::size_t kSortedAtOnce = 1024;
  static constexpr std::size_t kMostTogether = std::size_t{256} << 10;
  static constexpr std::size_t kMostInMemory = std::size_t{16} << 20;
  static constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // The system takes 2 GiB.
  /// A call of read(). At its end nothing is in flight, also after an exception.
  struct Reading {
    explicit Reading(ReadEngine& used) : engine(used) {
      if (engine.is_reading_) throw std::logic_error("ReadQueue: it is called while it reads");
      engine.ring_.own();
      engine.is_reading_ = true;
    }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
    ~Reading() {
      engine.end_all();
      engine.is_reading_ = false;
    }
    ReadEngine& engine;
  };

  // ---- Reads that begin -------------------------------------------------------------------------

  /// The reads that serve these. Of a drive, in about the order in which they are wanted: a drive
  /// has many parts, over which an order by place would spread the reads less.
  std::span<const std::span<const WantedBytes>> joined(std::span<WantedBytes> some) {
    // From the page cache, large records gain less by being joined than the order costs.
    const bool is_cached = look_.is_sure();
    const auto before = [](const WantedBytes& a, const WantedBytes& b) {
      return a.file != b.file ? a.file < b.file : a.offset < b.offset;
    };
    if ((!is_cached || some.front().bytes < GatheredRead::kMostGap) &&
        !std::ranges::is_sorted(some, before))
      std::ranges::sort(some, before);
    reads_.clear();
    for (std::span<const WantedBytes> left = some; !left.empty();) {
      reads_.push_back(left.first(together(left)));
      left = left.subspan(reads_.back().size());
    }
    const auto key = [](std::span<const WantedBytes> read) { return read.front().key; };
    if (!is_cached) std::ranges::sort(reads_, {}, key);
    return reads_;
  }

  /// How many of the first lie together.
  static std::size_t together(std::span<const WantedBytes> some) {
    const WantedBytes& first = some.front();
    std::uint64_t end = first.end();
    std::size_t count = 1;
    if (first.file->descriptor() < 0) {
      while (count < some.size() && some[count].file == first.file) ++count;
      return count;
    }
    for (; count < some.size() && count < GatheredRead::kMostTargets; ++count) {
      const WantedBytes& next = some[count];
      if (next.offset < some[count - 1].offset) break;  // They may be in no order.
      if (next.file != first.file || (next.target == nullptr) != (first.target == nullptr)) break;
      if (next.offset > end + GatheredRead::kMostGap) break;
      if (next.end() - first.offset > kMostTogether) break;
      if (next.target != nullptr && next.offset < end) break;
      end = std::max(end, next.end());
    }
    return count;
  }

  void start(std::span<const WantedBytes> some, const Arrived& arrived, const Missed& missed) {
    const WantedBytes& first = some.front();
    if (first.file->descriptor() < 0) return read_alone(some, missed);
    const std::size_t most = first.target == nullptr ? kMostInMemory : kMostAtOnce;
    if (first.bytes > most || first.offset > first.end()) return read_alone(some, missed);
    if (first.file != looked_in_) look_.begin_file(), looked_in_ = first.file;
    ReadSlot& slot = free_slot(arrived, missed);
    const DirectFile direct = direct_of(some);
    if (options_.direct != DirectReads::always || direct.descriptor < 0) {
      slot.prepare(some);
      if (look_.is_worth_it() && is_cached(slot)) return deliver_at_once(slot, arrived);
    }
    if (direct.descriptor >= 0) slot.prepare_direct(some, direct);
    launch(slot);
  }

  /// Of another machine: it is told of all first.
  void read_alone(std::span<const WantedBytes> some, const Missed& missed) {
    if (some.size() > 1) {
      ranges_.clear();
      for (const WantedBytes& one : some) ranges_.push_back({one.offset, one.bytes});
      some.front().file->will_need(ranges_, std::chrono::steady_clock::now());
    }
    for (const WantedBytes& one : some) miss(one, missed);
  }

  DirectFile direct_of(std::span<const WantedBytes> some) const {
    const bool wanted = options_.direct == DirectReads::always ||
                        (options_.direct == DirectReads::automatic && is_larger_than_memory_);
    if (!wanted || some.front().bytes > kMostInMemory) return {};
    return some.front().file->direct();
  }

  bool is_cached(const ReadSlot& slot) {
    if (!look_.asks()) return slot.is_complete(slot.read());
    const ::ssize_t result = slot.read_cached();
    if (result < 0 && errno != EAGAIN)
      look_.not_possible();
    else
      look_.found(slot.is_complete(result));
    return slot.is_complete(result);
  }

  void start_file(std::size_t key, const FunctionRef<void(std::size_t, PathText&)>& path_of,
                  const Arrived& arrived, const Missed& missed) {
    ReadSlot& slot = free_slot(arrived, missed);
    slot.key = key;
    slot.path.clear();
    try {
      path_of(key, slot.path);
    } catch (const std::system_error&) {  // It is too long.
      return miss_file(slot, missed);
    }
    if (look_.is_worth_it()) {
      slot.opened = open_if_cached(slot.path.c_str());
      if (slot.opened.is_open()) return start_opened(slot, arrived, missed);
      if (errno == ENOENT || errno == EACCES) return miss_file(slot, missed);
      look_.found(false);
    }
    slot.is_opening = true;
    launch(slot);
  }

  void start_opened(ReadSlot& slot, const Arrived& arrived, const Missed& missed) {
    struct stat status {};
    const bool is_known = ::fstat(slot.opened.descriptor(), &status) == 0;
    const auto bytes = static_cast<std::uint64_t>(status.st_size);
    if (!is_known || !S_ISREG(status.st_mode) || bytes == 0 || bytes > kMostInMemory)
      return miss_file(slot, missed);
    slot.is_opening = false;
    slot.prepare_file(static_cast<std::size_t>(bytes));
    if (look_.is_worth_it() && is_cached(slot)) return deliver_at_once(slot, arrived);
    launch(slot);
  }

  // ---- Reads in flight --------------------------------------------------------------------------

  ReadSlot& free_slot(const Arrived& arrived, const Missed& missed) {
    while (free_.empty()) finish_some(arrived, missed);
    return slots_[free_.back()];
  }

  /// Passes the read of the last free slot to the ring, or announces it.
  void launch(ReadSlot& slot) {
    if (!slot.is_busy) {
      free_.pop_back();
      slot.is_busy = true;
      stats_.most_in_flight = std::max(stats_.most_in_flight, ++in_flight_);
    }
    const auto number = static_cast<std::size_t>(&slot - slots_.get());
    if (slot.tries == 0 && !slot.is_opening) announce(slot);
    if (!ring_.is_there())
      announced_.push_back(number);
    else if (slot.is_opening)
      ring_.add_open(slot, number);
    else
      ring_.add_read(slot, number);
  }

  void announce(const ReadSlot& slot) {
    ++stats_.queued;
    if (slot.is_direct) ++stats_.direct;
    if (slot.is_direct || slot.wanted.empty()) return;
    const File& file = *slot.wanted.front().file;
    FileRange range{slot.offset(), slot.bytes()};
    if (const std::uint64_t bytes = options_.read_around; bytes > 0) {
      const std::uint64_t window = slot.offset() / bytes;
      if (&file == around_in_ && window == around_) return;
      around_in_ = &file;
      around_ = window;
      range = {window * bytes, bytes};
    } else if (ring_.is_there()) {
      return;
    }
    file.will_need(std::span(&range, 1));
  }

  /// Waits for at least one read, and hands over what has arrived.
  void finish_some(const Arrived& arrived, const Missed& missed) {
    done_.clear();
    if (ring_.is_there() && !ring_.wait(done_))
      for (std::size_t i = 0; i < options_.depth; ++i)
        if (slots_[i].is_busy) announced_.push_back(i);
    if (!ring_.is_there()) read_oldest();
    for (next_done_ = 0; next_done_ < done_.size();) finish(done_[next_done_++], arrived, missed);
  }

  void read_oldest() {
    const std::size_t number = announced_.front();
    announced_.erase(announced_.begin());
    const ReadSlot& slot = slots_[number];
    done_.push_back({number, slot.is_opening ? -1 : static_cast<int>(slot.read())});
  }

  void finish(const ReadResult done, const Arrived& arrived, const Missed& missed) {
    ReadSlot& slot = slots_[done.slot];
    if (slot.is_opening && done.result >= 0) {
      ++stats_.opened;
      slot.opened = OpenFile::of(done.result);
      return start_opened(slot, arrived, missed);
    }
    if ((done.result == -EAGAIN || done.result == -EINTR) && ++slot.tries < 4) {
      // What was opened without waiting may not be waited for on some file systems.
      if (slot.opened.is_open()) ::fcntl(slot.descriptor, F_SETFL, 0);
      return launch(slot);
    }
    if (!slot.is_opening && slot.is_complete(done.result)) return deliver(slot, arrived);
    if (slot.wanted.empty()) return miss_file(slot, missed);
    const Leaving leaving(*this, slot);
    for (const WantedBytes& one : slot.wanted) miss(one, missed);
  }

  // ---- Reads that end ---------------------------------------------------------------------------

  /// The slot is free again at the end, also after an exception.
  struct Leaving {
    Leaving(ReadEngine& used, ReadSlot& left) : engine(used), slot(left) {}
    Leaving(const Leaving&) = delete;
    Leaving& operator=(const Leaving&) = delete;
    ~Leaving() { engine.leave(slot); }
    ReadEngine& engine;
    ReadSlot& slot;
  };
  void leave(ReadSlot& slot) {
    slot.clear();
    if (!slot.is_busy) return;
    slot.is_busy = false;
    --in_flight_;
    free_.push_back(static_cast<std::size_t>(&slot - slots_.get()));
  }

  void deliver_at_once(ReadSlot& slot, const Arrived& arrived) {
    ++stats_.cached;
    deliver(slot, arrived);
  }
  void deliver(ReadSlot& slot, const Arrived& arrived) {
    const Leaving leaving(*this, slot);
    if (slot.wanted.empty()) {
      stats_.bytes += slot.whole().size();
      return arrived({.bytes = slot.whole().size(), .key = slot.key}, slot.whole());
    }
    for (const WantedBytes& one : slot.wanted) {
      stats_.bytes += one.bytes;
      arrived(one, slot.take(one));
    }
  }
  void miss_file(ReadSlot& slot, const Missed& missed) {
    const Leaving leaving(*this, slot);
    miss({.key = slot.key}, missed);
  }
  void miss(const WantedBytes& one, const Missed& missed) {
    ++stats_.alone;
    stats_.bytes += one.bytes;
    missed(one);
  }

  /// Ends what is in flight, behind an exception.
  void end_all() noexcept {
    if (in_flight_ == 0) return;
    ring_.end_all(done_);
    for (; next_done_ < done_.size(); ++next_done_)
      if (slots_[done_[next_done_].slot].is_opening) OpenFile::of(done_[next_done_].result);
    announced_.clear();
    for (std::size_t i = 0; i < options_.depth; ++i)
      if (slots_[i].is_busy) leave(slots_[i]);
  }

  const ReadQueueOptions options_;
  const std::uint64_t memory_ = usable_memory();
  ReadRing ring_;
  std::unique_ptr<ReadSlot[]> slots_;
  std::vector<std::size_t> free_;       // numbers of slots
  std::vector<std::size_t> announced_;  // those that wait for a pread, in their order
  std::vector<ReadResult> done_;
  std::size_t next_done_ = 0;  // in `done_`, which is to be handed over
  std::size_t in_flight_ = 0;
  bool is_reading_ = false, is_larger_than_memory_ = false;
  PageCacheLook look_;
  const File* looked_in_ = nullptr;
  const File* around_in_ = nullptr;  // The system was told to read window `around_` of this file.
  std::uint64_t around_ = 0;
  std::vector<FileRange> ranges_;
  std::vector<WantedBytes> wanted_;
  std::vector<std::span<const WantedBytes>> reads_;
  std::vector<std::byte> scratch_;
  ReadQueueStats stats_;
};

}  // namespace penstock::detail
