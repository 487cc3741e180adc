// SPDX-License-Identifier: Apache-2.0

#include <vector>

#include "products.hpp"

namespace gpt {
namespace {

/// Computes a row of the result.
template <class T, class Out>
struct Row {
  Shape shape;
  Factor<T> left, right;
  Result<Out> result;
  Compute<T> factor;

  void operator()(std::int64_t index) const {
    const std::int64_t batch = index / shape.rows, row = index % shape.rows;
    thread_local std::vector<Compute<T>> sums;
    sums.assign(static_cast<std::size_t>(shape.columns), 0);
    const T* const a = left.data + batch * left.next;
    const T* const b = right.data + batch * right.next;
    if (right.transposed && !left.transposed) {
      for (std::int64_t column = 0; column < shape.columns; ++column)
        sums[static_cast<std::size_t>(column)] =
            inner(a + row * left.stride, b + column * right.stride);
    } else {
      for (std::int64_t term = 0; term < shape.terms; ++term) {
        const auto x =
            value_of(left.transposed ? a[term * left.stride + row] : a[row * left.stride + term]);
        const T* const y = right.transposed ? b + term : b + term * right.stride;
        const std::int64_t step = right.transposed ? right.stride : 1;
        for (std::int64_t column = 0; column < shape.columns; ++column)
          sums[static_cast<std::size_t>(column)] += x * value_of(y[column * step]);
      }
    }
    const std::int64_t place = batch * result.next + row * result.stride;
    for (std::int64_t column = 0; column < shape.columns; ++column) {
      const auto sum = factor * sums[static_cast<std::size_t>(column)];
      result.data[place + column] =
          Out(result.added == nullptr ? sum : sum + value_of(result.added[place + column]));
    }
  }

 private:
  /// The inner product of two rows in memory, in several sums, which vector instructions add.
  Compute<T> inner(const T* a, const T* b) const {
    constexpr std::int64_t kSums = 8;
    Compute<T> sums[kSums] = {}, sum = 0;
    std::int64_t term = 0;
    for (; term + kSums <= shape.terms; term += kSums)
      for (std::int64_t i = 0; i < kSums; ++i)
        sums[i] += value_of(a[term + i]) * value_of(b[term + i]);
    for (; term < shape.terms; ++term) sum += value_of(a[term]) * value_of(b[term]);
    for (const Compute<T> part : sums) sum += part;
    return sum;
  }
};

}  // namespace

struct Products::Plans {};

Products::Products() = default;
Products::~Products() = default;

bool Products::on_the_host() {
  return true;
}

template <class T, class Out>
void Products::multiply(cudaStream_t stream, const Shape& shape, const Factor<T>& left,
                        const Factor<T>& right, const Result<Out>& result, double factor) {
  penstock::for_each(stream, shape.batch * shape.rows,
                     Row<T, Out>{shape, left, right, result, static_cast<Compute<T>>(factor)});
}

template void Products::multiply(cudaStream_t, const Shape&, const Factor<BFloat16>&,
                                 const Factor<BFloat16>&, const Result<BFloat16>&, double);
template void Products::multiply(cudaStream_t, const Shape&, const Factor<BFloat16>&,
                                 const Factor<BFloat16>&, const Result<float>&, double);
template void Products::multiply(cudaStream_t, const Shape&, const Factor<float>&,
                                 const Factor<float>&, const Result<float>&, double);
template void Products::multiply(cudaStream_t, const Shape&, const Factor<double>&,
                                 const Factor<double>&, const Result<double>&, double);

}  // namespace gpt
