// SPDX-License-Identifier: Apache-2.0
#pragma once

// How busy a device's video engines were, by the samples that the driver keeps of the last seconds.

#include <penstock/detail/function_ref.hpp>
#include <penstock/trace/timeline.hpp>
#include <penstock/version.hpp>
#include <string>
#include <vector>

#include "nvml/nvml_library.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// Returns the samples between two moments of the device with this PCI bus id, which has the number
/// `device` in the timeline. `wall_clock` is that of Origin. Empty if the driver has none.
std::vector<EngineUse> engine_use(const nvml::Library& library, const std::string& bus, int device,
                                  Time begin, Time end, std::int64_t wall_clock);

/// The same of all devices of a timeline; `bus_of` finds the PCI bus id of a device. Empty if this
/// process has not loaded the library of the video engines (NVDEC).
std::vector<EngineUse> engine_use(const Timeline& timeline,
                                  penstock::detail::FunctionRef<std::string(int)> bus_of);

}  // namespace penstock::trace::detail
