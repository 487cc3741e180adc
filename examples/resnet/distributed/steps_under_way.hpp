// SPDX-License-Identifier: Apache-2.0
#pragma once

// StepsUnderWay: how far a rank's host may be ahead of its device, and at which step all ranks end
// when somebody interrupts one of them. No step waits for a host, of this rank or another:
//
//   while (more && steps.before(interrupted, stream)) {
//     ...                                      // queues a step, which sums steps.wish() over ranks
//     steps.after(stream);
//   }
//   const bool ended = steps.finish(stream);   // on all ranks, or on none
//
// Each rank's wish to end is a number on its device. A step sums it over the ranks, and its sum is
// read when the host is `kMost` steps further, which is when the host would wait for that step
// anyhow: so all ranks know of it before the same step.

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <penstock/cuda.hpp>
#include <penstock/pinned_pool.hpp>

#include "../model/device_array.hpp"
#include "communicator.hpp"

namespace resnet {

class StepsUnderWay {
 public:
  static constexpr std::uint64_t kMost = 4;

  explicit StepsUnderWay(Communicator& communicator);

  /// Whether there is to be another step. Waits for the one that is kMost before it. Throws
  /// RankError.
  bool before(bool wants_to_end, cudaStream_t stream);
  void after(cudaStream_t stream);
  /// Waits for `stream`. Whether the ranks are to end.
  bool finish(cudaStream_t stream);

  /// In device memory: above 0 if somebody wants to end. The sum of several is, too.
  float* wish() const { return wish_.data(); }

 private:
  float& sum_of(std::uint64_t step) const;

  Communicator& communicator_;
  bool told_ = false;  // this rank's wish
  bool ends_ = false;
  std::uint64_t steps_ = 0;
  DeviceArray<float> wish_;
  penstock::PinnedPool pool_;
  penstock::PinnedBlock sums_;  // kMost floats
  std::array<penstock::Event, kMost> done_;
  penstock::Stream waiting_;
};

}  // namespace resnet
