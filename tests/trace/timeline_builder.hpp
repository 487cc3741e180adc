// SPDX-License-Identifier: Apache-2.0
#pragma once

// Timelines made by hand. Times are in microseconds, as doubles, where people write them down.
//
//   TimelineBuilder builder;
//   const auto compute = builder.stream(0, 13), main = builder.thread(4711, "main");
//   builder.range(main, "step", {0, 1000});
//   builder.launch(main, compute, "scale", {10, 15}, {20, 220});
//   const Timeline timeline = builder.timeline();

#include <cmath>
#include <cstdint>
#include <map>
#include <penstock/trace/timeline.hpp>
#include <string>
#include <utility>

namespace penstock::test {

/// From, to; in microseconds.
using Span = std::pair<double, double>;

inline trace::Time us(double microseconds) {
  return static_cast<trace::Time>(std::llround(microseconds * 1000));
}

class TimelineBuilder {
 public:
  /// Streams must be made before threads.
  std::uint32_t stream(int device, std::uint64_t id, std::string name = {}) {
    return track({trace::Track::Kind::stream, device, id, std::move(name)});
  }
  std::uint32_t thread(std::uint64_t id, std::string name = {}) {
    return track({trace::Track::Kind::thread, -1, id, std::move(name)});
  }

  trace::Event& range(std::uint32_t thread, const std::string& text, Span span,
                      const std::string& domain = "") {
    trace::Event& event = add(trace::Kind::range, thread, text, span);
    event.domain = name(domain);
    return event;
  }
  void memory(int device, double at, std::uint64_t bytes) {
    timeline_.memory.push_back({us(at), bytes, device});
  }
  trace::Event& call(std::uint32_t thread, const std::string& text, Span span) {
    return add(trace::Kind::call, thread, text, span);
  }

  /// A call, and what it puts on the stream.
  trace::Event& launch(std::uint32_t thread, std::uint32_t stream, const std::string& kernel,
                       Span called, Span ran) {
    return submit(thread, stream, trace::Kind::kernel, "cudaLaunchKernel_v7000", kernel, called,
                  ran);
  }
  trace::Event& copy(std::uint32_t thread, std::uint32_t stream, std::uint64_t bytes, Span called,
                     Span ran, trace::Direction direction = trace::Direction::host_to_device,
                     const std::string& function = "cudaMemcpyAsync_v3020") {
    trace::Event& event = submit(thread, stream, trace::Kind::copy, function, "", called, ran);
    event.value = bytes;
    event.direction = direction;
    return event;
  }
  trace::Event& submit(std::uint32_t thread, std::uint32_t stream, trace::Kind kind,
                       const std::string& function, const std::string& text, Span called,
                       Span ran) {
    call(thread, function, called).correlation = ++correlation_;
    trace::Event& event = add(kind, stream, text, ran);
    event.correlation = correlation_;
    return event;
  }
  /// What no known call submitted, or what is no event of the functions above.
  trace::Event& add(trace::Kind kind, std::uint32_t track, const std::string& text, Span span) {
    trace::Event event;
    event.kind = kind;
    event.track = track;
    event.name = name(text);
    event.begin = us(span.first);
    event.end = us(span.second);
    timeline_.events.push_back(event);
    return timeline_.events.back();  // until the next event
  }

  trace::Origin& origin() { return timeline_.origin; }
  void drop(std::uint64_t events) { timeline_.dropped += events; }

  /// Arranged, from the first event to the last.
  trace::Timeline timeline() {
    trace::Timeline timeline = timeline_;
    if (!timeline.events.empty()) timeline.begin = timeline.end = timeline.events.front().begin;
    arrange(timeline);
    return timeline;
  }

 private:
  std::uint32_t track(trace::Track track) {
    timeline_.tracks.push_back(std::move(track));
    return static_cast<std::uint32_t>(timeline_.tracks.size() - 1);
  }
  std::uint32_t name(const std::string& text) {
    if (timeline_.names.empty()) timeline_.names.emplace_back();
    if (text.empty()) return 0;
    const auto [found, is_new] =
        names_.try_emplace(text, static_cast<std::uint32_t>(timeline_.names.size()));
    if (is_new) timeline_.names.push_back(text);
    return found->second;
  }

  trace::Timeline timeline_;
  std::map<std::string, std::uint32_t> names_;
  std::uint32_t correlation_ = 0;
};

}  // namespace penstock::test
