// SPDX-License-Identifier: Apache-2.0
#pragma once

// The graphs of plan.hpp in terms of cuDNN's front end. An operand's uid is its place in Graph's
// comments, counted from 1. Only plan.cpp includes this.

#include <cudnn_frontend.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "plan.hpp"

namespace resnet::cudnn {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

inline fe::DataType_t data_type(Precision precision) {
  switch (precision) {
    case Precision::fp16:
      return fe::DataType_t::HALF;
    case Precision::bf16:
      return fe::DataType_t::BFLOAT16;
    case Precision::int8:
      return fe::DataType_t::INT8;
    default:
      return fe::DataType_t::FLOAT;
  }
}

/// Makes one graph; `key` outlives it.
class GraphBuilder {
 public:
  GraphBuilder(const GraphKey& key, fe::graph::Graph& graph) : key_(key), graph_(graph) {
    graph_.set_io_data_type(data_type(key.precision))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  void build() {
    switch (key_.graph) {
      case Graph::forward:
        return forward();
      case Graph::data_gradient:
        return data_gradient();
      case Graph::weight_gradient:
        return weight_gradient();
      case Graph::forward_statistics:
        return forward_statistics();
      case Graph::normalized_forward_statistics:
        return normalized_forward_statistics();
      case Graph::normalized_weight_gradient:
        return normalized_weight_gradient();
      case Graph::data_gradient_statistics:
        return data_gradient_statistics();
      case Graph::inference:
        return inference();
    }
  }

 private:
  using Attributes = fe::graph::Tensor_attributes;
  using Dimensions = std::vector<std::int64_t>;

  // ---- The graphs

  void forward() {
    const Tensor x = activation(key_.shape.in);
    const Tensor w = weights();
    const Tensor y = graph_.conv_fprop(x, w, convolution<fe::graph::Conv_fprop_attributes>());
    output(y, y_extents());
    if (int8()) y->set_data_type(fe::DataType_t::INT32);
  }

  void data_gradient() {
    const Tensor dy = activation(key_.shape.out());
    const Tensor w = weights();
    output(graph_.conv_dgrad(dy, w, convolution<fe::graph::Conv_dgrad_attributes>()),
           key_.shape.in);
  }

  void weight_gradient() {
    const Tensor x = activation(key_.shape.in);
    const Tensor dy = activation(key_.shape.out());
    output(graph_.conv_wgrad(dy, x, convolution<fe::graph::Conv_wgrad_attributes>()),
           weight_extents());
  }

  void forward_statistics() {
    const Tensor x = activation(key_.shape.in);
    const Tensor w = weights();
    convolution_and_sums(x, w);
  }

  void normalized_forward_statistics() {
    const Tensor x = normalized();
    const Tensor w = weights();
    convolution_and_sums(x, w);
  }

  void normalized_weight_gradient() {
    const Tensor x = normalized();
    const Tensor dy = activation(key_.shape.out());
    output(graph_.conv_wgrad(dy, x, convolution<fe::graph::Conv_wgrad_attributes>()),
           weight_extents());
  }

  void data_gradient_statistics() {
    const Tensor dy = activation(key_.shape.out());
    const Tensor w = weights();
    const Tensor x = activation(key_.shape.in);
    const std::int64_t channels = key_.shape.in.c;
    const Tensor mean = per_channel(channels, fe::DataType_t::FLOAT);
    const Tensor inverse_deviation = per_channel(channels, fe::DataType_t::FLOAT);
    const Tensor scale = per_channel(channels, fe::DataType_t::FLOAT);
    const Tensor bias = per_channel(channels, fe::DataType_t::FLOAT);
    const Tensor through =
        graph_.conv_dgrad(dy, w, convolution<fe::graph::Conv_dgrad_attributes>());
    through->set_dim(dimensions(key_.shape.in));
    Tensor relu_input = pointwise(fe::PointwiseMode_t::SUB, x, mean);
    relu_input = pointwise(fe::PointwiseMode_t::MUL, relu_input, inverse_deviation);
    relu_input = pointwise(fe::PointwiseMode_t::MUL, relu_input, scale);
    relu_input = pointwise(fe::PointwiseMode_t::ADD, relu_input, bias);
    const Tensor dx = pointwise(fe::PointwiseMode_t::RELU_BWD, through, relu_input);
    output(dx, key_.shape.in);
    for (const Tensor& sum : graph_.dbn_weight(dx, x, mean, inverse_deviation, scale,
                                               fe::graph::DBN_weight_attributes()))
      float_output(sum);
  }

  void inference() {
    const Tensor x = activation(key_.shape.in);
    const Tensor w = weights();
    Tensor y = graph_.conv_fprop(x, w, convolution<fe::graph::Conv_fprop_attributes>());
    const auto with = [&](fe::PointwiseMode_t mode, fe::DataType_t type) {
      y = pointwise(mode, y, per_channel(key_.shape.k, type));
    };
    if (int8()) with(fe::PointwiseMode_t::MUL, fe::DataType_t::FLOAT);
    with(fe::PointwiseMode_t::ADD,
         key_.epilogue.narrow_bias ? data_type(key_.precision) : fe::DataType_t::FLOAT);
    if (key_.epilogue.residual) {
      Tensor residual = activation(y_extents());
      if (int8())
        residual = pointwise(fe::PointwiseMode_t::MUL, residual,
                             input({1, 1, 1, 1}, fe::DataType_t::FLOAT));
      y = pointwise(fe::PointwiseMode_t::ADD, y, residual);
    }
    if (key_.epilogue.relu)
      y = graph_.pointwise(
          y, fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::RELU_FWD));
    output(y, y_extents());
  }

  // ---- Their parts

  /// relu(x * scale + bias), never in memory. Engines for it want scale and bias in x's type.
  Tensor normalized() {
    const Tensor x = activation(key_.shape.in);
    const Tensor scale = per_channel(key_.shape.in.c, data_type(key_.precision));
    const Tensor bias = per_channel(key_.shape.in.c, data_type(key_.precision));
    graph_.set_intermediate_data_type(data_type(key_.precision));
    const Tensor shifted =
        pointwise(fe::PointwiseMode_t::ADD, pointwise(fe::PointwiseMode_t::MUL, x, scale), bias);
    return graph_.pointwise(
        shifted, fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::RELU_FWD));
  }

  void convolution_and_sums(const Tensor& x, const Tensor& w) {
    const Tensor y = graph_.conv_fprop(x, w, convolution<fe::graph::Conv_fprop_attributes>());
    output(y, y_extents());
    for (const Tensor& sum : graph_.genstats(y, fe::graph::Genstats_attributes()))
      float_output(sum);
  }

  template <class Convolution>
  Convolution convolution() const {
    const ConvolutionShape& shape = key_.shape;
    return Convolution()
        .set_padding({shape.padding, shape.padding})
        .set_stride({shape.stride, shape.stride})
        .set_dilation({1, 1})
        .set_compute_data_type(int8() ? fe::DataType_t::INT32 : fe::DataType_t::FLOAT);
  }

  Tensor pointwise(fe::PointwiseMode_t mode, const Tensor& a, const Tensor& b) {
    return graph_.pointwise(a, b, fe::graph::Pointwise_attributes().set_mode(mode));
  }

  // ---- Operands

  bool int8() const { return key_.precision == Precision::int8; }
  Extents y_extents() const { return key_.shape.out(); }
  Extents weight_extents() const {
    return {key_.shape.k, key_.shape.in.c, key_.shape.kernel, key_.shape.kernel};
  }
  static Dimensions dimensions(const Extents& e) { return {e.n, e.c, e.h, e.w}; }
  Dimensions strides(const Extents& e) const {
    return key_.format == Format::nhwc ? Dimensions{e.h * e.w * e.c, 1, e.w * e.c, e.c}
                                       : Dimensions{e.c * e.h * e.w, e.h * e.w, e.w, 1};
  }

  Tensor input(const Extents& extents, fe::DataType_t type) {
    return graph_.tensor(Attributes()
                             .set_dim(dimensions(extents))
                             .set_stride(strides(extents))
                             .set_data_type(type)
                             .set_uid(++operands_));
  }
  Tensor activation(const Extents& extents) { return input(extents, data_type(key_.precision)); }
  Tensor weights() { return input(weight_extents(), data_type(key_.precision)); }
  Tensor per_channel(std::int64_t channels, fe::DataType_t type) {
    return input({1, channels, 1, 1}, type);
  }
  void output(const Tensor& tensor, const Extents& extents) {
    tensor->set_output(true)
        .set_dim(dimensions(extents))
        .set_stride(strides(extents))
        .set_data_type(data_type(key_.precision))
        .set_uid(++operands_);
  }
  /// Its extents follow from the node that it comes out of.
  void float_output(const Tensor& tensor) {
    tensor->set_output(true).set_data_type(fe::DataType_t::FLOAT).set_uid(++operands_);
  }

  const GraphKey& key_;
  fe::graph::Graph& graph_;
  std::int64_t operands_ = 0;
};

}  // namespace resnet::cudnn
