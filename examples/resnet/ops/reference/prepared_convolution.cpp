// SPDX-License-Identifier: Apache-2.0
#include "prepared_convolution.hpp"

#include <algorithm>

#include "parallel.hpp"
#include "rounding.hpp"

namespace resnet::reference {
namespace {

constexpr std::size_t alignment = 64;  // bytes, of each piece of scratch memory

std::size_t aligned(std::size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

template <class T>
std::size_t bytes_of(std::int64_t count) {
  return aligned(static_cast<std::size_t>(count) * sizeof(T));
}

/// Pieces of scratch memory, one behind the other. Each begins on a multiple of `alignment` from
/// the beginning, wherever that is.
class Pieces {
 public:
  explicit Pieces(std::byte* memory) : next_(memory) {}
  template <class T>
  T* take(std::int64_t count) {
    auto* piece = reinterpret_cast<T*>(next_);
    next_ += bytes_of<T>(count);
    return piece;
  }

 private:
  std::byte* next_;
};

Extents one_image(Extents extents) {
  extents.n = 1;
  return extents;
}

ConvolutionShape one_image(ConvolutionShape shape) {
  shape.in.n = 1;
  return shape;
}

/// What follows a convolution, for one element.
struct Finish {
  Precision precision;
  Fusion fusion;
  bool relu;

  float operator()(float sum, float scale, float bias, const float* residual) const {
    if (fusion != Fusion::full) sum = rounded(precision, sum);
    float value = scale * sum + bias;
    if (fusion == Fusion::none) value = rounded(precision, value);
    if (residual != nullptr) {
      value += *residual;
      if (fusion == Fusion::none) value = rounded(precision, value);
    }
    return relu && value < 0 ? 0 : value;
  }
};

/// Where an element goes, and comes from.
struct Stored {
  Precision precision;
  void* y;
  const void* residual;
  float residual_scale;

  void put(std::int64_t at, float value) const {
    if (precision == Precision::int8)
      static_cast<std::int8_t*>(y)[at] = quantised(value);
    else
      static_cast<float*>(y)[at] = rounded(precision, value);
  }
  float residual_at(std::int64_t at) const {
    return residual_scale * (precision == Precision::int8
                                 ? static_cast<float>(static_cast<const std::int8_t*>(residual)[at])
                                 : static_cast<const float*>(residual)[at]);
  }
};

/// `sums`: of image n.
template <class T>
void finish(const PreparedConvolution& plan, Fusion fusion, std::int64_t n, const T* sums,
            const ConvolutionOperands& operands, const Stored& stored) {
  const InferenceConvolution& what = plan.convolution;
  const ActivationLayout layout(one_image(what.shape.out()), plan.format);
  const Finish finish{what.precision, fusion, what.relu};
  const std::int64_t image = n * layout.image;
  for (std::int64_t k = 0; k < what.shape.k; ++k) {
    const float scale = operands.scale == nullptr ? 1 : operands.scale[k];
    for (std::int64_t i = 0; i < layout.pixels(); ++i) {
      const std::int64_t at = layout.row(0, k) + i * layout.pixel;
      float residual = 0;
      if (stored.residual != nullptr) residual = stored.residual_at(image + at);
      stored.put(image + at, finish(static_cast<float>(sums[at]), scale, operands.bias[k],
                                    stored.residual == nullptr ? nullptr : &residual));
    }
  }
}

/// Without the scratch memory that all threads share.
std::size_t thread_bytes(const PreparedConvolution& plan) {
  const ConvolutionShape shape = one_image(plan.convolution.shape);
  if (plan.in_float)
    return bytes_of<float>(shape.out().count()) +
           bytes_of<float>(static_cast<std::int64_t>(plan.in_float->scratch(1)));
  return bytes_of<double>(shape.out().count()) + bytes_of<double>(shape.in.count()) +
         bytes_of<double>(static_cast<std::int64_t>(plan.in_integers->scratch(1)));
}

/// That all threads share.
std::size_t shared_bytes(const PreparedConvolution& plan) {
  return plan.in_integers ? bytes_of<double>(plan.convolution.shape.weights()) : 0;
}

Pieces pieces_of(const PreparedConvolution& plan, const Scratch<std::byte>& scratch, int thread) {
  return Pieces(scratch.memory + shared_bytes(plan) +
                static_cast<std::size_t>(thread) * thread_bytes(plan));
}

void run_in_float(const PreparedConvolution& plan, Fusion fusion, const float* x,
                  const ConvolutionOperands& operands, const Stored& stored,
                  const Scratch<std::byte>& scratch) {
  const ConvolutionShape shape = one_image(plan.convolution.shape);
  parallel_for(scratch.threads, plan.convolution.shape.in.n, [&](std::int64_t n, int thread) {
    Pieces pieces = pieces_of(plan, scratch, thread);
    auto* sums = pieces.take<float>(shape.out().count());
    plan.in_float->forward(x + n * shape.in.count(), static_cast<const float*>(operands.weights),
                           sums, {pieces.take<float>(0), 1});
    finish(plan, fusion, n, sums, operands, stored);
  });
}

void run_in_integers(const PreparedConvolution& plan, Fusion fusion, const std::int8_t* x,
                     const ConvolutionOperands& operands, const Stored& stored,
                     const Scratch<std::byte>& scratch) {
  const ConvolutionShape shape = one_image(plan.convolution.shape);
  auto* weights = Pieces(scratch.memory).take<double>(shape.weights());
  std::copy_n(static_cast<const std::int8_t*>(operands.weights), shape.weights(), weights);
  parallel_for(scratch.threads, plan.convolution.shape.in.n, [&](std::int64_t n, int thread) {
    Pieces pieces = pieces_of(plan, scratch, thread);
    auto* sums = pieces.take<double>(shape.out().count());
    auto* image = pieces.take<double>(shape.in.count());
    std::copy_n(x + n * shape.in.count(), shape.in.count(), image);
    plan.in_integers->forward(image, weights, sums, {pieces.take<double>(0), 1});
    finish(plan, fusion, n, sums, operands, stored);
  });
}

}  // namespace

PreparedConvolution::PreparedConvolution(const InferenceConvolution& key, Format its_format)
    : convolution(key), format(its_format) {
  if (key.precision == Precision::int8)
    in_integers.emplace(one_image(key.shape), format);
  else
    in_float.emplace(one_image(key.shape), format);
}

std::size_t PreparedConvolution::scratch(int threads) const {
  return shared_bytes(*this) + static_cast<std::size_t>(threads) * thread_bytes(*this);
}

void PreparedConvolution::run(Fusion fusion, const void* x, const ConvolutionOperands& operands,
                              const void* residual, void* y,
                              const Scratch<std::byte>& scratch) const {
  const Stored stored{convolution.result, y, residual,
                      operands.residual_scale == nullptr ? 1 : *operands.residual_scale};
  if (in_integers)
    run_in_integers(*this, fusion, static_cast<const std::int8_t*>(x), operands, stored, scratch);
  else
    run_in_float(*this, fusion, static_cast<const float*>(x), operands, stored, scratch);
}

}  // namespace resnet::reference
