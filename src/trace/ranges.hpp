// SPDX-License-Identifier: Apache-2.0
#pragma once

// The named ranges of a program's threads, as NVTX tells of them (nvtx.cpp): which are open, and,
// between start_ranges and stop_ranges, their events. Every function may be called from any thread.

#include <penstock/trace/timeline.hpp>

#include <atomic>
#include <string>
#include <utility>

#include "event_sink.hpp"

namespace penstock::trace::detail {

// What the program registers is there for good: it may use a handle as long as it likes.

/// A text, and its number in the sink of one recording.
class Text {
 public:
  explicit Text(std::string text) : text_(std::move(text)) {}

  std::uint32_t id(EventSink& sink, std::uint32_t window) {
    const std::uint64_t known = known_.load(std::memory_order_relaxed);
    if (known >> 32 == window) return static_cast<std::uint32_t>(known);
    const std::uint32_t id = sink.name(text_);
    known_.store(std::uint64_t{window} << 32 | id, std::memory_order_relaxed);
    return id;
  }
  const std::string& text() const { return text_; }

 private:
  const std::string text_;
  std::atomic<std::uint64_t> known_{0};  // window, from 1, and number
};

/// A range that has begun.
struct OpenRange {
  Text* domain = nullptr;
  Text* registered = nullptr;  ///< its name; null: `text` is
  std::string text;
  std::uint64_t payload = 0;
  Time begin = 0;  ///< 0: nothing was recorded then
};

/// The range nests in those of its domain on this thread. Returns how many are around it.
int push_range(OpenRange range);
/// Ends the innermost one of the domain. Negative: there is none.
int pop_range(Text& domain);

/// A range that any thread may end; it is shown on the thread that began it.
std::uint64_t start_range(OpenRange range);
void end_range(std::uint64_t id);

/// Ranges go into the sink, with what lies after `begin` of those that are open already.
void start_ranges(EventSink& sink, Time begin);
/// No range goes into the sink any more once this has returned; those that are open are cut to
/// `end`. Does nothing when none are recorded.
void stop_ranges(Time end);

}  // namespace penstock::trace::detail
