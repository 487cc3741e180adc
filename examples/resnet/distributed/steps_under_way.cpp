// SPDX-License-Identifier: Apache-2.0
#include "steps_under_way.hpp"

#include <utility>

#include "../../common/check.hpp"

namespace resnet {

StepsUnderWay::StepsUnderWay(Communicator& communicator)
    : communicator_(communicator), wish_(1), sums_(pool_.acquire(kMost * sizeof(float))) {}

float& StepsUnderWay::sum_of(std::uint64_t step) const {
  return reinterpret_cast<float*>(sums_.data())[step % kMost];
}

bool StepsUnderWay::before(bool wants_to_end, cudaStream_t stream) {
  if (communicator_.world_size() == 1) return !(ends_ = wants_to_end);
  communicator_.check();
  if (steps_ >= kMost) {
    done_[steps_ % kMost].make_wait(waiting_.get());
    communicator_.synchronize(waiting_.get());
    if (sum_of(steps_ - kMost) > 0) return false;
  }
  if (wants_to_end && !std::exchange(told_, true))  // Four bytes that are a float above 0.
    examples::check(cudaMemsetAsync(wish_.data(), 0x3f, wish_.bytes(), stream), "cudaMemsetAsync");
  return true;
}

void StepsUnderWay::after(cudaStream_t stream) {
  if (communicator_.world_size() == 1) return;
  examples::check(
      cudaMemcpyAsync(&sum_of(steps_), wish_.data(), wish_.bytes(), cudaMemcpyDeviceToHost, stream),
      "cudaMemcpyAsync");
  done_[steps_ % kMost].record(stream);
  ++steps_;
}

bool StepsUnderWay::finish(cudaStream_t stream) {
  communicator_.synchronize(stream);
  if (steps_ > 0) ends_ = sum_of(steps_ - 1) > 0;
  return ends_;
}

}  // namespace resnet
