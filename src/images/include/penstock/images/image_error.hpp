// SPDX-License-Identifier: Apache-2.0
#pragma once

// The exceptions of decoders.

#include <penstock/version.hpp>
#include <stdexcept>

namespace penstock::inline PENSTOCK_ABI::images {

/// An image cannot be decoded. `what()` says why in one sentence. It does not name the file, which
/// the store knows.
class ImageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The stop token of a call requested a stop; the image may be valid.
class DecodeStopped : public std::runtime_error {
 public:
  /// Its message is "stopped".
  DecodeStopped() : std::runtime_error("stopped") {}
};

}  // namespace penstock::images
