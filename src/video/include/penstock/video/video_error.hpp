// SPDX-License-Identifier: Apache-2.0
#pragma once

// The exception of penstock::video.

#include <penstock/version.hpp>
#include <stdexcept>

namespace penstock::inline PENSTOCK_ABI::video {

/// A video cannot be opened, indexed or decoded. `what()` says why, and names the file, and the
/// frame and its time if there is one.
class VideoError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace penstock::video
