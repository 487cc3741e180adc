// SPDX-License-Identifier: Apache-2.0
#include "convolution.hpp"

#include <algorithm>

#include "parallel.hpp"

namespace resnet::reference {
namespace {

constexpr std::int64_t chunk_elements = 1 << 22;  // of the grids kept for the weight gradient
constexpr std::int64_t block_pixels = 128;  // of a grid, added up in registers, then in memory

}  // namespace

template <class T>
Convolution<T>::Convolution(const ConvolutionShape& shape, Format format)
    : shape_(shape), in_(shape.in, format), out_(shape.out(), format), weights_(shape, format) {
  input_grid_.height = round_up(shape.in.h + 2 * shape.padding, shape.stride) / shape.stride;
  input_grid_.width = round_up(shape.in.w + 2 * shape.padding, shape.stride) / shape.stride;
  // One column more than the taps reach: it keeps a row's end apart from the next one's beginning.
  output_grid_.margin = (shape.kernel - 1) / shape.stride;
  output_grid_.width = shape.out_w() + output_grid_.margin + 1;
  output_grid_.height = shape.out_h() + 2 * output_grid_.margin + 2;
  plan_forward();
  plan_data_gradient();
  for (std::int64_t pixel = 0; pixel < block_pixels; ++pixel)
    pixel_offsets_.push_back(pixel * shape.in.c);
}

// ---- Sizes --------------------------------------------------------------------------------------

/// The plane that a tap reads,
template <class T>
std::int64_t Convolution<T>::plane_of(std::int64_t tap) const {
  const std::int64_t r = tap / shape_.kernel, s = tap % shape_.kernel;
  return r % shape_.stride * shape_.stride + s % shape_.stride;
}

/// and how far from the output's pixel.
template <class T>
std::int64_t Convolution<T>::shift_of(std::int64_t tap) const {
  const std::int64_t r = tap / shape_.kernel, s = tap % shape_.kernel;
  return r / shape_.stride * input_grid_.width + s / shape_.stride;
}

// Behind each grid there is room for the pixels that a tile takes too many, and the taps' reach.
template <class T>
std::int64_t Convolution<T>::input_grid_size() const {
  const std::int64_t reach = shift_of(taps() - 1) + tile_width<T>;
  return round_up(shape_.in.c * planes() * input_grid_.plane() + reach, tile_width<T>);
}

template <class T>
std::int64_t Convolution<T>::output_grid_size() const {
  const std::int64_t reach = 2 * (output_grid_.margin + 1) * output_grid_.width + tile_width<T>;
  return round_up(shape_.k * output_grid_.plane() + reach, tile_width<T>);
}

template <class T>
std::int64_t Convolution<T>::pixel_grid_size() const {
  const std::int64_t reach = shift_of(taps() - 1) + 1;
  return round_up((planes() * input_grid_.plane() + reach) * shape_.in.c + tile_width<T>,
                  tile_width<T>);
}

template <class T>
std::int64_t Convolution<T>::gradient_grid_size() const {
  return round_up(shape_.out_h() * input_grid_.width * round_up(shape_.k, tile_rows),
                  tile_width<T>);
}

/// Images whose grids are kept at a time.
template <class T>
std::int64_t Convolution<T>::chunk() const {
  return std::clamp<std::int64_t>(chunk_elements / (pixel_grid_size() + gradient_grid_size()), 1,
                                  shape_.in.n);
}

template <class T>
typename Convolution<T>::WeightTiles Convolution<T>::weight_tiles() const {
  return {round_up(shape_.k, tile_rows) / tile_rows, taps(),
          round_up(shape_.in.c, tile_width<T>) / tile_width<T>};
}

template <class T>
std::size_t Convolution<T>::scratch(int threads) const {
  std::int64_t packed = 0;
  for (const Phase& phase : phases_) packed += phase.correlation.packed_weights();
  const std::int64_t forward = forward_.packed_weights() + threads * input_grid_size();
  const std::int64_t data = packed + threads * output_grid_size();
  const std::int64_t weight = weight_tiles().count() * tile_rows * tile_width<T> +
                              chunk() * (pixel_grid_size() + gradient_grid_size());
  return static_cast<std::size_t>(std::max({forward, data, weight}));
}

// ---- Forward ------------------------------------------------------------------------------------

template <class T>
void Convolution<T>::plan_forward() {
  forward_.outputs = shape_.k;
  for (std::int64_t c = 0; c < shape_.in.c; ++c)
    for (std::int64_t tap = 0; tap < taps(); ++tap)
      forward_.offsets.push_back((c * planes() + plane_of(tap)) * input_grid_.plane() +
                                 shift_of(tap));
  forward_.width = input_grid_.width;
  forward_.rows = shape_.out_h();
  forward_.columns = shape_.out_w();
  forward_.out_channel = out_.channel;
  forward_.out_row = out_.extents.w * out_.pixel;
  forward_.out_column = out_.pixel;
}

/// Writes all but the zeros around the image.
template <class T>
void Convolution<T>::fill_input_grid(const T* image, T* grid) const {
  const std::int64_t stride = shape_.stride, padding = shape_.padding;
  for (std::int64_t c = 0; c < shape_.in.c; ++c)
    for (std::int64_t h = 0; h < shape_.in.h; ++h) {
      const T* row = image + c * in_.channel + h * shape_.in.w * in_.pixel;
      const std::int64_t a = (h + padding) % stride, i = (h + padding) / stride;
      for (std::int64_t first = 0; first < std::min(stride, shape_.in.w); ++first) {
        const std::int64_t b = (first + padding) % stride;
        T* to = grid + (c * planes() + a * stride + b) * input_grid_.plane() +
                i * input_grid_.width + (first + padding) / stride;
        const std::int64_t count = (shape_.in.w - first + stride - 1) / stride;
        const std::int64_t step = stride * in_.pixel;
        const T* from = row + first * in_.pixel;
        for (std::int64_t j = 0; j < count; ++j) to[j] = from[j * step];
      }
    }
}

template <class T>
void Convolution<T>::forward(const T* x, const T* weights, T* y, const Scratch<T>& scratch) const {
  T* packed = scratch.memory;
  T* grids = packed + forward_.packed_weights();
  std::fill_n(packed, forward_.packed_weights() + scratch.threads * input_grid_size(), T{0});
  for (std::int64_t k = 0; k < shape_.k; ++k)
    for (std::int64_t c = 0; c < shape_.in.c; ++c)
      for (std::int64_t tap = 0; tap < taps(); ++tap)
        packed[Correlation::packed_index(forward_.depth(), c * taps() + tap, k)] =
            weights[weights_(k, c, tap)];
  parallel_for(scratch.threads, shape_.in.n, [&](std::int64_t n, int thread) {
    T* grid = grids + thread * input_grid_size();
    fill_input_grid(x + n * in_.image, grid);
    correlate(forward_, packed, grid, y + n * out_.image);
  });
}

// ---- The data's gradient ------------------------------------------------------------------------

/// The input's pixels whose padded row and column are a and b modulo the stride: they meet the taps
/// of which the same is true, and are a convolution without a stride.
template <class T>
typename Convolution<T>::Phase Convolution<T>::plan_phase(std::int64_t a, std::int64_t b) const {
  const std::int64_t stride = shape_.stride, padding = shape_.padding;
  const std::int64_t margin = output_grid_.margin, width = output_grid_.width;
  Phase phase;
  for (std::int64_t tap = 0; tap < taps(); ++tap)
    if (plane_of(tap) == a * stride + b) phase.taps.push_back(tap);
  Correlation& work = phase.correlation;
  work.outputs = shape_.in.c;
  for (std::int64_t k = 0; k < shape_.k; ++k)
    for (const std::int64_t tap : phase.taps)
      work.offsets.push_back(k * output_grid_.plane() +
                             (margin - tap / shape_.kernel / stride) * width + margin -
                             tap % shape_.kernel / stride);
  work.width = width;
  const auto first = [&](std::int64_t phase_offset) {  // that is no padding
    return round_up(std::max<std::int64_t>(0, padding - phase_offset), stride) / stride;
  };
  const auto count = [&](std::int64_t phase_offset, std::int64_t size) {
    const std::int64_t begin = first(phase_offset) * stride + phase_offset - padding;
    return std::max<std::int64_t>(0, (size - begin + stride - 1) / stride);
  };
  work.first_row = first(a);
  work.rows = count(a, shape_.in.h);
  work.first_column = first(b);
  work.columns = count(b, shape_.in.w);
  work.out_offset = ((work.first_row * stride + a - padding) * shape_.in.w +
                     work.first_column * stride + b - padding) *
                    in_.pixel;
  work.out_channel = in_.channel;
  work.out_row = stride * shape_.in.w * in_.pixel;
  work.out_column = stride * in_.pixel;
  return phase;
}

template <class T>
void Convolution<T>::plan_data_gradient() {
  for (std::int64_t a = 0; a < shape_.stride; ++a)
    for (std::int64_t b = 0; b < shape_.stride; ++b) phases_.push_back(plan_phase(a, b));
}

/// Writes all but the zeros around the image.
template <class T>
void Convolution<T>::fill_output_grid(const T* image, T* grid) const {
  const Extents& out = out_.extents;
  for (std::int64_t k = 0; k < out.c; ++k)
    for (std::int64_t h = 0; h < out.h; ++h) {
      const T* from = image + k * out_.channel + h * out.w * out_.pixel;
      T* to = grid + k * output_grid_.plane() + (h + output_grid_.margin) * output_grid_.width +
              output_grid_.margin;
      for (std::int64_t w = 0; w < out.w; ++w) to[w] = from[w * out_.pixel];
    }
}

template <class T>
void Convolution<T>::data_gradient(const T* y_gradient, const T* weights, T* x_gradient,
                                   const Scratch<T>& scratch) const {
  T* packed = scratch.memory;
  for (const Phase& phase : phases_) {
    const Correlation& work = phase.correlation;
    std::fill_n(packed, work.packed_weights(), T{0});
    std::int64_t depth = 0;
    for (std::int64_t k = 0; k < shape_.k; ++k)
      for (const std::int64_t tap : phase.taps) {
        for (std::int64_t c = 0; c < shape_.in.c; ++c)
          packed[Correlation::packed_index(work.depth(), depth, c)] = weights[weights_(k, c, tap)];
        ++depth;
      }
    packed += work.packed_weights();
  }
  T* grids = packed;
  std::fill_n(grids, scratch.threads * output_grid_size(), T{0});
  parallel_for(scratch.threads, shape_.in.n, [&](std::int64_t n, int thread) {
    T* grid = grids + thread * output_grid_size();
    fill_output_grid(y_gradient + n * out_.image, grid);
    const T* phase_weights = scratch.memory;
    for (const Phase& phase : phases_) {
      correlate(phase.correlation, phase_weights, grid, x_gradient + n * in_.image);
      phase_weights += phase.correlation.packed_weights();
    }
  });
}

// ---- The weights' gradient ----------------------------------------------------------------------
//
// For each tap a product of two matrices: (outputs x pixels) (pixels x inputs). Both are copied so
// that the channels of a pixel lie side by side; the output's gradient has the rows of the input's
// grid, with zeros behind each.

template <class T>
void Convolution<T>::fill_pixel_grid(const T* image, T* grid) const {
  const std::int64_t stride = shape_.stride, padding = shape_.padding, channels = shape_.in.c;
  std::fill_n(grid, pixel_grid_size(), T{0});
  for (std::int64_t h = 0; h < shape_.in.h; ++h)
    for (std::int64_t c = 0; c < channels; ++c) {
      const T* row = image + c * in_.channel + h * shape_.in.w * in_.pixel;
      const std::int64_t a = (h + padding) % stride, i = (h + padding) / stride;
      for (std::int64_t first = 0; first < std::min(stride, shape_.in.w); ++first) {
        const std::int64_t plane = a * stride + (first + padding) % stride;
        T* to = grid + c +
                (plane * input_grid_.plane() + i * input_grid_.width + (first + padding) / stride) *
                    channels;
        for (std::int64_t w = first; w < shape_.in.w; w += stride, to += channels)
          *to = row[w * in_.pixel];
      }
    }
}

template <class T>
void Convolution<T>::fill_gradient_grid(const T* image, T* grid) const {
  const Extents& out = out_.extents;
  const std::int64_t channels = round_up(out.c, tile_rows);
  std::fill_n(grid, gradient_grid_size(), T{0});
  for (std::int64_t h = 0; h < out.h; ++h)
    for (std::int64_t k = 0; k < out.c; ++k) {
      const T* from = image + k * out_.channel + h * out.w * out_.pixel;
      T* to = grid + h * input_grid_.width * channels + k;
      for (std::int64_t w = 0; w < out.w; ++w) to[w * channels] = from[w * out_.pixel];
    }
}

/// Adds one image to the tiles [first, last).
template <class T>
void Convolution<T>::add_weight_tiles(std::int64_t first, std::int64_t last, const T* pixels,
                                      const T* gradients, T* sums) const {
  const TileProduct<T> product = tile_product<T>();
  const WeightTiles tiles = weight_tiles();
  const std::int64_t all = shape_.out_h() * input_grid_.width;
  const std::int64_t channels = round_up(shape_.k, tile_rows);
  Tile<T> tile;
  for (std::int64_t block = 0; block < all; block += block_pixels)
    for (std::int64_t index = first; index < last; ++index) {
      const std::int64_t c = index % tiles.inputs * tile_width<T>;
      const std::int64_t tap = index / tiles.inputs % tiles.taps;
      const std::int64_t k = index / tiles.inputs / tiles.taps * tile_rows;
      const T* from =
          pixels + c + (plane_of(tap) * input_grid_.plane() + shift_of(tap) + block) * shape_.in.c;
      product(std::min(block_pixels, all - block), gradients + block * channels + k, channels, from,
              pixel_offsets_.data(), tile);
      T* sum = sums + index * tile_rows * tile_width<T>;
      const T* added = &tile.values[0][0];
      for (std::int64_t i = 0; i < tile_rows * tile_width<T>; ++i) sum[i] += added[i];
    }
}

template <class T>
void Convolution<T>::store_weight_tiles(const T* sums, T* weight_gradient) const {
  const WeightTiles tiles = weight_tiles();
  for (std::int64_t k = 0; k < shape_.k; ++k)
    for (std::int64_t tap = 0; tap < tiles.taps; ++tap)
      for (std::int64_t c = 0; c < shape_.in.c; ++c) {
        const std::int64_t tile =
            (k / tile_rows * tiles.taps + tap) * tiles.inputs + c / tile_width<T>;
        weight_gradient[weights_(k, c, tap)] =
            sums[(tile * tile_rows + k % tile_rows) * tile_width<T> + c % tile_width<T>];
      }
}

template <class T>
void Convolution<T>::weight_gradient(const T* x, const T* y_gradient, T* weight_gradient,
                                     const Scratch<T>& scratch) const {
  const std::int64_t tiles = weight_tiles().count();
  T* sums = scratch.memory;
  T* pixels = sums + tiles * tile_rows * tile_width<T>;
  T* gradients = pixels + chunk() * pixel_grid_size();
  std::fill_n(sums, tiles * tile_rows * tile_width<T>, T{0});
  const std::int64_t shares = std::min<std::int64_t>(tiles, scratch.threads);
  for (std::int64_t n = 0; n < shape_.in.n; n += chunk()) {
    const std::int64_t images = std::min(chunk(), shape_.in.n - n);
    parallel_for(scratch.threads, images, [&](std::int64_t i, int) {
      fill_pixel_grid(x + (n + i) * in_.image, pixels + i * pixel_grid_size());
      fill_gradient_grid(y_gradient + (n + i) * out_.image, gradients + i * gradient_grid_size());
    });
    parallel_for(scratch.threads, shares, [&](std::int64_t share, int) {
      for (std::int64_t i = 0; i < images; ++i)
        add_weight_tiles(share * tiles / shares, (share + 1) * tiles / shares,
                         pixels + i * pixel_grid_size(), gradients + i * gradient_grid_size(),
                         sums);
    });
  }
  store_weight_tiles(sums, weight_gradient);
}

template class Convolution<float>;
template class Convolution<double>;

}  // namespace resnet::reference
