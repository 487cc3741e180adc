// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products: the matrix products of a GPT, of row-major matrices, with sums in Compute<T>. A program
// links one of two: products_host.cpp (loops over the emulated runtime) or products_cublaslt.cpp.
//
//   // tokens x out = tokens x in  *  (out x in)^T  +  residual
//   products.multiply(stream, {tokens, out, in}, Factor<T>{x, in}, Factor<T>{weight, in, true},
//                     Result<T>{y, out, 0, residual});

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "lanes.hpp"

namespace gpt {

/// The result has `rows` x `columns` elements, each the sum of `terms` products; `batch` of them.
struct Shape {
  std::int64_t rows, columns, terms;
  std::int64_t batch = 1;
};

/// A matrix that is read: rows x terms on the left, terms x columns on the right.
template <class T>
struct Factor {
  const T* data;
  std::int64_t stride;      ///< elements from one row in memory to the next
  bool transposed = false;  ///< memory has the rows as columns
  std::int64_t next = 0;    ///< elements from one matrix of the batch to the next
};

/// The matrix that is written.
template <class T>
struct Result {
  T* data;
  std::int64_t stride;
  std::int64_t next = 0;
  const T* added = nullptr;  ///< a matrix that is added, placed like the result; may be the result
};

class Products {
 public:
  /// Allocates the memory that products work in, on the current device. Throws penstock::CudaError,
  /// as all members do.
  Products();
  ~Products();

  /// Whether these are the loops over the emulated runtime.
  static bool on_the_host();

  /// Queues result = factor * left * right + added. T: BFloat16, float, and on the host double;
  /// Out: T or Compute<T>. The first product of a shape finds out how it is computed.
  template <class T, class Out>
  void multiply(cudaStream_t stream, const Shape& shape, const Factor<T>& left,
                const Factor<T>& right, const Result<Out>& result, double factor = 1);

 private:
  struct Plans;
  std::unique_ptr<Plans> plans_;
};

}  // namespace gpt
