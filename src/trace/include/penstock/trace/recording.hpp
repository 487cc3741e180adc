// SPDX-License-Identifier: Apache-2.0
#pragma once

// A Timeline as a file: what a traced process leaves behind, and `penstock-trace` reads. The format
// is of the machine that wrote it (little endian), with a version; a damaged file is told.

#include <filesystem>
#include <penstock/version.hpp>

#include "timeline.hpp"

namespace penstock::inline PENSTOCK_ABI::trace {

/// The file appears whole or not at all. Throws std::system_error.
void save(const Timeline& timeline, const std::filesystem::path& path);

/// Throws std::runtime_error that names the file for one that save() did not write, of another
/// version, or damaged: every index and order is checked.
Timeline load(const std::filesystem::path& path);

}  // namespace penstock::trace
