// SPDX-License-Identifier: Apache-2.0
#include "activity.hpp"

#include <algorithm>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

Activity::Activity(const Timeline& timeline) : timeline_(timeline) {
  std::vector<bool> active(timeline.tracks.size());
  for (std::size_t i = 0; i < timeline.events.size(); ++i) {
    const Event& event = timeline.events[i];
    if (event.kind == Kind::call && event.correlation != 0)
      calls_.emplace_back(event.correlation, static_cast<std::uint32_t>(i));
    if (works(event)) active[event.track] = true;
  }
  std::sort(calls_.begin(), calls_.end());
  for (std::size_t i = 0; i < active.size(); ++i)
    if (active[i]) devices_.push_back(timeline.tracks[i].device);
  std::sort(devices_.begin(), devices_.end());
  devices_.erase(std::unique(devices_.begin(), devices_.end()), devices_.end());
}

const Event* Activity::submitter(const Event& event) const {
  if (event.correlation == 0) return nullptr;
  const auto found =
      std::lower_bound(calls_.begin(), calls_.end(), std::pair{event.correlation, 0U});
  if (found == calls_.end() || found->first != event.correlation) return nullptr;
  return &timeline_.events[found->second];
}

bool Activity::computes(const Event& event) const {
  return event.kind == Kind::kernel || event.kind == Kind::graph ||
         (event.kind == Kind::host_function && timeline_.origin.emulated);
}

bool Activity::works(const Event& event) const {
  return event.kind == Kind::copy || event.kind == Kind::fill || computes(event);
}

bool Activity::transfers(const Event& event) {
  return event.kind == Kind::copy && (event.direction == Direction::host_to_device ||
                                      event.direction == Direction::device_to_host ||
                                      event.direction == Direction::peer_to_peer);
}

std::vector<DeviceWork> Activity::work_within(const Interval& window) const {
  std::vector<DeviceWork> all(devices_.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i].device = devices_[i];
  for (const Event& event : timeline_.events) {
    if (!works(event) || event.end <= window.begin || event.begin >= window.end) continue;
    const auto place =
        std::lower_bound(devices_.begin(), devices_.end(), timeline_.track(event).device);
    DeviceWork& work = all[static_cast<std::size_t>(place - devices_.begin())];
    const Interval interval{std::max(event.begin, window.begin), std::min(event.end, window.end)};
    work.busy.push_back(interval);
    if (computes(event)) work.compute.push_back(interval);
    if (transfers(event)) work.copy.push_back(interval);
  }
  for (DeviceWork& work : all) {
    work.busy = united(std::move(work.busy));
    work.compute = united(std::move(work.compute));
    work.copy = united(std::move(work.copy));
  }
  return all;
}

}  // namespace penstock::trace::detail
