// SPDX-License-Identifier: Apache-2.0
#include "columns.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

void append_varint(std::string& out, std::uint64_t number) {
  while (number >= 0x80) {
    out += static_cast<char>(0x80 | (number & 0x7F));
    number >>= 7;
  }
  out += static_cast<char>(number);
}

/// Maps small differences in either direction to small numbers.
std::uint64_t zigzag(std::int64_t difference) {
  const auto bits = static_cast<std::uint64_t>(difference);
  return difference < 0 ? ~(bits << 1) : bits << 1;
}

auto identity(const EventClass& one) {
  return std::tuple(one.track, one.name, one.stage, one.domain, one.kind, one.direction, one.flags,
                    one.works);
}

struct Less {
  bool operator()(const EventClass& a, const EventClass& b) const {
    return identity(a) < identity(b);
  }
};

/// The classes, and the class of each event, before they are ordered by frequency.
class Classes {
 public:
  void add(const EventClass& one) {
    const auto [found, fresh] = index_.try_emplace(one, counts_.size());
    if (fresh) {
      classes_.push_back(one);
      counts_.push_back(0);
    }
    ++counts_[found->second];
    of_event_.push_back(static_cast<std::uint32_t>(found->second));
  }

  void write(EventColumns& out) const {
    std::vector<std::uint32_t> order(classes_.size()), place(classes_.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [this](std::uint32_t a, std::uint32_t b) { return counts_[a] > counts_[b]; });
    for (std::uint32_t i = 0; i < order.size(); ++i) {
      place[order[i]] = i;
      out.classes.push_back(classes_[order[i]]);
    }
    for (const std::uint32_t one : of_event_) append_varint(out.classes_of, place[one]);
  }

 private:
  std::map<EventClass, std::size_t, Less> index_;
  std::vector<EventClass> classes_;
  std::vector<std::uint64_t> counts_;
  std::vector<std::uint32_t> of_event_;
};

}  // namespace

EventColumns columns(const Activity& activity, const std::vector<std::uint32_t>& stages) {
  const Timeline& timeline = activity.timeline();
  EventColumns out;
  Classes classes;
  Time before = timeline.begin;
  std::array<std::int64_t, 2> last_correlation{};  // of calls, of device events
  for (std::size_t i = 0; i < timeline.events.size(); ++i) {
    const Event& event = timeline.events[i];
    classes.add({event.kind, event.direction, event.flags, event.name, event.track, event.domain,
                 stages[i], activity.works(event)});
    append_varint(out.begins, static_cast<std::uint64_t>(event.begin - before));
    append_varint(out.durations, static_cast<std::uint64_t>(event.duration()));
    append_varint(out.values, event.value);
    before = event.begin;
    if (event.correlation == 0) {
      append_varint(out.correlations, 0);
    } else {
      std::int64_t& last = last_correlation[on_device(event.kind) ? 1 : 0];
      append_varint(out.correlations, 1 + zigzag(std::int64_t{event.correlation} - last));
      last = event.correlation;
    }
  }
  classes.write(out);
  return out;
}

std::string base64(const std::string& bytes) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (unsigned k = 0; k < 4; ++k)
      text += i + k > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
  }
  return text;
}

}  // namespace penstock::trace::detail
