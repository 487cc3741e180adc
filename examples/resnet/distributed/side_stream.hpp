// SPDX-License-Identifier: Apache-2.0
#pragma once

// SideStream: a stream for what runs beside another stream's work: fork, queue, and join. All of it
// can be captured, and belongs to the other stream's graph then.

#include <cuda_runtime_api.h>

#include <penstock/cuda.hpp>

namespace resnet {

class SideStream {
 public:
  cudaStream_t get() const noexcept { return stream_.get(); }
  /// What is queued here from now on sees what `main` holds now.
  void fork(cudaStream_t main) {
    forked_.record(main);
    forked_.make_wait(stream_.get());
  }
  /// What is queued on `main` from now on sees what this holds now.
  void join(cudaStream_t main) {
    joined_.record(stream_.get());
    joined_.make_wait(main);
  }

 private:
  penstock::Stream stream_;
  penstock::Event forked_, joined_;
};

}  // namespace resnet
