// SPDX-License-Identifier: Apache-2.0
#pragma once

// A scenario of penstock_disk: FileFolder, its lists, TarShards and its indexes over a bad disk.

#include <cstdint>

namespace penstock::test {

/// Of a slow disk every sample is right; of a damaged one it is right, or an error that names its
/// file.
void read_stores(std::uint64_t reads);

}  // namespace penstock::test
