// SPDX-License-Identifier: Apache-2.0
#pragma once

// engine_use: how busy the video engines of a device are, as the driver's NVML says.

#include <optional>
#include <penstock/version.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::video {

/// Returns which fraction of the time, 0 ... 1, the video engines (NVDEC) of the current device
/// were busy within the driver's last sampling period of at most a second: the mean of all engines,
/// for all processes. Ask while clips are decoded. nullopt: it is not known, `why_not` says why.
/// Loads libnvidia-ml.so.1 at the first call; takes less than a millisecond otherwise. Any thread
/// may call it. Throws CudaError.
std::optional<double> engine_use(std::string& why_not);

}  // namespace penstock::video
