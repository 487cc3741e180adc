// SPDX-License-Identifier: Apache-2.0
#pragma once

// A convolution and its gradients on the CPU, in float or double.
//
//   const Convolution<float> plan(shape, Format::nchw);
//   std::vector<float> scratch(plan.scratch(threads));
//   plan.forward(x, weights, y, {scratch.data(), threads});
//
// The results are the same bits for any number of threads and for both formats: they are copied
// into the same grids, and each output is one sum in a fixed order. Nothing is allocated.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../ops.hpp"
#include "correlation.hpp"
#include "layout.hpp"

namespace resnet::reference {

/// Memory for a computation to work in, and how many threads may take part.
template <class T>
struct Scratch {
  T* memory = nullptr;
  int threads = 1;
};

template <class T>
class Convolution {
 public:
  Convolution(const ConvolutionShape& shape, Format format);

  /// Elements of scratch memory that the largest of the three needs.
  std::size_t scratch(int threads) const;

  void forward(const T* x, const T* weights, T* y, const Scratch<T>& scratch) const;
  void data_gradient(const T* y_gradient, const T* weights, T* x_gradient,
                     const Scratch<T>& scratch) const;
  void weight_gradient(const T* x, const T* y_gradient, T* weight_gradient,
                       const Scratch<T>& scratch) const;

 private:
  /// The input with its padding, taken apart into stride x stride planes of every stride-th row and
  /// column, so that a strided convolution too reads neighbours for neighbours.
  struct InputGrid {
    std::int64_t height = 0, width = 0;  // of a plane
    std::int64_t plane() const { return height * width; }
  };
  /// The output's gradient with zeros around it: for the data gradient.
  struct OutputGrid {
    std::int64_t margin = 0, height = 0, width = 0;
    std::int64_t plane() const { return height * width; }
  };
  /// Weights that one of the stride x stride planes of the data gradient meets.
  struct Phase {
    Correlation correlation;
    std::vector<std::int64_t> taps;
  };
  /// The tiles of the weight gradient: tile_rows outputs x tile_width inputs of one tap.
  struct WeightTiles {
    std::int64_t outputs, taps, inputs;
    std::int64_t count() const { return outputs * taps * inputs; }
  };

  std::int64_t taps() const { return shape_.kernel * shape_.kernel; }
  std::int64_t planes() const { return shape_.stride * shape_.stride; }
  std::int64_t plane_of(std::int64_t tap) const;
  std::int64_t shift_of(std::int64_t tap) const;
  std::int64_t input_grid_size() const;
  std::int64_t output_grid_size() const;
  std::int64_t pixel_grid_size() const;
  std::int64_t gradient_grid_size() const;
  std::int64_t chunk() const;
  WeightTiles weight_tiles() const;

  void plan_forward();
  void plan_data_gradient();
  Phase plan_phase(std::int64_t a, std::int64_t b) const;

  void fill_input_grid(const T* image, T* grid) const;
  void fill_output_grid(const T* image, T* grid) const;
  void fill_pixel_grid(const T* image, T* grid) const;
  void fill_gradient_grid(const T* image, T* grid) const;
  void add_weight_tiles(std::int64_t first, std::int64_t last, const T* pixels, const T* gradients,
                        T* sums) const;
  void store_weight_tiles(const T* sums, T* weight_gradient) const;

  ConvolutionShape shape_;
  ActivationLayout in_, out_;
  WeightLayout weights_;
  InputGrid input_grid_;
  OutputGrid output_grid_;
  Correlation forward_;
  std::vector<Phase> phases_;
  std::vector<std::int64_t> pixel_offsets_;  // of a block of pixels in the pixel grid
};

extern template class Convolution<float>;
extern template class Convolution<double>;

}  // namespace resnet::reference
