// SPDX-License-Identifier: Apache-2.0
#pragma once

// RecordReader: what CUPTI's activity records say of the device's work, as events. And BufferPool,
// the memory that CUPTI writes them into.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cupti_library.hpp"
#include "event_sink.hpp"

namespace penstock::trace::detail {

/// Buffers of one size, zeroed. What was given back is handed out again: nothing is allocated once
/// as many are there as CUPTI fills at a time (one for each launching thread, and those under way).
/// Any thread.
class BufferPool {
 public:
  static constexpr std::size_t kBytes = std::size_t{1} << 20;  // 5000 kernels, or 8000 copies
  static constexpr std::size_t kAtMost = 256;

  /// Some from the start, so that the first launches do not allocate.
  BufferPool();
  /// Null where kAtMost are out: CUPTI drops records then, and counts them.
  std::uint8_t* take();
  /// Zeroes it, on the caller's thread: that is CUPTI's own, else its callers' would.
  void give_back(std::uint8_t* buffer);

 private:
  std::mutex mutex_;
  std::vector<std::uint8_t*> free_;  // never freed: CUPTI may hold buffers until the process ends
  std::size_t buffers_ = 0;
};

/// Any thread; one buffer at a time.
class RecordReader {
 public:
  /// Within its scope records without times are of what the device has not ended, and are no loss
  /// that is counted.
  class Unfinished {
   public:
    explicit Unfinished(RecordReader& reader) : reader_(reader) { reader_.unfinished_ = true; }
    ~Unfinished() { reader_.unfinished_ = false; }
    Unfinished(const Unfinished&) = delete;
    Unfinished& operator=(const Unfinished&) = delete;

   private:
    RecordReader& reader_;
  };

  RecordReader(const Cupti& cupti, EventSink& sink);
  /// Puts the records of a buffer into the sink.
  void read(std::uint8_t* buffer, std::size_t bytes);

 private:
  template <class Record>
  void add(const Record& record, Event event);
  void read(const CUpti_Activity& record);
  void read_kernel(const CUpti_Activity& record);
  void read_copy(const CUpti_Activity& record);
  void read_peer_copy(const CUpti_Activity& record);
  void read_fill(const CUpti_Activity& record);
  void read_graph(const CUpti_Activity& record);
  std::uint32_t name_of(const char* mangled);
  std::uint32_t track_of(std::uint32_t device, std::uint32_t stream);

  const Cupti& cupti_;
  EventSink& sink_;
  std::atomic<bool> unfinished_{false};
  std::mutex mutex_;                                         // of what follows
  std::uint32_t era_ = 0;                                    // of the sink's numbers in these
  std::map<std::string, std::uint32_t, std::less<>> names_;  // by the mangled one
  std::unordered_map<std::uint64_t, std::uint32_t> tracks_;  // by device << 32 | stream
};

}  // namespace penstock::trace::detail
