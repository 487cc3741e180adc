// SPDX-License-Identifier: Apache-2.0
#pragma once

// The reference implementation of InferenceOperations: each is a host function on the stream, over
// the emulated CUDA runtime.
//
// Sums are computed in float whatever the precision, and what is stored is rounded to it (fp16 and
// bf16 lie in memory as the floats they round to; int8 as int8), so that the accuracy of a network
// in fewer bits is that of the bits. Sums of int8 products are exact: they are computed in double,
// which has room for them. Fusion decides where there is a rounding, as on a device: `none` rounds
// after each operation, `elementwise` after the convolution and at the end, `full` at the end.
//
// Results are the same bits for both formats and any number of threads.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "../inference.hpp"
#include "convolution.hpp"
#include "prepared_convolution.hpp"

namespace resnet::reference {

class ReferencePlans : public InferencePlans {
 public:
  explicit ReferencePlans(const Settings& settings);

  const Settings& settings() const override { return settings_; }
  std::size_t element_bytes(Precision precision) const override {
    return precision == Precision::int8 ? sizeof(std::int8_t) : sizeof(float);
  }
  std::int64_t padded_channels(std::int64_t channels) const override { return channels; }
  void from_float(Precision, const float* in, void* out, std::int64_t count,
                  cudaStream_t) const override;
  void prepare(const InferenceConvolution&) override;
  std::string engine(const InferenceConvolution&) const override;
  void save_plans() override {}
  std::unique_ptr<InferenceOperations> make_operations() override;

  /// Throws std::logic_error for one that was not prepared.
  const PreparedConvolution& find(const InferenceConvolution&) const;
  std::size_t scratch_bytes() const { return scratch_bytes_; }
  int threads() const { return threads_; }

 private:
  Settings settings_;
  int threads_;
  std::deque<PreparedConvolution> prepared_;
  std::size_t scratch_bytes_ = 0;  ///< for the largest
  std::atomic<bool> in_use_{false};
};

/// The destructor waits for the device: the work that it has enqueued uses this object.
class ReferenceInference : public InferenceOperations {
 public:
  explicit ReferenceInference(const ReferencePlans& plans);
  ~ReferenceInference() override;
  ReferenceInference(const ReferenceInference&) = delete;
  ReferenceInference& operator=(const ReferenceInference&) = delete;

  void convert(const ImageInput&, const float* images, void* x, cudaStream_t) override;
  void convert(const ImageInput&, const std::uint8_t* images, void* x, cudaStream_t) override;
  void convolution(const InferenceConvolution&, const void* x, const ConvolutionOperands&,
                   const void* residual, void* y, cudaStream_t) override;
  void max_pool(const PoolShape&, Precision, const void* x, void* y, cudaStream_t) override;
  void average_pool(const Extents&, Precision, const void* x, float scale, void* y,
                    cudaStream_t) override;
  void linear(std::int64_t n, std::int64_t features, std::int64_t classes, const void* x,
              const void* weights, const float* bias, float* logits, cudaStream_t) override;

 private:
  /// To be called by the work that uses it. One byte stands for all of it: every such work
  /// writes it.
  Scratch<std::byte> scratch();

  const ReferencePlans& plans_;
  std::vector<std::byte> scratch_;
};

}  // namespace resnet::reference
