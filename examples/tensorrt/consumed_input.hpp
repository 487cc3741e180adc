// SPDX-License-Identifier: Apache-2.0
#pragma once

// ConsumedInput: ends a lease when a network of TensorRT has read its input, and not when the whole
// network is done. The lease is got on a stream of its own, which waits for nothing but that.
//
//   examples::ConsumedInput input(*context, stream);
//   while (auto batch = prefetcher.next(input.stream())) {
//     context->setInputTensorAddress("pixels", batch->pixels.data_handle());
//     input.enqueue(std::move(batch));
//   }

#include <cuda_runtime_api.h>

#include <penstock/cuda.hpp>
#include <penstock/prefetcher.hpp>
#include <stdexcept>

namespace examples {

/// `Context` is nvinfer1::IExecutionContext, or what has its setInputConsumedEvent and enqueueV3.
/// For one thread. A context that is captured into a graph cannot be used so: the lease would end
/// with the capture.
template <class Context>
class ConsumedInput {
 public:
  /// The network runs on `stream`, which is not a default stream and of the current device. Both
  /// have to outlive this object.
  ConsumedInput(Context& context, cudaStream_t stream) : context_(context), network_(stream) {
    if (!context_.setInputConsumedEvent(consumed_.get()))
      throw std::runtime_error("IExecutionContext::setInputConsumedEvent failed");
  }
  /// Waits for the network, which may yet record the event.
  ~ConsumedInput() {
    cudaStreamSynchronize(network_);
    context_.setInputConsumedEvent(nullptr);
  }
  ConsumedInput(const ConsumedInput&) = delete;
  ConsumedInput& operator=(const ConsumedInput&) = delete;

  /// Where leases have to be got: Prefetcher::next(stream()).
  cudaStream_t stream() const { return inputs_.get(); }

  /// Queues the network, which reads `batch`, and ends the lease behind its reading. Does not
  /// block. Throws std::runtime_error if TensorRT refuses; the lease ends behind what it has queued
  /// then.
  template <class Batch>
  void enqueue(penstock::Lease<Batch> batch) {
    complete_.record(inputs_.get());
    complete_.make_wait(network_);
    if (!context_.enqueueV3(network_)) {
      batch.also_used_on(network_);
      throw std::runtime_error("IExecutionContext::enqueueV3 failed: TensorRT's logger says why");
    }
    consumed_.make_wait(inputs_.get());  // Behind enqueueV3, which records the event.
    batch.release();
  }

 private:
  Context& context_;
  const cudaStream_t network_;
  const penstock::Stream inputs_;
  penstock::Event complete_;  // the batch is
  penstock::Event consumed_;  // the input is
};

}  // namespace examples
