// SPDX-License-Identifier: Apache-2.0
#include "stages.hpp"

#include <cstddef>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

/// The ranges of one thread that are open at the last queried moment.
class OpenRanges {
 public:
  void open(const Event& range) { ranges_.push_back(&range); }

  std::uint32_t innermost(Time now) {
    while (!ranges_.empty() && ranges_.back()->end <= now) ranges_.pop_back();
    return ranges_.empty() ? 0 : ranges_.back()->name;
  }

 private:
  std::vector<const Event*> ranges_;
};

}  // namespace

std::vector<std::uint32_t> stages(const Activity& activity) {
  const std::vector<Event>& events = activity.timeline().events;
  std::vector<std::uint32_t> result(events.size(), 0);
  std::vector<OpenRanges> threads(activity.timeline().tracks.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (on_device(events[i].kind)) continue;
    OpenRanges& around = threads[events[i].track];
    result[i] = around.innermost(events[i].begin);
    if (events[i].kind != Kind::range) continue;
    result[i] = events[i].name;
    around.open(events[i]);
  }
  // This is a separate pass, because a device's clock may be off by so much that work seems to
  // begin before its call.
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (!on_device(events[i].kind)) continue;
    if (const Event* call = activity.submitter(events[i]))
      result[i] = result[static_cast<std::size_t>(call - events.data())];
  }
  return result;
}

}  // namespace penstock::trace::detail
