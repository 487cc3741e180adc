// SPDX-License-Identifier: Apache-2.0
#pragma once

// GradientBuckets: sums the gradients over all ranks while the backward pass still computes others.
// A bucket is a range of the slab that ends where the one before begins: the backward pass writes
// the slab from its end. Batch norm's gradients and the biases' go with the weights beside them.
//
//   GradientBuckets buckets(network.gradient_memory(), communicator, {});
//   buckets.begin();
//   network.backward(stream, [&](const GradientOffsets& from) { buckets.ready(from, side); });
//
// Nothing blocks, and all of it can be captured. Which buckets there are depends on the network and
// the options alone, so that all ranks have the same.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "../model/network.hpp"
#include "communicator.hpp"
#include "side_stream.hpp"

namespace resnet {

/// Bytes of a bucket, at least: it ends where the backward pass next tells how far it is.
struct BucketOptions {
  std::size_t first = std::size_t{1} << 20;  ///< small, so that the sums begin early
  std::size_t others = std::size_t{25} << 20;

  /// All gradients in one, when the last of them is there.
  static BucketOptions one() { return {SIZE_MAX, SIZE_MAX}; }
};

class GradientBuckets {
 public:
  GradientBuckets(const Gradients& gradients, Communicator& communicator,
                  const BucketOptions& options);

  /// Before each backward pass.
  void begin();
  /// All gradients from these offsets on are queued on `stream`: on `side` they are summed as soon
  /// as they are enough for a bucket, or the last.
  void ready(const GradientOffsets& from, SideStream& side, cudaStream_t stream);

 private:
  void reduce(const GradientOffsets& from, cudaStream_t stream);

  Gradients gradients_;
  Communicator& communicator_;
  BucketOptions options_;
  GradientOffsets end_;    // of the bucket that is being filled
  std::size_t least_ = 0;  // bytes, for it to be sent
};

}  // namespace resnet
