// SPDX-License-Identifier: Apache-2.0
#pragma once

// Cache: ranges of objects on a disk of this machine, for all processes of a node.
//
// The directory has three files. "slots" has places of equal size, and a range is in one of them.
// "index" says what they have. A process that writes to them locks "lock" (flock); a process that
// reads takes no lock. Bytes are right if their checksum is that of the record. So it does not
// matter when a process was killed, or whether a slot was written while it was read.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <penstock/detail/open_file.hpp>
#include <penstock/remote.hpp>
#include <span>
#include <thread>
#include <vector>

#include "buffers.hpp"
#include "cache_index.hpp"
#include "cache_policy.hpp"
#include "cache_record.hpp"
#include "clock.hpp"
#include "counters.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

/// A range as it is in a cache: in pieces of at most a slot, which differ by a byte at most.
class CachePieces {
 public:
  CachePieces(std::uint64_t offset, std::uint64_t bytes, std::size_t slot_bytes) noexcept
      : offset_(offset), bytes_(bytes), count_(bytes == 0 ? 0 : (bytes - 1) / slot_bytes + 1) {}

  std::uint64_t count() const noexcept { return count_; }
  /// Where piece i begins in the range; at count() the range ends.
  std::uint64_t begin(std::uint64_t i) const noexcept {
    return bytes_ / count_ * i + std::min(i, bytes_ % count_);
  }
  CacheKey key(const ObjectVersion& version, std::uint64_t i) const noexcept {
    return {version, offset_ + begin(i), static_cast<std::uint32_t>(begin(i + 1) - begin(i))};
  }

 private:
  std::uint64_t offset_, bytes_, count_;
};

/// Any number of threads may use it. Its members report no errors; the counters count them.
class Cache {
 public:
  /// Starts a thread, which writes. `counters` must outlive this. Throws std::bad_alloc and
  /// std::system_error when there is no memory or no thread.
  Cache(const CacheOptions& options, Counters& counters);
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;
  /// Drops what is not written yet.
  ~Cache();

  std::size_t slot_bytes() const noexcept { return options_.slot_bytes; }
  /// Whether a range of this size is kept: a 64th of a slot or more.
  bool takes(std::uint64_t bytes) const noexcept { return bytes >= options_.slot_bytes / 64; }

  /// Fills the target, which has `key.bytes` bytes. Returns false if the cache does not have them;
  /// the content of the target is then undefined.
  bool read(const CacheKey& key, std::span<std::byte> target) noexcept;
  /// The same for a range whose size is not known: sets `key.bytes`, and makes `scratch` larger if
  /// it is too small.
  bool read(CacheKey& key, std::vector<std::byte>& scratch);
  /// Returns whether read() would find it. If so, it asks the system to have the bytes in memory
  /// soon, without waiting.
  bool will_need(const CacheKey& key) noexcept;
  /// Gives the cache the bytes of a range that read() did not find. It copies them, and a thread
  /// writes them later; with CacheOptions::wait, this call returns after that. `replace`: the cache
  /// also takes them if it has the range.
  void offer(const CacheKey& key, std::span<const std::byte> bytes, bool replace = false) noexcept;
  /// Announces that this will be read, after everything that was announced before.
  void will_read(const CacheKey& key) noexcept;
  /// Waits until everything that was offered so far is written or dropped. Returns false if it did
  /// not have to wait.
  bool drain() noexcept;
  /// Returns whether each slot has a range.
  bool is_full() noexcept;

 private:
  struct Entry {
    CacheKey key;
    std::uint32_t checksum = 0;
  };
  struct Job {
    CacheKey key;
    Buffer bytes;
    bool replace = false;
  };
  class DirectoryLock;

  static CachePolicy::Item item_of(const CacheKey& key) noexcept;
  void open();
  CachePolicy::Slot find(const CacheKey& key) const noexcept;
  CachePolicy::Slot look_up(const CacheKey& key, Entry& entry) noexcept;
  bool read_slot(CachePolicy::Slot slot, const Entry& entry, std::span<std::byte> target) noexcept;
  void look(bool locked) noexcept;
  void write_jobs() noexcept;
  void store(const Job& job) noexcept;
  void compact();
  void drop_damaged(const CacheKey& key, std::uint32_t checksum) noexcept;
  void failed() noexcept;

  const CacheOptions options_;
  Counters& counters_;
  const CacheHeader header_;
  penstock::detail::OpenFile lock_, slots_;
  std::atomic<bool> broken_{false};          // No file is used after that.
  std::atomic<Clock::rep> paused_until_{0};  // Nothing is written.

  std::mutex directory_mutex_;  // DirectoryLock locks it, since flock() does not exclude threads.

  std::mutex mutex_;
  CacheIndex index_;
  CachePolicy policy_;
  std::vector<Entry> entries_;  // of slots that are not free

  Buffers buffers_;
  std::mutex jobs_mutex_;
  std::condition_variable jobs_changed_;
  std::vector<Job> jobs_;  // a ring
  std::size_t first_job_ = 0, job_count_ = 0;
  std::uint64_t offered_ = 0, ended_ = 0;  // jobs
  bool stopping_ = false;
  std::thread writer_;
};

}  // namespace penstock::remote
