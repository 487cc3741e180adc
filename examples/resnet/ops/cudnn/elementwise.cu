// SPDX-License-Identifier: Apache-2.0

#include "elementwise.hpp"

#include "numbers.cuh"

namespace resnet::cudnn {

namespace {

/// out[i] = function(a[i], b[i]); V numbers a thread. Without b, function is called with 0 for it.
template <int V, class In, class Out, class Function>
__global__ void map(const In* a, const In* b, Out* out, std::uint32_t packs, Function function) {
  const std::uint32_t i = thread_index();
  if (i >= packs) return;
  const std::size_t at = std::size_t{i} * V;
  Floats<V> values = load<V>(a + at);
  Floats<V> others{};
  if (b != nullptr) others = load<V>(b + at);
#pragma unroll
  for (int j = 0; j < V; ++j) values[j] = function(values[j], others[j]);
  store<V>(out + at, values);
}

struct Same {
  __device__ float operator()(float a, float) const { return a; }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Relu {
  __device__ float operator()(float a, float) const { return a < 0 ? 0 : a; }
};
struct ReluGradient {
  __device__ float operator()(float gradient, float y) const { return y <= 0 ? 0 : gradient; }
};

template <class Function>
void launch_map(Precision precision, const void* a, const void* b, void* out, std::int64_t count,
                cudaStream_t stream) {
  const bool wide = count % widest_of(precision) == 0 && aligned({a, b, out});
  dispatch(precision, wide, [&]<class T, int V>() {
    map<V><<<blocks_for(count / V), block_threads, 0, stream>>>(
        static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(out),
        static_cast<std::uint32_t>(count / V), Function());
  });
  check_launch("map");
}

/// Between precisions: 4 numbers a thread, where that can be.
template <class In, class Out>
void convert(const void* in, void* out, std::int64_t count, cudaStream_t stream) {
  const auto run = [&]<int V>() {
    map<V><<<blocks_for(count / V), block_threads, 0, stream>>>(
        static_cast<const In*>(in), static_cast<const In*>(nullptr), static_cast<Out*>(out),
        static_cast<std::uint32_t>(count / V), Same());
  };
  if (count % 4 == 0 && aligned({in, out}))
    run.template operator()<4>();
  else
    run.template operator()<1>();
  check_launch("map");
}

/// A number's bits, mixed.
template <class T>
__global__ void noise(T* out, std::uint32_t count) {
  const std::uint32_t i = thread_index();
  if (i >= count) return;
  std::uint32_t bits = i * 2654435761u;
  bits = (bits ^ (bits >> 15)) * 2246822519u;
  bits ^= bits >> 13;
  out[i] = from_float<T>(static_cast<float>(bits) * 0x1p-31f - 1);
}

}  // namespace

void from_float(Precision precision, const float* in, void* out, std::int64_t count,
                cudaStream_t stream) {
  if (count == 0) return;
  dispatch(precision, false, [&]<class T, int V>() { convert<float, T>(in, out, count, stream); });
}

void to_float(Precision precision, const void* in, float* out, std::int64_t count,
              cudaStream_t stream) {
  if (count == 0) return;
  dispatch(precision, false, [&]<class T, int V>() { convert<T, float>(in, out, count, stream); });
}

void add(Precision precision, const void* a, const void* b, void* out, std::int64_t count,
         cudaStream_t stream) {
  launch_map<Sum>(precision, a, b, out, count, stream);
}

void relu(Precision precision, const void* in, void* out, std::int64_t count, cudaStream_t stream) {
  launch_map<Relu>(precision, in, nullptr, out, count, stream);
}

void relu_gradient(Precision precision, const void* y, const void* gradient, void* out,
                   std::int64_t count, cudaStream_t stream) {
  launch_map<ReluGradient>(precision, gradient, y, out, count, stream);
}

void fill_noise(Precision precision, void* out, std::int64_t count, cudaStream_t stream) {
  dispatch(precision, false, [&]<class T, int V>() {
    noise<<<blocks_for(count), block_threads, 0, stream>>>(static_cast<T*>(out),
                                                           static_cast<std::uint32_t>(count));
  });
  check_launch("noise");
}

}  // namespace resnet::cudnn
