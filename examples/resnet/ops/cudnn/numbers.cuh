// SPDX-License-Identifier: Apache-2.0
#pragma once

// Numbers of every precision, read and written 16 bytes at a time where that can be, and computed
// with as floats. dispatch() picks a kernel's instance:
//
//   dispatch(context, wide, [&]<class T, int V, Format F> { kernel<T, V, F><<<...>>>(...); });

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "context.hpp"

namespace resnet::cudnn {

__device__ inline float to_float(float value) {
  return value;
}
__device__ inline float to_float(__half value) {
  return __half2float(value);
}
__device__ inline float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

template <class T>
__device__ T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

/// V neighbours, as floats.
template <int V>
struct Floats {
  float value[V];
  __device__ float& operator[](int i) { return value[i]; }
  __device__ float operator[](int i) const { return value[i]; }
};

template <class T, int V>
struct alignas(sizeof(T) * V) Pack {
  T value[V];
};

/// As it lies in memory, in 4 registers at most: to have many of them under way.
template <int V, class T>
__device__ Pack<T, V> load_pack(const T* memory) {
  return *reinterpret_cast<const Pack<T, V>*>(memory);
}

template <class T, int V>
__device__ Floats<V> floats_of(const Pack<T, V>& pack) {
  Floats<V> floats;
#pragma unroll
  for (int i = 0; i < V; ++i) floats[i] = to_float(pack.value[i]);
  return floats;
}

/// Two at a time, out of a register that has both: element by element, each would take one for as
/// long as its pack is under way.
template <int V>
__device__ Floats<V> floats_of(const Pack<__nv_bfloat16, V>& pack) requires(V % 2 == 0) {
  Floats<V> floats;
#pragma unroll
  for (int i = 0; i < V; i += 2) {
    std::uint32_t both;
    memcpy(&both, &pack.value[i], sizeof both);
    floats[i] = __uint_as_float(both << 16);
    floats[i + 1] = __uint_as_float(both & 0xffff0000u);
  }
  return floats;
}

template <int V, class T>
__device__ Floats<V> load(const T* memory) {
  return floats_of(load_pack<V>(memory));
}

template <int V, class T>
__device__ void store(T* memory, const Floats<V>& floats) {
  Pack<T, V> pack;
#pragma unroll
  for (int i = 0; i < V; ++i) pack.value[i] = from_float<T>(floats[i]);
  *reinterpret_cast<Pack<T, V>*>(memory) = pack;
}

/// Numbers in 16 bytes.
template <class T>
constexpr int widest = 16 / sizeof(T);
inline int widest_of(Precision precision) {
  return precision == Precision::fp16 || precision == Precision::bf16 ? 8 : 4;
}

/// Whether all of them can be read 16 bytes at a time. Null can.
inline bool aligned(std::initializer_list<const void*> pointers) {
  return std::all_of(pointers.begin(), pointers.end(), [](const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
  });
}

/// launch.operator()<T, V>().
template <class Launch>
void dispatch(Precision precision, bool wide, const Launch& launch) {
  const auto with = [&]<class T>(T) {
    if (wide)
      launch.template operator()<T, widest<T>>();
    else
      launch.template operator()<T, 1>();
  };
  switch (precision) {
    case Precision::fp16:
      return with(__half());
    case Precision::bf16:
      return with(__nv_bfloat16());
    default:
      return with(0.0f);
  }
}

/// launch.operator()<T, V, F>().
template <class Launch>
void dispatch(Precision precision, Format format, bool wide, const Launch& launch) {
  dispatch(precision, wide, [&]<class T, int V>() {
    if (format == Format::nhwc)
      launch.template operator()<T, V, Format::nhwc>();
    else
      launch.template operator()<T, V, Format::nchw>();
  });
}

constexpr unsigned block_threads = 256;

/// Blocks for that many threads in all, with a thread for each item.
inline unsigned blocks_for(std::int64_t items) {
  const std::int64_t blocks = (items + block_threads - 1) / block_threads;
  if (blocks > 0x7fffffff / block_threads)
    throw UnsupportedOperation("an operation on more than 2^31 numbers");
  return static_cast<unsigned>(std::max<std::int64_t>(blocks, 1));
}

/// This thread's among all of the grid.
__device__ inline std::uint32_t thread_index() {
  return blockIdx.x * block_threads + threadIdx.x;
}

}  // namespace resnet::cudnn
