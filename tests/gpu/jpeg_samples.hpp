// SPDX-License-Identifier: Apache-2.0
#pragma once

// JPEG files for tests that nvcc compiles: jpeg_files.hpp is not for it (it ends with an internal
// error at a vector of libjpeg's structs without a name).

#include <cstddef>
#include <penstock/version.hpp>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::images::test {

using Bytes = std::vector<std::byte>;

/// Smooth images of many sizes, with colours at full and at reduced resolution, and grey ones.
std::vector<Bytes> smooth_files(int count);

// 200 x 160 pixels, smooth.
Bytes progressive_file();
Bytes cmyk_file();
Bytes file_411();

/// The same file with every third byte of its scan changed.
Bytes damaged(Bytes file);

}  // namespace penstock::images::test
