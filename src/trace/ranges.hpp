// SPDX-License-Identifier: Apache-2.0
#pragma once

// The named ranges of a program's threads, as NVTX tells of them (nvtx.cpp): which are open, and,
// between start_ranges and stop_ranges, their events. Every function may be called from any thread.

#include <penstock/trace/timeline.hpp>

#include <string>
#include <utility>

#include "event_sink.hpp"
#include "kept_number.hpp"

namespace penstock::trace::detail {

// What the program registers is there for good: it may use a handle as long as it likes.

/// A text, and its number in the sink of one recording.
class Text {
 public:
  explicit Text(std::string text) : text_(std::move(text)), is_stall_(text_ == "stall") {}

  std::uint32_t id(EventSink& sink) {
    return number_.get(sink, [&] { return sink.name(text_); });
  }
  const std::string& text() const { return text_; }
  /// penstock::markers::stall, if the domain is penstock's.
  bool is_stall() const { return is_stall_; }

 private:
  const std::string text_;
  const bool is_stall_;
  KeptNumber number_;
};

/// A range that has begun.
struct OpenRange {
  Text* domain = nullptr;
  Text* registered = nullptr;  ///< its name; null: `text` is
  std::string text;
  std::uint64_t payload = 0;
  std::uint32_t color = 0;  ///< as in Event
  Time begin = 0;           ///< 0: nothing was recorded then
};

/// The range nests in those of its domain on this thread. Returns how many are around it.
int push_range(OpenRange range);
/// Ends the innermost one of the domain. Negative: there is none.
int pop_range(Text& domain);

/// A range that any thread may end; it is shown on the thread that began it.
std::uint64_t start_range(OpenRange range);
void end_range(std::uint64_t id);

/// `callback` is called on each thread that is about to throw a StallError; null: nothing is.
void call_at_stalls(void (*callback)());

/// Ranges go into the sink, with what lies after `begin` of those that are open already.
void start_ranges(EventSink& sink, Time begin);
/// No range goes into the sink any more once this has returned; those that are open are cut to
/// `end`. Does nothing when none are recorded.
void stop_ranges(Time end);
/// Ranges go on. Each thread waits while its own are copied.
RangesUnderWay open_ranges();

}  // namespace penstock::trace::detail
