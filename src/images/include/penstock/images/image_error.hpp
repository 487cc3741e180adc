// SPDX-License-Identifier: Apache-2.0
#pragma once

// What decoders throw.

#include <stdexcept>

namespace penstock::images {

/// An image cannot be decoded. `what()` says why in one sentence, without the name of the file,
/// which the store knows.
class ImageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The stop token of a call asked it to stop: the image may be good.
class DecodeStopped : public std::runtime_error {
 public:
  /// Its message is "stopped".
  DecodeStopped() : std::runtime_error("stopped") {}
};

}  // namespace penstock::images
