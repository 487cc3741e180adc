// SPDX-License-Identifier: Apache-2.0
#pragma once

// GdsError: a file cannot be read to device memory by cuFile.

#include <penstock/version.hpp>
#include <stdexcept>

namespace penstock::inline PENSTOCK_ABI::gds {

/// cuFile is not there, would read in its compatibility mode, or cannot read. `what()` has the name
/// of the file, the reason, and what to change; for a read also its place.
class GdsError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace penstock::gds
