// SPDX-License-Identifier: Apache-2.0

// What ResNet-50's batch norm costs on a GPU: each shape of its layers in NHWC, forward and
// backward, the stem's with its pool; the sum over a step; and how far the results are from double.
//
//   batch_norm_benchmark [--batch N] [--bf16] [--name NAME]
//
// One line for each shape and pass: NAME, precision, layer, pass, times in a step, microseconds of
// one, GB/s by the fewest bytes that it has to move, and the largest root mean square of a result's
// error, relative to that of the result. Passes of a shape are timed in one CUDA graph, over as
// many sets of tensors as make the L2 cache useless.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../examples/resnet/ops/cudnn/batch_norm.hpp"
#include "../examples/resnet/ops/cudnn/numbers.cuh"
#include "batch_norm_truth.cuh"

namespace {

using namespace resnet;
using namespace resnet::cudnn;

#define CHECK_CUDA(call) penstock::detail::check((call), #call)

// ---- Layers -------------------------------------------------------------------------------------

enum class Kind { stem, relu, residual, shortcut };

struct Layer {
  std::string name;
  Extents extents;
  Kind kind;
  int times;
};

std::vector<Layer> resnet50(std::int64_t n) {
  std::vector<Layer> layers{{"stem", {n, 64, 112, 112}, Kind::stem, 1}};
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t width = 64 << stage, size = 56 >> stage;
    const auto name = [&](const char* part) { return std::to_string(stage + 1) + part; };
    const int small = stage == 0 ? 2 * blocks[0] : 2 * blocks[stage] - 1;
    if (stage > 0)
      layers.push_back({name(".first"), {n, width, 2 * size, 2 * size}, Kind::relu, 1});
    layers.push_back({name(".relu"), {n, width, size, size}, Kind::relu, small});
    layers.push_back({name(".last"), {n, 4 * width, size, size}, Kind::residual, blocks[stage]});
    layers.push_back({name(".shortcut"), {n, 4 * width, size, size}, Kind::shortcut, 1});
  }
  return layers;
}

// ---- Memory -------------------------------------------------------------------------------------

template <class T>
__device__ T random_value(std::uint64_t i, std::uint32_t seed) {
  std::uint64_t bits = (i + 1) * 0x9e3779b97f4a7c15ull + seed * 0xd1342543de82ef95ull;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ull;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebull;
  return from_float<T>(static_cast<float>(bits >> 40) * 0x1p-23f - 1);
}

template <class T>
__global__ void randomize(T* out, std::size_t count, std::uint32_t seed) {
  for (std::size_t i = thread_index(); i < count; i += std::size_t{gridDim.x} * block_threads)
    out[i] = random_value<T>(i, seed);
}

template <class T>
class Array {
 public:
  explicit Array(std::size_t count, std::uint32_t seed = 0) : count_(count) {
    void* memory = nullptr;
    CHECK_CUDA(cudaMalloc(&memory, count * sizeof(T)));
    data_.reset(memory);
    CHECK_CUDA(cudaMemset(memory, 0xff, count * sizeof(T)));
    if constexpr (!std::is_same_v<T, std::uint8_t> && !std::is_same_v<T, double>)
      if (seed != 0) randomize<<<1024, block_threads>>>(data(), count, seed);
    check_launch("randomize");
  }
  T* data() const { return static_cast<T*>(data_.get()); }
  std::size_t size() const { return count_; }
  void poison() const { CHECK_CUDA(cudaMemset(data(), 0xff, count_ * sizeof(T))); }

 private:
  struct Free {
    void operator()(void* memory) const { cudaFree(memory); }
  };
  std::size_t count_;
  std::unique_ptr<void, Free> data_;
};

template <class T>
struct Tensors {
  Tensors(const Layer& layer, std::uint32_t seed)
      : x(count(layer), seed),
        residual(layer.kind == Kind::residual ? count(layer) : 1, seed + 1),
        y(count(layer)),
        gradient(small(layer), seed + 2),
        more(layer.kind == Kind::residual || layer.kind == Kind::stem ? small(layer) : 1, seed + 3),
        x_gradient(count(layer)),
        residual_gradient(layer.kind == Kind::residual ? count(layer) : 1),
        pooled(layer.kind == Kind::stem ? small(layer) : 1),
        chosen(layer.kind == Kind::stem ? small(layer) : 1),
        bits(count(layer) / 4) {}
  static std::size_t count(const Layer& layer) {
    return static_cast<std::size_t>(layer.extents.count());
  }
  static std::size_t small(const Layer& layer) {
    return layer.kind == Kind::stem
               ? static_cast<std::size_t>(PoolShape{layer.extents}.out().count())
               : count(layer);
  }
  Array<T> x, residual, y, gradient, more, x_gradient, residual_gradient, pooled;
  Array<std::uint8_t> chosen, bits;
};

struct Channels {
  explicit Channels(std::int64_t c)
      : gamma(n(c), 11),
        beta(n(c), 12),
        running_mean(n(c), 13),
        running_variance(n(c), 14),
        mean(n(c)),
        inverse(n(c)),
        gamma_gradient(n(c)),
        beta_gradient(n(c)) {}
  static std::size_t n(std::int64_t c) { return static_cast<std::size_t>(c); }
  BatchNorm norm() const {
    BatchNorm norm;
    norm.gamma = gamma.data(), norm.beta = beta.data();
    norm.running_mean = running_mean.data(), norm.running_variance = running_variance.data();
    norm.mean = mean.data(), norm.inverse_deviation = inverse.data();
    norm.gamma_gradient = gamma_gradient.data(), norm.beta_gradient = beta_gradient.data();
    return norm;
  }
  Array<float> gamma, beta, running_mean, running_variance, mean, inverse, gamma_gradient,
      beta_gradient;
};

template <class T, class U>
double error(const T* values, const U* truth, std::size_t count) {
  const Array<double> sums(2);
  CHECK_CUDA(cudaMemset(sums.data(), 0, 2 * sizeof(double)));
  differences<<<512, block_threads>>>(values, truth, count, sums.data());
  double read[2];
  CHECK_CUDA(cudaMemcpy(read, sums.data(), sizeof read, cudaMemcpyDefault));
  return std::sqrt(read[0] / read[1]);
}

// ---- The passes ---------------------------------------------------------------------------------

struct Pass {
  std::string name;
  double tensors;  ///< the fewest reads and writes, in tensors of x's size
};

template <class T>
class Bench {
 public:
  Bench(const Layer& layer, const Context& context)
      : layer_(layer), context_(context), channels_(layer.extents.c) {
    const std::size_t bytes = Tensors<T>::count(layer) * sizeof(T);
    const std::size_t wanted = std::max<std::size_t>(1, (std::size_t{200} << 20) / bytes);
    for (std::size_t i = 0; i < wanted; ++i)
      sets_.push_back(std::make_unique<Tensors<T>>(layer, static_cast<std::uint32_t>(100 * i + 1)));
    repetitions_ = static_cast<int>(
        std::max<std::size_t>(sets_.size(), std::clamp<std::size_t>((1200u << 20) / bytes, 3, 40)));
    batch_norm_statistics(context_, layer.extents, sets_[0]->x.data(), norm(*sets_[0]), nullptr);
  }

  std::vector<Pass> passes() const {
    const double bit = 1.0 / 8 / sizeof(T), pooled = 0.25, choice = 0.25 / sizeof(T);
    switch (layer_.kind) {
      case Kind::stem:
        return {{"statistics", 1},
                {"forward", 1 + pooled + choice},
                {"backward", 2 * (1 + choice + 2 * pooled) + 1}};
      case Kind::relu:
        return {{"statistics", 1}, {"forward", 2}, {"backward", 5}, {"second", 3}};
      case Kind::residual:
        return {{"statistics", 1}, {"forward", 3 + bit}, {"backward", 7 + bit}};
      case Kind::shortcut:
        return {{"statistics", 1}, {"forward", 2}, {"backward", 5}};
    }
    return {};
  }

  void run(const std::string& pass, const Tensors<T>& on, cudaStream_t stream) {
    const Extents& extents = layer_.extents;
    const BatchNorm with = norm(on);
    const bool residual = layer_.kind == Kind::residual, relu = layer_.kind != Kind::shortcut;
    if (pass == "statistics")
      batch_norm_statistics(context_, extents, on.x.data(), with, stream);
    else if (pass == "second")
      batch_norm_gradient_apply(context_, extents, on.x.data(), on.gradient.data(), with,
                                on.x_gradient.data(), stream);
    else if (layer_.kind == Kind::stem)
      pass == "forward" ? stem_forward(on, stream) : stem_backward(on, stream);
    else if (pass == "forward")
      batch_norm_apply(context_, extents, on.x.data(), with,
                       residual ? on.residual.data() : nullptr, nullptr, relu, on.y.data(), stream);
    else
      batch_norm_gradient(
          context_, extents,
          {on.x.data(), on.y.data(), on.gradient.data(), residual ? on.more.data() : nullptr,
           on.x_gradient.data(), residual ? on.residual_gradient.data() : nullptr},
          with, relu, stream);
  }

  /// Microseconds of one.
  double time(const std::string& pass) {
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cudaEvent_t start = nullptr, end = nullptr;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreate(&start));
    CHECK_CUDA(cudaEventCreate(&end));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < repetitions_; ++i)
      run(pass, *sets_[static_cast<std::size_t>(i) % sets_.size()], stream);
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    std::vector<float> times;
    for (int i = 0; i < 6; ++i) {
      float milliseconds = 0;
      CHECK_CUDA(cudaEventRecord(start, stream));
      CHECK_CUDA(cudaGraphLaunch(executable, stream));
      CHECK_CUDA(cudaEventRecord(end, stream));
      CHECK_CUDA(cudaEventSynchronize(end));
      CHECK_CUDA(cudaEventElapsedTime(&milliseconds, start, end));
      if (i > 0) times.push_back(milliseconds);  // The first loads the graph.
    }
    std::sort(times.begin(), times.end());
    cudaGraphExecDestroy(executable), cudaGraphDestroy(graph);
    cudaEventDestroy(start), cudaEventDestroy(end), cudaStreamDestroy(stream);
    return static_cast<double>(times[times.size() / 2]) * 1000 / repetitions_;
  }

  /// The largest error of each pass's results.
  std::map<std::string, double> errors() {
    const Tensors<T>& on = *sets_[0];
    const std::size_t count = Tensors<T>::count(layer_), small = Tensors<T>::small(layer_);
    const auto channels = static_cast<std::size_t>(layer_.extents.c);
    const std::size_t rows = count / channels;
    const bool residual = layer_.kind == Kind::residual, relu = layer_.kind != Kind::shortcut;
    Array<double> mean(channels), inverse(channels), beta(channels), gamma(channels);
    Array<float> y(small), arriving(count), x_gradient(count);
    const auto blocks = static_cast<unsigned>(channels);
    true_moments<<<blocks, block_threads>>>(on.x.data(), rows, channels, 1e-5, mean.data(),
                                            inverse.data());
    const Truth truth{mean.data(), inverse.data(), channels_.gamma.data(), channels_.beta.data()};
    if (layer_.kind == Kind::stem)
      true_pool<<<2048, block_threads>>>(on.x.data(), on.gradient.data(), on.more.data(),
                                         layer_.extents, PoolShape{layer_.extents}.out(), truth,
                                         y.data(), arriving.data());
    else
      true_elements<<<2048, block_threads>>>(on.x.data(), residual ? on.residual.data() : nullptr,
                                             on.gradient.data(),
                                             residual ? on.more.data() : nullptr, relu, count,
                                             channels, truth, y.data(), arriving.data());
    true_sums<<<blocks, block_threads>>>(on.x.data(), arriving.data(), rows, channels, truth,
                                         beta.data(), gamma.data());
    true_gradient<<<2048, block_threads>>>(on.x.data(), arriving.data(), count, channels, truth,
                                           beta.data(), gamma.data(), x_gradient.data());
    check_launch("truth");

    for (const char* pass : {"statistics", "forward", "backward"}) run(pass, on, nullptr);
    CHECK_CUDA(cudaDeviceSynchronize());
    std::map<std::string, double> errors;
    errors["statistics"] = error(channels_.inverse.data(), inverse.data(), channels);
    const T* result = layer_.kind == Kind::stem ? on.pooled.data() : on.y.data();
    errors["forward"] = error(result, y.data(), small);
    double& backward = errors["backward"];
    backward = error(on.x_gradient.data(), x_gradient.data(), count);
    if (residual)
      backward = std::max(backward, error(on.residual_gradient.data(), arriving.data(), count));
    backward = std::max(backward, error(channels_.beta_gradient.data(), beta.data(), channels));
    backward = std::max(backward, error(channels_.gamma_gradient.data(), gamma.data(), channels));
    return errors;
  }

 private:
  BatchNorm norm(const Tensors<T>& on) const {
    BatchNorm norm = channels_.norm();
    norm.relu_bits = on.bits.data();
    return norm;
  }
  void stem_forward(const Tensors<T>& on, cudaStream_t stream) {
    const PoolShape pool{layer_.extents};
    batch_norm_max_pool(context_, pool, on.x.data(), norm(on), on.pooled.data(), on.chosen.data(),
                        stream);
  }
  void stem_backward(const Tensors<T>& on, cudaStream_t stream) {
    const PoolShape pool{layer_.extents};
    batch_norm_max_pool_gradient(context_, pool, on.x.data(), on.chosen.data(), on.gradient.data(),
                                 on.more.data(), norm(on), on.x_gradient.data(), stream);
  }

  const Layer& layer_;
  const Context& context_;
  Channels channels_;
  std::vector<std::unique_ptr<Tensors<T>>> sets_;
  int repetitions_ = 1;
};

template <class T>
void measure(const std::string& name, std::int64_t batch, const char* precision,
             const Context& context) {
  std::map<std::string, double> sums;
  for (const Layer& layer : resnet50(batch)) {
    Bench<T> bench(layer, context);
    const std::map<std::string, double> errors = bench.errors();
    const double bytes = static_cast<double>(layer.extents.count()) * sizeof(T);
    for (const Pass& pass : bench.passes()) {
      const double microseconds = bench.time(pass.name);
      sums[(layer.kind == Kind::relu ? "relu " : "") + pass.name] += layer.times * microseconds;
      const auto found = errors.find(pass.name);
      std::printf("%s,%s,%s,%s,%d,%.2f,%.0f,%.2e\n", name.c_str(), precision, layer.name.c_str(),
                  pass.name.c_str(), layer.times, microseconds,
                  pass.tensors * bytes / microseconds / 1000,
                  found == errors.end() ? 0.0 : found->second);
    }
  }
  for (const auto& [pass, sum] : sums)
    std::printf("%s,%s,step,%s,1,%.2f,,\n", name.c_str(), precision, pass.c_str(), sum);
  std::fflush(stdout);
}

void copy_rate(const std::string& name) {
  const std::size_t bytes = std::size_t{1} << 30;
  const Array<float> from(bytes / 4, 1), to(bytes / 4);
  cudaEvent_t start = nullptr, end = nullptr;
  CHECK_CUDA(cudaEventCreate(&start));
  CHECK_CUDA(cudaEventCreate(&end));
  float milliseconds = 0;
  for (int i = 0; i < 3; ++i) {
    CHECK_CUDA(cudaEventRecord(start));
    for (int j = 0; j < 5; ++j)
      CHECK_CUDA(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice));
    CHECK_CUDA(cudaEventRecord(end));
    CHECK_CUDA(cudaEventSynchronize(end));
    CHECK_CUDA(cudaEventElapsedTime(&milliseconds, start, end));
  }
  std::printf("%s,bytes,copy,copy,1,%.2f,%.0f,\n", name.c_str(),
              static_cast<double>(milliseconds) * 200,
              2 * static_cast<double>(bytes) * 5 / static_cast<double>(milliseconds) / 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  std::string name = "batch_norm";
  std::int64_t batch = 256;
  bool bf16 = false;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--bf16") {
      bf16 = true;
    } else if (option == "--batch" && i + 1 < argc) {
      batch = std::atoll(argv[++i]);
    } else if (option == "--name" && i + 1 < argc) {
      name = argv[++i];
    } else {
      std::fprintf(stderr, "usage: batch_norm_benchmark [--batch N] [--bf16] [--name NAME]\n");
      return 2;
    }
  }
  int multiprocessors = 0;
  CHECK_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  const Context context{bf16 ? Precision::bf16 : Precision::fp16,
                        Format::nhwc,
                        Fusion::elementwise,
                        multiprocessors,
                        {}};
  copy_rate(name);
  if (bf16)
    measure<__nv_bfloat16>(name, batch, "bf16", context);
  else
    measure<__half>(name, batch, "fp16", context);
  return 0;
}
