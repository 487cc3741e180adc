// SPDX-License-Identifier: Apache-2.0
#include "gradient_buckets.hpp"

namespace resnet {

GradientBuckets::GradientBuckets(const Gradients& gradients, Communicator& communicator,
                                 const BucketOptions& options)
    : gradients_(gradients), communicator_(communicator), options_(options) {
  begin();
}

void GradientBuckets::begin() {
  end_ = gradients_.sizes;
  least_ = options_.first;
}

void GradientBuckets::ready(const GradientOffsets& from, SideStream& side, cudaStream_t stream) {
  const bool last = from.weights == 0 && from.others == 0;
  const auto bytes =
      static_cast<std::size_t>(end_.weights - from.weights) * gradients_.element_bytes;
  if (bytes < least_ && !last) return;
  side.fork(stream);
  reduce(from, side.get());
  end_ = from;
  least_ = options_.others;
}

void GradientBuckets::reduce(const GradientOffsets& from, cudaStream_t stream) {
  void* const weights = static_cast<std::byte*>(gradients_.weights) +
                        static_cast<std::size_t>(from.weights) * gradients_.element_bytes;
  communicator_.all_reduce(weights, end_.weights - from.weights, gradients_.precision, stream);
  communicator_.all_reduce(gradients_.others + from.others, end_.others - from.others,
                           Precision::fp32, stream);
}

}  // namespace resnet
