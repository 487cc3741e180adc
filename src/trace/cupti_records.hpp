// SPDX-License-Identifier: Apache-2.0
#pragma once

// RecordReader turns CUPTI's activity records of the devices' work into events. BufferPool owns the
// memory into which CUPTI writes them.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <penstock/version.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cupti_library.hpp"
#include "event_sink.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// Zeroed buffers of one size. Returned buffers are reused, so nothing is allocated once there are
/// as many as CUPTI fills at a time (one per launching thread, and those in progress). Any thread
/// may use it.
class BufferPool {
 public:
  static constexpr std::size_t kBytes = std::size_t{1} << 20;  // 5000 kernels, or 8000 copies
  static constexpr std::size_t kAtMost = 256;

  /// Allocates some buffers, so that the first launches do not allocate.
  BufferPool();
  /// Returns null if kAtMost buffers are in use; CUPTI then drops records and counts them.
  std::uint8_t* take();
  /// Zeroes the buffer on the calling thread, which is CUPTI's own; otherwise the program's threads
  /// would do it.
  void give_back(std::uint8_t* buffer);

 private:
  std::mutex mutex_;
  std::vector<std::uint8_t*> free_;  // never freed: CUPTI may hold buffers until the process ends
  std::size_t buffers_ = 0;
};

/// Any thread may use it, with one buffer at a time.
class RecordReader {
 public:
  /// While one exists, records without times are unfinished work, and do not count as lost.
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
  std::mutex mutex_;       // guards the following members
  std::uint32_t era_ = 0;  // the era of the sink's numbers in these maps
  std::map<std::string, std::uint32_t, std::less<>> names_;  // by the mangled name
  std::unordered_map<std::uint64_t, std::uint32_t> tracks_;  // by device << 32 | stream
};

}  // namespace penstock::trace::detail
