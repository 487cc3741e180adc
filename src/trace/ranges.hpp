// SPDX-License-Identifier: Apache-2.0
#pragma once

// The named ranges of a program's threads, as NVTX reports them (nvtx.cpp): the open ranges and,
// between start_ranges and stop_ranges, their events. Any thread may call every function.

#include <penstock/trace/timeline.hpp>
#include <penstock/version.hpp>

#include <string>
#include <utility>

#include "event_sink.hpp"
#include "kept_number.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

// Registered texts are never destroyed, because a program may use a handle at any time.

/// A text and its number in the sink of one recording.
class Text {
 public:
  explicit Text(std::string text)
      : text_(std::move(text)), is_stall_(text_ == "stall"), is_penstock_(text_ == "penstock") {}

  std::uint32_t id(EventSink& sink) {
    return number_.get(sink, [&] { return sink.name(text_); });
  }
  const std::string& text() const { return text_; }
  /// Whether this is penstock::markers::stall; it requires the domain of penstock.
  bool is_stall() const { return is_stall_; }
  /// Whether this is the name of penstock's domain.
  bool is_penstock() const { return is_penstock_; }

 private:
  const std::string text_;
  const bool is_stall_, is_penstock_;
  KeptNumber number_;
};

/// A range that has begun.
struct OpenRange {
  Text* domain = nullptr;
  Text* registered = nullptr;  ///< its name; null: see `text`
  std::string text;
  std::uint64_t payload = 0;
  std::uint32_t color = 0;  ///< as in Event
  Time begin = 0;           ///< 0: nothing was recorded then
};

/// Pushes a range, which nests in those of its domain on this thread. Returns how many ranges
/// contain it.
int push_range(OpenRange range);
/// Ends the innermost range of the domain. Returns a negative number if there is none.
int pop_range(Text& domain);

/// Starts a range that any thread may end. It is shown on the thread that began it, or, if it is
/// of penstock's domain, in the first lane without an open range.
std::uint64_t start_range(OpenRange range);
void end_range(std::uint64_t id);

/// Makes each thread that is about to throw a StallError call `callback`; null: none.
void call_at_stalls(void (*callback)());

/// From now on ranges go into the sink. Ranges that are open already are recorded from `begin` on.
void start_ranges(EventSink& sink, Time begin);
/// After this returns, no range goes into the sink. Open ranges are cut to `end`. Does nothing if
/// nothing is recorded.
void stop_ranges(Time end);
/// Returns the open ranges; recording continues. Each thread waits while its own ranges are copied.
RangesUnderWay open_ranges();

}  // namespace penstock::trace::detail
