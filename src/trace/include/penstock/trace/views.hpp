// SPDX-License-Identifier: Apache-2.0
#pragma once

// A timeline to look at: a file for ui.perfetto.dev (Chrome's JSON trace format), and a page that
// needs no server, no download and no network.

#include <filesystem>
#include <penstock/version.hpp>
#include <vector>

#include "findings.hpp"
#include "report.hpp"
#include "timeline.hpp"

namespace penstock::inline PENSTOCK_ABI::trace {

/// Processes: the devices, with streams as threads; the process, with its threads. Flows join calls
/// and what they put on streams. The file appears whole or not at all. Throws std::system_error.
void write_chrome_trace(const Timeline& timeline, const std::filesystem::path& path);

/// Timeline (zoom, search, stages coloured as their NVTX ranges, idle gaps marked), tables,
/// findings. About 10 bytes for each event; browsers of 2023 or later show it. The file appears
/// whole or not at all. Throws std::system_error.
void write_page(const Timeline& timeline, const Report& report,
                const std::vector<Finding>& findings, const std::filesystem::path& path);

}  // namespace penstock::trace
