// SPDX-License-Identifier: Apache-2.0
#pragma once

// The last layer: three matrix products by cuBLASLt, and the sum that is the bias's gradient. The
// logits' gradient comes as floats, and is multiplied in the settings' precision.

#include <cublasLt.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "context.hpp"

namespace resnet::cudnn {

class Linear {
 public:
  Linear();

  void forward(const Context&, std::int64_t n, std::int64_t features, std::int64_t classes,
               const void* x, const void* weights, const float* bias, float* logits, cudaStream_t);
  void gradient(const Context&, std::int64_t n, std::int64_t features, std::int64_t classes,
                const void* x, const void* weights, const float* logit_gradient, void* x_gradient,
                void* weight_gradient, float* bias_gradient, cudaStream_t);

 private:
  /// Of a product c = op(a) op(b), columns first, as cuBLAS has matrices: m x n over k.
  struct Shape {
    std::int64_t m, n, k;
    bool transpose_a, transpose_b, float_out;
    bool bias = false;
    /// Elements from one column of k to the next, where these are part of longer ones; 0: k.
    std::int64_t column = 0;
    std::uint32_t alignment = 0;  ///< bytes, of the operands; multiply() fills it in
    auto operator<=>(const Shape&) const = default;
  };
  struct Product;

  /// `bias` is read where the shape has one. The first call with a shape picks the algorithm, on
  /// the host alone.
  Product& product(const Context&, const Shape&, const float* bias);
  /// `add`: to what c has.
  void multiply(const Context&, Shape, const void* a, const void* b, const float* bias, bool add,
                void* c, void* workspace, std::size_t workspace_bytes, cudaStream_t);

  struct Close {
    void operator()(cublasLtContext* handle) const { cublasLtDestroy(handle); }
  };
  std::unique_ptr<cublasLtContext, Close> handle_;
  std::map<Shape, std::shared_ptr<Product>> products_;
};

/// sums[column] = the sum of the column of a rows x columns matrix. One order each time.
void sum_columns(const float* matrix, std::int64_t rows, std::int64_t columns, float* sums,
                 cudaStream_t);

}  // namespace resnet::cudnn
