// SPDX-License-Identifier: Apache-2.0
#pragma once

// The inner loop of all three convolutions: a small matrix product whose result stays in registers.
//
//   out[i][j] = sum over k of a[k * a_stride + i] * b[offsets[k] + j],   in a fixed order
//
// for tile_rows rows i and tile_width columns j. All of them are computed: memory behind the last
// row and column of a problem must be there, and finite where it meets other numbers.

#include <cstdint>

namespace resnet::reference {

inline constexpr std::int64_t tile_rows = 8;
template <class T>
inline constexpr std::int64_t tile_width = 64 / static_cast<std::int64_t>(sizeof(T));

template <class T>
struct Tile {
  alignas(64) T values[tile_rows][tile_width<T>];
};

template <class T>
using TileProduct = void (*)(std::int64_t depth, const T* a, std::int64_t a_stride, const T* b,
                             const std::int64_t* offsets, Tile<T>& out);

/// The fastest for this CPU. Those with fused multiply-add give the same bits as each other.
template <class T>
TileProduct<T> tile_product();

}  // namespace resnet::reference
