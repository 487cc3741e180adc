// SPDX-License-Identifier: Apache-2.0
#pragma once

// Convolutions with the batch norms around them, composed of what there is: the bits are those of
// the operations one by one. ops.hpp says what is computed.
//
//   const FusedConvolution<float> fused{plan, in, out, room.data(), {scratch.data(), threads}};
//   fused.forward(x, &before, weights, y, norm);
//
// Nothing is allocated; the operands are not null, but for `before` forward.

#include "batch_norm.hpp"
#include "convolution.hpp"
#include "layers_in_float.hpp"
#include "layout.hpp"

namespace resnet::reference {

template <class T>
struct FusedConvolution {
  const Convolution<T>& plan;
  ActivationLayout in, out;
  T* room;  ///< for the input, normalised
  Scratch<T> scratch;
  Precision precision = Precision::fp32;  ///< of what lies in memory

  void forward(const T* x, const Normalisation<T>* before, const T* weights, T* y,
               const Normalisation<T>& norm) const {
    plan.forward(before == nullptr ? x : normalized(x, *before), weights, y, scratch);
    round(y, out.extents.count());
    batch_norm_statistics(out, y, norm, scratch.threads);
  }

  void weight_gradient(const T* x, const Normalisation<T>& before, const T* y_gradient,
                       T* weight_gradient) const {
    plan.weight_gradient(normalized(x, before), y_gradient, weight_gradient, scratch);
  }

  void data_gradient(const T* y_gradient, const T* weights, const T* x,
                     const Normalisation<T>& before, T* x_gradient) const {
    plan.data_gradient(y_gradient, weights, x_gradient, scratch);
    round(x_gradient, in.extents.count());
    batch_norm_gradient(in, {x, normalized(x, before), x_gradient, nullptr, x_gradient, nullptr},
                        before, true, scratch.threads);
  }

 private:
  const T* normalized(const T* x, const Normalisation<T>& before) const {
    const T* none = nullptr;
    batch_norm_apply(in, x, before, none, true, room, scratch.threads);
    round(room, in.extents.count());
    return room;
  }

  /// What operations one by one would have stored.
  void round(T* values, std::int64_t count) const {
    if constexpr (std::is_same_v<T, float>) round_all(precision, values, count, scratch.threads);
  }
};

}  // namespace resnet::reference
