// SPDX-License-Identifier: Apache-2.0
#include "engine_use.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

bool decodes_video() {
  void* const loaded = dlopen("libnvcuvid.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (loaded != nullptr) dlclose(loaded);
  return loaded != nullptr;
}

}  // namespace

std::vector<EngineUse> engine_use(const nvml::Library& library, const std::string& bus, int device,
                                  Time begin, Time end, std::int64_t wall_clock) {
  constexpr Time kMicrosecond = 1000;
  nvml::Device handle = nullptr;
  if (library.nvmlDeviceGetHandleByPciBusId_v2(bus.c_str(), &handle) != nvml::kSuccess) return {};
  const auto after =
      static_cast<unsigned long long>(std::max<Time>(0, (begin + wall_clock) / kMicrosecond - 1));
  int values = 0;
  unsigned count = 0;
  const auto ask = [&](nvml::Sample* samples) {
    return library.nvmlDeviceGetSamples(handle, nvml::kDecoderSamples, after, &values, &count,
                                        samples) == nvml::kSuccess;
  };
  if (!ask(nullptr) || count == 0) return {};  // The number that there is room for.
  std::vector<nvml::Sample> samples(count);
  if (!ask(samples.data())) return {};
  samples.resize(std::min<std::size_t>(count, samples.size()));
  std::vector<EngineUse> all;
  for (const nvml::Sample& sample : samples) {
    const Time time = static_cast<Time>(sample.time) * kMicrosecond - wall_clock;
    if (time < begin || time > end) continue;
    const double percent =
        values == nvml::kIntegers ? static_cast<double>(sample.value.integer) : sample.value.number;
    all.push_back(
        {time, static_cast<std::uint32_t>(std::lround(std::clamp(percent, 0.0, 100.0))), device});
  }
  std::sort(all.begin(), all.end(),
            [](const EngineUse& a, const EngineUse& b) { return a.time < b.time; });
  return all;
}

std::vector<EngineUse> engine_use(const Timeline& timeline,
                                  penstock::detail::FunctionRef<std::string(int)> bus_of) {
  std::string why_not;
  const nvml::Library* const library = decodes_video() ? nvml::Library::load(why_not) : nullptr;
  if (library == nullptr) return {};
  std::set<int> devices;
  for (const Track& track : timeline.tracks)
    if (track.kind == Track::Kind::stream) devices.insert(track.device);
  std::vector<EngineUse> all;
  for (const int device : devices) {
    const std::vector<EngineUse> its = engine_use(*library, bus_of(device), device, timeline.begin,
                                                  timeline.end, timeline.origin.wall_clock);
    all.insert(all.end(), its.begin(), its.end());
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const EngineUse& a, const EngineUse& b) { return a.time < b.time; });
  return all;
}

}  // namespace penstock::trace::detail
