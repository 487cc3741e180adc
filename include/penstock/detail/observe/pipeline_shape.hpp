// SPDX-License-Identifier: Apache-2.0
#pragma once

// PipelineShape: what a pipeline is made of, as far as a replay of its batches has to know it, and
// what bounds its settings.

#include <cstddef>
#include <cstdint>

namespace penstock::detail {

/// What fills the batches.
enum class SourceShape {
  batch,       ///< one worker fills a batch in pinned memory
  per_sample,  ///< the workers fill the rows of a batch together
  on_device,   ///< one worker fills a batch in a device slot; nothing is copied
};

struct PipelineShape {
  SourceShape source = SourceShape::batch;
  int pieces = 1;           ///< rows of a batch that workers take one by one: those of per_sample
  bool ordered = true;      ///< batches are delivered in the order of their numbers
  bool transforms = false;  ///< there is a DeviceTransform
  bool unbounded = false;   ///< the data are a stream, which one worker reads
  bool deepens = false;     ///< host_depth follows workers and device_depth
  // The present settings. host_depth of an on_device source is 0.
  int workers = 1;
  std::size_t host_depth = 1, device_depth = 1;

  /// Batches that were opened before had other settings, as ticks() tells.
  std::int64_t since = 0;

  bool on_device() const { return source == SourceShape::on_device; }
  /// Batches of all epochs; 0: unknown.
  std::uint64_t batches = 0;
  /// Cores that the process may use (0: unknown), and how many of them one worker keeps busy while
  /// it is in the source, 0 ... 1 (0: unknown).
  int cores = 0;
  double computing = 0;
  /// Batches that memory is allocated for, where that is more than the depths.
  std::size_t host_allocated = 0, device_allocated = 0;
  /// Bytes of a batch, and of all batches that the limits have room for. 0: unknown.
  std::size_t host_bytes = 0, device_bytes = 0, host_limit = 0, device_limit = 0;
};

}  // namespace penstock::detail
