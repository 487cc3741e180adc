// SPDX-License-Identifier: Apache-2.0
#pragma once

// The state of an event that several processes share. Each process may record it, and each may wait
// for the last record of any process. Records are numbered from 1 over all processes, and their
// progress is kept in shared pages. A process does not wake another one, so a waiting process
// polls.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <penstock/version.hpp>

#include "interprocess_handle.hpp"
#include "memory_file.hpp"
#include "process_identity.hpp"
#include "task.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

class SharedEvent {
 public:
  /// The largest number of records of one event that may be in progress at the same time.
  static constexpr std::size_t kRecords = 2048;

  enum class Progress {
    pending,
    done,
    failed,  ///< the work before the record failed, or the process that recorded it has ended
  };

  /// Makes the shared state of this process's event. It was recorded `records` times; the last
  /// record was reached at `reached`, or is not reached yet if there is no time. Returns null if
  /// the system refuses; errno then says why.
  static std::unique_ptr<SharedEvent> make(int device, std::uint64_t records, const Time* reached);
  /// Returns null if the file has no such event, or if the event was destroyed.
  static std::unique_ptr<SharedEvent> open(const SharedFile& file);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  InterprocessHandle handle() const;
  int device() const { return state().device; }
  bool of_this_process() const { return file_ != nullptr; }
  /// Whether the process that made the event has destroyed it. If so, one message says it.
  bool destroyed();

  /// The number of the last record of any process; 0 if there was none.
  std::uint64_t last() const { return state().last.load(std::memory_order_acquire); }
  /// Starts a record. Returns its number, or 0 if too many are in progress.
  std::uint64_t begin();
  bool full() const;
  /// Completes a record of this process.
  void finish(std::uint64_t record, bool failed, Time time);
  /// Returns the progress of a record. A message says why one failed.
  Progress progress(std::uint64_t record);
  /// The time at which a record was completed.
  Time time(std::uint64_t record) const;

 private:
  /// A slot for the records n, n + kRecords, n + 2 * kRecords...: it holds the last of them that
  /// began.
  struct Record {
    std::atomic<std::uint64_t> word;  ///< its number, with its Progress in the lower two bits
    std::atomic<std::int64_t> time;   ///< the time of its completion, in Clock's ticks
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

  std::shared_ptr<SharedFile> file_;  // the file of the process that made the event
  SharedPages pages_;
  Time looked_{};  // when this last checked whether the maker of the last queried record runs
  bool told_ = false;
};

}  // namespace penstock::emulation::detail
