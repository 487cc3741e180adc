// SPDX-License-Identifier: Apache-2.0
#pragma once

// The core of a convolution and of its data gradient. Both are, for images that lie in a grid (a
// copy with zeros around it, so that no border needs a test):
//
//   out[m][row][column] = sum over k of weights[k][m] * grid[offsets[k] + row * width + column]
//
// The pixels of a grid that follow each other are tile_width columns of a matrix product, across
// the ends of rows; what falls between the rows is computed and not stored.

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "tile.hpp"

namespace resnet::reference {

inline std::int64_t round_up(std::int64_t number, std::int64_t to) {
  return (number + to - 1) / to * to;
}

struct Correlation {
  std::int64_t outputs = 0;                                             // m
  std::vector<std::int64_t> offsets;                                    // of each k
  std::int64_t width = 0;                                               // of a row of the grid
  std::int64_t first_row = 0, rows = 0, first_column = 0, columns = 0;  // what is stored,
  std::int64_t out_offset = 0;                                          // where the first goes,
  std::int64_t out_channel = 0, out_row = 0, out_column = 0;            // and the steps from it

  std::int64_t depth() const { return static_cast<std::int64_t>(offsets.size()); }
  /// Elements of the weights, packed: blocks of tile_rows outputs, in each [k][output].
  std::int64_t packed_weights() const { return round_up(outputs, tile_rows) * depth(); }
  static std::int64_t packed_index(std::int64_t depth, std::int64_t k, std::int64_t m) {
    return (m / tile_rows * depth + k) * tile_rows + m % tile_rows;
  }
};

namespace detail {

/// Consecutive lanes of a tile that are stored at evenly spaced places.
struct Run {
  std::int64_t lane, count, out;
};

/// The stored parts of the tile that begins at `pixel`, counted from first_row's beginning.
template <class T>
int find_runs(const Correlation& work, std::int64_t pixel,
              std::array<Run, static_cast<std::size_t>(tile_width<T>)>& runs) {
  int count = 0;
  for (std::int64_t lane = 0; lane < tile_width<T>;) {
    const std::int64_t row = (pixel + lane) / work.width;
    const std::int64_t column = (pixel + lane) % work.width - work.first_column;
    if (row >= work.rows) break;
    const std::int64_t skipped = std::max<std::int64_t>(0, -column);
    const std::int64_t last = std::min(lane + work.columns - column, tile_width<T>);
    if (lane + skipped < last)
      runs[static_cast<std::size_t>(count++)] = {
          lane + skipped, last - lane - skipped,
          work.out_offset + row * work.out_row + (column + skipped) * work.out_column};
    lane += work.width - column - work.first_column;
  }
  return count;
}

template <class T>
void store(const Correlation& work, const Tile<T>& tile, std::int64_t m, const Run& run, T* out) {
  const std::int64_t rows = std::min(tile_rows, work.outputs - m);
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* from = &tile.values[row][run.lane];
    T* to = out + run.out + (m + row) * work.out_channel;
    for (std::int64_t i = 0; i < run.count; ++i) to[i * work.out_column] = from[i];
  }
}

}  // namespace detail

/// One image: `out` is its first element. The grid is readable for tile_width elements more.
template <class T>
void correlate(const Correlation& work, const T* weights, const T* grid, T* out) {
  const TileProduct<T> product = tile_product<T>();
  const std::int64_t depth = work.depth();
  std::array<detail::Run, static_cast<std::size_t>(tile_width<T>)> runs{};
  Tile<T> tile;
  for (std::int64_t pixel = 0; pixel < work.rows * work.width; pixel += tile_width<T>) {
    const int stored = detail::find_runs<T>(work, pixel, runs);
    if (stored == 0) continue;
    const T* from = grid + work.first_row * work.width + pixel;
    for (std::int64_t m = 0; m < work.outputs; m += tile_rows) {
      product(depth, weights + m * depth, tile_rows, from, work.offsets.data(), tile);
      for (int i = 0; i < stored; ++i)
        detail::store(work, tile, m, runs[static_cast<std::size_t>(i)], out);
    }
  }
}

}  // namespace resnet::reference
