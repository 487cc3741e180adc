// SPDX-License-Identifier: Apache-2.0
#include "cache.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/file.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <penstock/detail/mix.hpp>
#include <penstock/detail/storage/crc32c.hpp>
#include <penstock/detail/storage/store_file.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::remote {
namespace {

using namespace std::chrono_literals;
using penstock::detail::OpenFile;

constexpr std::size_t kMostJobs = 1024;
constexpr std::size_t kJobBytes = std::size_t{64} << 20;
constexpr std::chrono::milliseconds kLockTime{100}, kFirstLockTime{10'000};
constexpr std::chrono::seconds kPause{10};  // after an error

}  // namespace

/// The lock of the directory, for this thread of this process.
class Cache::DirectoryLock {
 public:
  /// Tries to lock it for this time.
  DirectoryLock(Cache& cache, std::chrono::milliseconds time)
      : cache_(cache), in_process_(cache.directory_mutex_, std::defer_lock) {
    if (time == 0ms ? !in_process_.try_lock() : (in_process_.lock(), false)) return;
    const Time end = Clock::now() + time;
    while (!(has_ = ::flock(cache_.lock_.descriptor(), LOCK_EX | LOCK_NB) == 0)) {
      if ((errno != EWOULDBLOCK && errno != EINTR) || Clock::now() >= end) return;
      std::this_thread::sleep_for(200us);
    }
  }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  ~DirectoryLock() {
    if (has_) ::flock(cache_.lock_.descriptor(), LOCK_UN);
  }

  explicit operator bool() const noexcept { return has_; }

 private:
  Cache& cache_;
  std::unique_lock<std::mutex> in_process_;
  bool has_ = false;
};

Cache::Cache(const CacheOptions& options, Counters& counters)
    : options_(options),
      counters_(counters),
      header_{options.slot_bytes, options.bytes / options.slot_bytes},
      index_(options.directory, header_),
      policy_(static_cast<CachePolicy::Slot>(header_.slots)),
      entries_(static_cast<std::size_t>(header_.slots)),
      buffers_(std::max(kJobBytes, 16 * options.slot_bytes)),
      jobs_(kMostJobs) {
  try {
    open();
  } catch (const std::exception&) {
    broken_ = true;
    count(counters_.cache_errors);
    return;
  }
  writer_ = std::thread([this] { write_jobs(); });
}

Cache::~Cache() {
  {
    const std::lock_guard lock(jobs_mutex_);
    stopping_ = true;
  }
  jobs_changed_.notify_all();
  if (writer_.joinable()) writer_.join();
}

void Cache::open() {
  const std::filesystem::path directory = options_.directory;
  // Objects may be secret: who else may read them is for those who make the directory to say.
  if (std::filesystem::create_directories(directory))
    std::filesystem::permissions(directory, std::filesystem::perms::owner_all);
  lock_ = OpenFile((directory / "lock").c_str(), O_RDWR | O_CREAT);
  if (!lock_.is_open()) OpenFile::fail("cannot open");
  const DirectoryLock locked(*this, kFirstLockTime);
  if (!locked) throw std::runtime_error("the cache is locked");
  slots_ = OpenFile((directory / "slots").c_str(), O_RDWR | O_CREAT);
  if (!slots_.is_open()) OpenFile::fail("cannot open");
  slots_.require_regular();
  const std::lock_guard lock(mutex_);
  const bool has_entries = index_.open();
  const std::uint64_t most = has_entries ? header_.slots * header_.slot_bytes : 0;
  if (slots_.size() > most && ::ftruncate(slots_.descriptor(), static_cast<::off_t>(most)) != 0)
    OpenFile::fail("cannot truncate");
  look(true);
}

/// The cache has at most one of the ranges that begin at the same place.
CachePolicy::Item Cache::item_of(const CacheKey& key) noexcept {
  using penstock::detail::mix64;
  return mix64(mix64(key.version[0] ^ key.offset) ^ key.version[1]);
}

/// The caller holds the lock. A key without bytes matches a range of any size.
CachePolicy::Slot Cache::find(const CacheKey& key) const noexcept {
  const CachePolicy::Slot slot = policy_.slot_of(item_of(key));
  if (slot == CachePolicy::no_slot) return slot;
  const CacheKey& here = entries_[slot].key;
  const bool is_it = here.version == key.version && here.offset == key.offset &&
                     (key.bytes == 0 || here.bytes == key.bytes);
  return is_it ? slot : CachePolicy::no_slot;
}

/// Reads what this process and others have added to the index. The caller holds the lock.
void Cache::look(bool locked) noexcept {
  if (broken_) return;
  std::uint64_t damaged = 0;
  try {
    if (index_.follow()) {
      // Whoever removes the directory removes the other files, too: they are no part of the new
      // one.
      if (lock_.status().st_nlink == 0 || slots_.status().st_nlink == 0)
        throw std::runtime_error("the directory was removed");
      for (CachePolicy::Slot slot = 0; slot < policy_.slots(); ++slot) policy_.remove(slot);
    }
    while (const std::optional<CacheRecord> record = index_.next(locked, damaged)) {
      if (record->key.bytes == 0) {
        policy_.remove(record->slot);
        continue;
      }
      policy_.put(record->slot, item_of(record->key));
      entries_[record->slot] = {record->key, record->checksum};
    }
  } catch (const std::exception&) {
    broken_ = true;
    count(counters_.cache_errors);
  }
  count(counters_.cache_damaged, damaged);
}

/// Tells the policy that the range is read now, and returns its slot and its entry.
CachePolicy::Slot Cache::look_up(const CacheKey& key, Entry& entry) noexcept {
  if (broken_) return CachePolicy::no_slot;
  const std::lock_guard lock(mutex_);
  policy_.read(item_of(key));
  CachePolicy::Slot slot = find(key);
  if (slot == CachePolicy::no_slot) {
    look(false);
    slot = find(key);
  }
  if (slot != CachePolicy::no_slot) entry = entries_[slot];
  return slot;
}

bool Cache::read_slot(CachePolicy::Slot slot, const Entry& entry,
                      std::span<std::byte> target) noexcept {
  if (slot != CachePolicy::no_slot) {
    try {
      if (slots_.read(slot * header_.slot_bytes, target) == target.size() &&
          penstock::detail::crc32c(target) == entry.checksum) {
        count(counters_.cache_hits);
        count(counters_.from_cache, target.size());
        return true;
      }
    } catch (const std::system_error&) {
      count(counters_.cache_errors);
    }
    drop_damaged(entry.key, entry.checksum);
  }
  count(counters_.cache_misses);
  return false;
}

bool Cache::read(const CacheKey& key, std::span<std::byte> target) noexcept {
  Entry entry;
  const CachePolicy::Slot slot = look_up(key, entry);
  return read_slot(slot, entry, target);
}

bool Cache::read(CacheKey& key, std::vector<std::byte>& scratch) {
  Entry entry;
  key.bytes = 0;
  const CachePolicy::Slot slot = look_up(key, entry);
  key.bytes = entry.key.bytes;
  return read_slot(slot, entry, penstock::detail::room_in(scratch, key.bytes));
}

bool Cache::will_need(const CacheKey& key) noexcept {
  std::unique_lock lock(mutex_);
  const CachePolicy::Slot slot = broken_ ? CachePolicy::no_slot : find(key);
  if (slot == CachePolicy::no_slot) return false;
  const std::uint64_t bytes = entries_[slot].key.bytes;
  lock.unlock();
  slots_.will_need(slot * header_.slot_bytes, bytes);
  return true;
}

void Cache::will_read(const CacheKey& key) noexcept try {
  const std::lock_guard lock(mutex_);
  policy_.will_read(item_of(key));
} catch (const std::bad_alloc&) {  // A hint has no errors.
}

void Cache::offer(const CacheKey& key, std::span<const std::byte> bytes, bool replace) noexcept {
  if (broken_ || Clock::now().time_since_epoch().count() < paused_until_) return;
  {
    const std::lock_guard lock(mutex_);
    const auto item = item_of(key);
    if (!replace && find(key) != CachePolicy::no_slot) return;
    if (policy_.slot_of(item) == CachePolicy::no_slot && !policy_.place_for(item)) return;
  }
  Buffer buffer;
  do buffer = buffers_.take(bytes.size());
  while (!buffer && options_.wait && drain());
  if (!buffer) return;
  std::memcpy(buffer.data(), bytes.data(), bytes.size());
  {
    const std::lock_guard lock(jobs_mutex_);
    if (job_count_ == jobs_.size()) return;
    jobs_[(first_job_ + job_count_++) % jobs_.size()] = {key, std::move(buffer), replace};
    ++offered_;
  }
  jobs_changed_.notify_all();
  if (options_.wait) drain();
}

bool Cache::is_full() noexcept {
  const std::lock_guard lock(mutex_);
  return policy_.is_full();
}

bool Cache::drain() noexcept {
  std::unique_lock lock(jobs_mutex_);
  const std::uint64_t all = offered_;
  if (ended_ >= all) return false;
  jobs_changed_.wait(lock, [&] { return ended_ >= all; });
  return true;
}

void Cache::write_jobs() noexcept {
  // A file that grows beyond the limit of its size is an error here, and not a signal.
  ::sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::unique_lock lock(jobs_mutex_);
  while (true) {
    jobs_changed_.wait(lock, [this] { return job_count_ > 0 || stopping_; });
    if (stopping_) return;
    {
      const Job job = std::move(jobs_[first_job_]);
      first_job_ = (first_job_ + 1) % jobs_.size();
      --job_count_;
      lock.unlock();
      store(job);
    }
    lock.lock();
    ++ended_;
    jobs_changed_.notify_all();
  }
}

void Cache::failed() noexcept {
  count(counters_.cache_errors);
  paused_until_ = (Clock::now() + kPause).time_since_epoch().count();
}

void Cache::store(const Job& job) noexcept try {
  if (broken_ || Clock::now().time_since_epoch().count() < paused_until_) return;
  const std::span<const std::byte> bytes(job.bytes.data(), job.key.bytes);
  CacheRecord record{job.key, 0, penstock::detail::crc32c(bytes)};
  const DirectoryLock locked(*this, kLockTime);
  if (!locked) {
    count(counters_.cache_errors);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    look(true);
    if (broken_ || (!job.replace && find(job.key) != CachePolicy::no_slot)) return;
    compact();
    const auto item = item_of(job.key);
    record.slot = policy_.slot_of(item);
    if (record.slot == CachePolicy::no_slot) {
      const std::optional<CachePolicy::Slot> place = policy_.place_for(item);
      if (!place) return;
      record.slot = *place;
    }
    policy_.remove(record.slot);
  }
  try {
    slots_.write(record.slot * header_.slot_bytes, bytes);
  } catch (const std::system_error&) {
    record.key.bytes = 0;  // What was there may be gone.
    failed();
  }
  const std::lock_guard lock(mutex_);
  index_.append(record);
  look(true);
  count(counters_.to_cache, record.key.bytes);
} catch (const std::exception&) {
  failed();
}

/// Keeps the index below a bound. The caller holds both locks.
void Cache::compact() {
  const std::uint64_t most = 1024 + 2 * header_.slots;
  if (index_.records() < most) return;
  std::vector<CacheRecord> records;
  for (CachePolicy::Slot slot = 0; slot < policy_.slots(); ++slot)
    if (!policy_.is_free(slot))
      records.push_back({entries_[slot].key, slot, entries_[slot].checksum});
  index_.replace(records);
}

/// The bytes were not those of this entry. Somebody may have written to the slot meanwhile, with
/// another entry; else they are damaged.
void Cache::drop_damaged(const CacheKey& key, std::uint32_t checksum) noexcept try {
  const DirectoryLock locked(*this, 0ms);  // A reader does not wait.
  if (!locked) return;
  const std::lock_guard lock(mutex_);
  look(true);
  const CachePolicy::Slot slot = find(key);
  if (slot == CachePolicy::no_slot || entries_[slot].checksum != checksum) return;
  count(counters_.cache_damaged);
  policy_.remove(slot);
  compact();
  index_.append({{}, slot, 0});
  look(true);
} catch (const std::exception&) {
  failed();
}

}  // namespace penstock::remote
