// SPDX-License-Identifier: Apache-2.0
#pragma once

// The reference implementation of Operations: each is a host function on the stream, over the
// emulated CUDA runtime. It computes in float. In fp16 and bf16 what an operation stores is rounded
// to that precision, as a GPU's memory has it: activations, weights and their gradients, each in a
// float. It honours the format; the other settings change nothing, but that Fusion::full fuses
// every convolution. Results are the same bits for both formats, fused or not, and for any number
// of threads.
//
// The destructor waits for the device: the work that it has enqueued uses this object.

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "../ops.hpp"
#include "batch_norm_parts.hpp"
#include "convolution.hpp"
#include "touched.hpp"

namespace resnet::reference {

class ReferenceOperations : public Operations {
 public:
  explicit ReferenceOperations(const Settings& settings);
  ~ReferenceOperations() override;
  ReferenceOperations(const ReferenceOperations&) = delete;
  ReferenceOperations& operator=(const ReferenceOperations&) = delete;

  const Settings& settings() const override { return settings_; }
  std::size_t element_bytes() const override { return sizeof(float); }
  std::int64_t padded_channels(std::int64_t channels) const override { return channels; }
  void from_float(const float* in, void* out, std::int64_t count, cudaStream_t) override;
  void to_float(const void* in, float* out, std::int64_t count, cudaStream_t) override;

  /// Waits for the device when the shape needs more workspace than there is.
  void prepare(const ConvolutionShape&) override;

  void convolution(const ConvolutionShape&, const void* x, const void* weights, void* y,
                   cudaStream_t) override;
  void convolution_data_gradient(const ConvolutionShape&, const void* y_gradient,
                                 const void* weights, void* x_gradient, cudaStream_t) override;
  void convolution_weight_gradient(const ConvolutionShape&, const void* x, const void* y_gradient,
                                   void* weight_gradient, cudaStream_t) override;

  void batch_norm(const Extents&, const void* x, const BatchNorm&, const void* residual, bool relu,
                  void* y, cudaStream_t) override;
  void batch_norm_inference(const Extents&, const void* x, const BatchNorm&, const void* residual,
                            bool relu, void* y, cudaStream_t) override;
  void batch_norm_gradient(const Extents&, const void* x, const void* y, const void* y_gradient,
                           const void* more_y_gradient, const BatchNorm&, bool relu,
                           void* x_gradient, void* residual_gradient, cudaStream_t) override;

  std::int64_t relu_bits_bytes(const Extents&) const override { return 0; }
  BatchNormParts& batch_norm_parts() override { return batch_norm_parts_; }

  bool fuses(const ConvolutionShape&, bool normalized_input) override;
  void convolution_statistics(const ConvolutionShape&, const void* x, const BatchNorm* before,
                              const void* weights, void* y, const BatchNorm& norm,
                              cudaStream_t) override;
  void batch_norm_apply(const Extents&, const void* x, const BatchNorm&, const void* residual,
                        const BatchNorm* residual_norm, bool relu, void* y, cudaStream_t) override;
  void normalized_weight_gradient(const ConvolutionShape&, const void* x, const BatchNorm& before,
                                  const void* y_gradient, void* weight_gradient,
                                  cudaStream_t) override;
  void normalized_data_gradient(const ConvolutionShape&, const void* y_gradient,
                                const void* weights, const void* x, const BatchNorm& before,
                                void* x_gradient, cudaStream_t) override;

  bool fuses_pool(const PoolShape&) override;
  void batch_norm_max_pool(const PoolShape&, const void* x, const BatchNorm&, void* y,
                           std::uint8_t* chosen, cudaStream_t) override;
  void batch_norm_max_pool_gradient(const PoolShape&, const void* x, const std::uint8_t* chosen,
                                    const void* y_gradient, const void* more_y_gradient,
                                    const BatchNorm&, void* x_gradient, cudaStream_t) override;
  void max_pool(const PoolShape&, const void* x, void* y, std::uint8_t* chosen,
                cudaStream_t) override;
  void max_pool_gradient(const PoolShape&, const std::uint8_t* chosen, const void* y_gradient,
                         const void* more_y_gradient, void* x_gradient, cudaStream_t) override;
  void average_pool(const Extents&, const void* x, void* y, cudaStream_t) override;
  void average_pool_gradient(const Extents&, const void* y_gradient, void* x_gradient,
                             cudaStream_t) override;

  void linear(std::int64_t n, std::int64_t features, std::int64_t classes, const void* x,
              const void* weights, const float* bias, float* logits, cudaStream_t) override;
  void linear_gradient(std::int64_t n, std::int64_t features, std::int64_t classes, const void* x,
                       const void* weights, const float* logit_gradient, void* x_gradient,
                       void* weight_gradient, float* bias_gradient, cudaStream_t) override;

  void cross_entropy(std::int64_t n, std::int64_t classes, const float* logits,
                     const std::int32_t* labels, const LossScale* loss_scale, float* logit_gradient,
                     Metrics* metrics, cudaStream_t) override;
  void sgd(const SgdState&, const SgdOptions&, cudaStream_t) override;

 private:
  struct Prepared {
    ConvolutionShape shape;
    Convolution<float> convolution;
  };
  /// Stays where it is as long as this object.
  const Convolution<float>& plan(const ConvolutionShape&);

  /// Of the settings' precision.
  Range stores(void* memory, std::int64_t count) const;
  /// To it, in place.
  void round(float* values, std::int64_t count) const;

  /// To be called by the work that uses it: memory that has grown since it was enqueued is the
  /// grown one, in graphs too. One element stands for all of it: every such work writes it.
  Scratch<float> scratch();
  /// work(FusedConvolution) runs in stream order. Throws UnsupportedOperation unless this fuses().
  template <template <class> class Name, class Work>
  void enqueue_fused(const ConvolutionShape&, bool normalized_input, cudaStream_t,
                     std::vector<Range> touched, Work work);

  Settings settings_;
  int threads_;
  ReferenceBatchNormParts batch_norm_parts_;
  std::deque<Prepared> prepared_;
  std::vector<float> scratch_, normalized_;
};

}  // namespace resnet::reference
