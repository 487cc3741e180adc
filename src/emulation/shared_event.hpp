// SPDX-License-Identifier: Apache-2.0
#pragma once

// The state of an event that several processes have: each may record it, and each may wait for the
// last record, whoever made it. Records are numbered from 1, over all processes; how far each one
// is stands in pages that the processes share. Nobody is woken across processes: who waits looks
// again and again.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "interprocess_handle.hpp"
#include "memory_file.hpp"
#include "process_identity.hpp"
#include "task.hpp"

namespace penstock::emulation::detail {

class SharedEvent {
 public:
  /// So many records of one event may be under way at the same time.
  static constexpr std::size_t kRecords = 2048;

  enum class Progress {
    pending,
    done,
    failed,  ///< the work before the record failed, or the process that recorded it has ended
  };

  /// Of an event of this process that was recorded `records` times, the last time at a place that
  /// was reached at `reached` or, without a time, is still to be reached. Null when the system does
  /// not let it; errno says why.
  static std::unique_ptr<SharedEvent> make(int device, std::uint64_t records, const Time* reached);
  /// Null when there is no such event in the file, or it was destroyed.
  static std::unique_ptr<SharedEvent> open(const SharedFile& file);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  InterprocessHandle handle() const;
  int device() const { return state().device; }
  bool of_this_process() const { return file_ != nullptr; }
  /// Whether the process that made the event has destroyed it: a message says so, once.
  bool destroyed();

  /// The last record, of any process; 0: there was none.
  std::uint64_t last() const { return state().last.load(std::memory_order_acquire); }
  /// Starts a record: its number, or 0 when too many are under way.
  std::uint64_t begin();
  bool full() const;
  /// A record of this process is done.
  void finish(std::uint64_t record, bool failed, Time time);
  /// How far a record is. A message says why one failed.
  Progress progress(std::uint64_t record);
  /// When a record was done.
  Time time(std::uint64_t record) const;

 private:
  /// One of the records n, n + kRecords, n + 2 * kRecords...: the last of them that began.
  struct Record {
    std::atomic<std::uint64_t> word;  ///< its number, and in the lower two bits its Progress
    std::atomic<std::int64_t> time;   ///< when it was done, in Clock's ticks
    std::atomic<std::int32_t> process;
    std::atomic<std::uint64_t> process_start;
  };
  struct State {
    static constexpr std::uint64_t kMagic = 0x3145'6b63'6f74'736e;
    std::uint64_t magic;
    ProcessIdentity owner;
    std::int32_t device;
    std::atomic<std::uint32_t> destroyed;
    std::atomic<std::uint64_t> last;
    std::array<Record, kRecords> records;
  };

  SharedEvent() = default;
  State& state() const { return *static_cast<State*>(pages_.data()); }
  Record& slot(std::uint64_t record) const { return state().records[record % kRecords]; }
  static std::uint64_t word(std::uint64_t record, Progress progress) {
    return record << 2 | static_cast<std::uint64_t>(progress);
  }
  void tell(const std::string& what);

  std::shared_ptr<SharedFile> file_;  // of the process that made the event
  SharedPages pages_;
  Time looked_{};  // whether who made the record that was asked for last still runs
  bool told_ = false;
};

}  // namespace penstock::emulation::detail
