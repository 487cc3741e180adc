// SPDX-License-Identifier: Apache-2.0
#include "tile.hpp"

namespace resnet::reference {
namespace {

/// `Bytes` wide vectors, which the compiler turns into one register each where there are such.
template <class T, int Bytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(Bytes)));
  typedef T Unaligned __attribute__((vector_size(Bytes), aligned(alignof(T)), may_alias));
};

/// `Rows` is so small that the sums fit into the registers of a kind of CPU.
template <class T, int Bytes, int Rows>
[[gnu::always_inline]] inline void product(std::int64_t depth, const T* a, std::int64_t a_stride,
                                           const T* b, const std::int64_t* offsets, Tile<T>& out) {
  using Vector = typename VectorOf<T, Bytes>::Type;
  using Unaligned = typename VectorOf<T, Bytes>::Unaligned;
  constexpr int parts = 64 / Bytes;
  constexpr std::int64_t lanes = Bytes / static_cast<int>(sizeof(T));
  // Long sums are cut into pieces: what is added stays comparable in size to what it is added to.
  constexpr std::int64_t piece = 128;
  for (std::int64_t row = 0; row < tile_rows; row += Rows)
    for (std::int64_t first = 0; first == 0 || first < depth; first += piece) {
      const std::int64_t last = depth - first < piece ? depth : first + piece;
      Vector sums[Rows][parts] = {};
      for (std::int64_t k = first; k < last; ++k) {
        const T* left = a + k * a_stride + row;
        const T* right = b + offsets[k];
        for (int part = 0; part < parts; ++part) {
          const Vector vector = *reinterpret_cast<const Unaligned*>(right + part * lanes);
          for (int i = 0; i < Rows; ++i) sums[i][part] += left[i] * vector;
        }
      }
      for (int i = 0; i < Rows; ++i)
        for (int part = 0; part < parts; ++part) {
          auto* to = reinterpret_cast<Unaligned*>(&out.values[row + i][part * lanes]);
          *to = first == 0 ? sums[i][part] : *to + sums[i][part];
        }
    }
}

template <class T>
void portable(std::int64_t depth, const T* a, std::int64_t a_stride, const T* b,
              const std::int64_t* offsets, Tile<T>& out) {
  product<T, 16, 2>(depth, a, a_stride, b, offsets, out);
}

#ifdef __x86_64__
template <class T>
[[gnu::target("avx2,fma")]] void avx2(std::int64_t depth, const T* a, std::int64_t a_stride,
                                      const T* b, const std::int64_t* offsets, Tile<T>& out) {
  product<T, 32, 4>(depth, a, a_stride, b, offsets, out);
}

template <class T>
[[gnu::target("avx512f,fma")]] void avx512(std::int64_t depth, const T* a, std::int64_t a_stride,
                                           const T* b, const std::int64_t* offsets, Tile<T>& out) {
  product<T, 64, 8>(depth, a, a_stride, b, offsets, out);
}
#endif

}  // namespace

template <class T>
TileProduct<T> tile_product() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return &avx512<T>;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &avx2<T>;
#endif
  return &portable<T>;
}

template TileProduct<float> tile_product();
template TileProduct<double> tile_product();

}  // namespace resnet::reference
