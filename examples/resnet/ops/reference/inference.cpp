// SPDX-License-Identifier: Apache-2.0
#include "inference.hpp"

#include <algorithm>
#include <cmath>
#include <penstock/launch.hpp>
#include <stdexcept>
#include <utility>

#include "linear.hpp"
#include "parallel.hpp"
#include "pooling.hpp"
#include "rounding.hpp"

namespace resnet::reference {
namespace {

constexpr std::size_t alignment = 64;  // bytes, of each piece of scratch memory

std::size_t aligned(std::size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

template <class T>
std::size_t bytes_of(std::int64_t count) {
  return aligned(static_cast<std::size_t>(count) * sizeof(T));
}

/// Pieces of scratch memory, one behind the other.
class Pieces {
 public:
  explicit Pieces(std::byte* memory) : next_(memory) {}
  template <class T>
  T* take(std::int64_t count) {
    auto* piece = reinterpret_cast<T*>(next_);
    next_ += bytes_of<T>(count);
    return piece;
  }

 private:
  std::byte* next_;
};

/// `work` runs once, in stream order.
template <class Work>
void enqueue(cudaStream_t stream, Work work) {
  penstock::for_each(stream, 1, [work = std::move(work)](std::int64_t) { work(); });
}

Extents one_image(Extents extents) {
  extents.n = 1;
  return extents;
}

ConvolutionShape one_image(ConvolutionShape shape) {
  shape.in.n = 1;
  return shape;
}

/// What follows a convolution, for one element.
struct Finish {
  Precision precision;
  Fusion fusion;
  bool relu;

  float operator()(float sum, float scale, float bias, const float* residual) const {
    if (fusion != Fusion::full) sum = rounded(precision, sum);
    float value = scale * sum + bias;
    if (fusion == Fusion::none) value = rounded(precision, value);
    if (residual != nullptr) {
      value += *residual;
      if (fusion == Fusion::none) value = rounded(precision, value);
    }
    return relu && value < 0 ? 0 : value;
  }
};

/// Where an element goes, and comes from.
struct Stored {
  Precision precision;
  void* y;
  const void* residual;
  float residual_scale;

  void put(std::int64_t at, float value) const {
    if (precision == Precision::int8)
      static_cast<std::int8_t*>(y)[at] = quantised(value);
    else
      static_cast<float*>(y)[at] = rounded(precision, value);
  }
  float residual_at(std::int64_t at) const {
    return residual_scale * (precision == Precision::int8
                                 ? static_cast<float>(static_cast<const std::int8_t*>(residual)[at])
                                 : static_cast<const float*>(residual)[at]);
  }
};

/// `sums`: of image n.
template <class T>
void finish(const PreparedConvolution& plan, Fusion fusion, std::int64_t n, const T* sums,
            const ConvolutionOperands& operands, const Stored& stored) {
  const InferenceConvolution& what = plan.convolution;
  const ActivationLayout layout(one_image(what.shape.out()), plan.format);
  const Finish finish{what.precision, fusion, what.relu};
  const std::int64_t image = n * layout.image;
  for (std::int64_t k = 0; k < what.shape.k; ++k) {
    const float scale = operands.scale == nullptr ? 1 : operands.scale[k];
    for (std::int64_t i = 0; i < layout.pixels(); ++i) {
      const std::int64_t at = layout.row(0, k) + i * layout.pixel;
      float residual = 0;
      if (stored.residual != nullptr) residual = stored.residual_at(image + at);
      stored.put(image + at, finish(static_cast<float>(sums[at]), scale, operands.bias[k],
                                    stored.residual == nullptr ? nullptr : &residual));
    }
  }
}

void run_in_float(const PreparedConvolution& plan, Fusion fusion, int threads, const float* x,
                  const ConvolutionOperands& operands, const Stored& stored, std::byte* scratch) {
  const ConvolutionShape shape = one_image(plan.convolution.shape);
  parallel_for(threads, plan.convolution.shape.in.n, [&](std::int64_t n, int thread) {
    Pieces pieces(scratch + static_cast<std::size_t>(thread) * plan.thread_bytes());
    auto* sums = pieces.take<float>(shape.out().count());
    plan.in_float->forward(x + n * shape.in.count(), static_cast<const float*>(operands.weights),
                           sums, {pieces.take<float>(0), 1});
    finish(plan, fusion, n, sums, operands, stored);
  });
}

void run_in_integers(const PreparedConvolution& plan, Fusion fusion, int threads,
                     const std::int8_t* x, const ConvolutionOperands& operands,
                     const Stored& stored, std::byte* scratch) {
  const ConvolutionShape shape = one_image(plan.convolution.shape);
  auto* weights = Pieces(scratch).take<double>(shape.weights());
  std::copy_n(static_cast<const std::int8_t*>(operands.weights), shape.weights(), weights);
  scratch += plan.shared_bytes();
  parallel_for(threads, plan.convolution.shape.in.n, [&](std::int64_t n, int thread) {
    Pieces pieces(scratch + static_cast<std::size_t>(thread) * plan.thread_bytes());
    auto* sums = pieces.take<double>(shape.out().count());
    auto* image = pieces.take<double>(shape.in.count());
    std::copy_n(x + n * shape.in.count(), shape.in.count(), image);
    plan.in_integers->forward(image, weights, sums, {pieces.take<double>(0), 1});
    finish(plan, fusion, n, sums, operands, stored);
  });
}

}  // namespace

// ---- Plans --------------------------------------------------------------------------------------

PreparedConvolution::PreparedConvolution(const InferenceConvolution& key, Format its_format)
    : convolution(key), format(its_format) {
  if (key.precision == Precision::int8)
    in_integers.emplace(one_image(key.shape), format);
  else
    in_float.emplace(one_image(key.shape), format);
}

std::size_t PreparedConvolution::shared_bytes() const {
  return in_integers ? bytes_of<double>(convolution.shape.weights()) : 0;
}

std::size_t PreparedConvolution::thread_bytes() const {
  const ConvolutionShape shape = one_image(convolution.shape);
  if (in_float)
    return bytes_of<float>(shape.out().count()) +
           bytes_of<float>(static_cast<std::int64_t>(in_float->scratch(1)));
  return bytes_of<double>(shape.out().count()) + bytes_of<double>(shape.in.count()) +
         bytes_of<double>(static_cast<std::int64_t>(in_integers->scratch(1)));
}

ReferencePlans::ReferencePlans(const Settings& settings)
    : settings_(settings), threads_(default_threads()) {
  if (settings.precision == Precision::int8 && settings.format != Format::nhwc)
    throw std::invalid_argument("int8 is there in nhwc alone");
}

void ReferencePlans::from_float(Precision precision, const float* in, void* out, std::int64_t count,
                                cudaStream_t stream) const {
  enqueue(stream, [=] {
    std::transform(in, in + count, static_cast<float*>(out),
                   [=](float value) { return rounded(precision, value); });
  });
}

void ReferencePlans::prepare(const InferenceConvolution& convolution) {
  for (const PreparedConvolution& one : prepared_)
    if (one.convolution == convolution) return;
  if (in_use_) throw std::logic_error("a convolution is prepared while operations are there");
  const PreparedConvolution& added = prepared_.emplace_back(convolution, settings_.format);
  scratch_bytes_ =
      std::max(scratch_bytes_,
               added.shared_bytes() + static_cast<std::size_t>(threads_) * added.thread_bytes());
}

const PreparedConvolution& ReferencePlans::find(const InferenceConvolution& convolution) const {
  for (const PreparedConvolution& one : prepared_)
    if (one.convolution == convolution) return one;
  throw std::logic_error("a convolution that was not prepared");
}

std::string ReferencePlans::engine(const InferenceConvolution& convolution) const {
  return find(convolution).in_integers ? "reference, in integers" : "reference, in float";
}

std::unique_ptr<InferenceOperations> ReferencePlans::make_operations() {
  in_use_ = true;
  return std::make_unique<ReferenceInference>(*this);
}

// ---- Operations ---------------------------------------------------------------------------------

/// A piece begins on a multiple of `alignment` from the beginning, wherever that is.
ReferenceInference::ReferenceInference(const ReferencePlans& plans)
    : plans_(plans), scratch_(plans.scratch_bytes()) {}

ReferenceInference::~ReferenceInference() {
  cudaDeviceSynchronize();
}

namespace {

template <class T>
void convert_images(const ImageInput& input, Precision precision, Format format, const T* images,
                    float* x, int threads) {
  const ActivationLayout from(input.images, input.format), to(input.images, format);
  parallel_for(threads, input.images.n * input.images.c, [&](std::int64_t plane, int) {
    const std::int64_t n = plane / input.images.c, c = plane % input.images.c;
    const auto channel = static_cast<std::size_t>(c);
    for (std::int64_t i = 0; i < from.pixels(); ++i) {
      const auto pixel = static_cast<float>(images[from.row(n, c) + i * from.pixel]);
      x[to.row(n, c) + i * to.pixel] =
          rounded(precision, pixel * input.factor[channel] + input.offset[channel]);
    }
  });
}

template <class T>
void enqueue_conversion(const ReferencePlans& plans, const ImageInput& input, const T* images,
                        void* x, cudaStream_t stream) {
  const Settings& settings = plans.settings();
  enqueue(stream, [=, precision = floating(settings.precision), format = settings.format,
                   threads = plans.threads()] {
    convert_images(input, precision, format, images, static_cast<float*>(x), threads);
  });
}

bool is_nan(float value) {
  return std::isnan(value);
}
bool is_nan(std::int8_t) {
  return false;
}

template <class T>
void pool(const PoolShape& shape, Format format, const T* x, T* y, int threads) {
  const std::int64_t step = ActivationLayout(shape.in, format).pixel;
  for_each_window(shape, format, threads, [&](auto row, auto to, auto h, auto w) {
    bool any = false;
    for_each_in_window(shape, h, w, [&](std::int64_t, std::int64_t index) {
      const T value = x[row + index * step];
      if (any && !(value > y[to]) && !is_nan(value)) return;  // NaN wins, as in training
      any = true;
      y[to] = value;
    });
  });
}

}  // namespace

void ReferenceInference::convert(const ImageInput& input, const float* images, void* x,
                                 cudaStream_t stream) {
  enqueue_conversion(plans_, input, images, x, stream);
}

void ReferenceInference::convert(const ImageInput& input, const std::uint8_t* images, void* x,
                                 cudaStream_t stream) {
  enqueue_conversion(plans_, input, images, x, stream);
}

void ReferenceInference::convolution(const InferenceConvolution& what, const void* x,
                                     const ConvolutionOperands& operands, const void* residual,
                                     void* y, cudaStream_t stream) {
  const PreparedConvolution& plan = plans_.find(what);
  enqueue(stream, [=, this, &plan, fusion = plans_.settings().fusion] {
    const Stored stored{what.result, y, residual,
                        operands.residual_scale == nullptr ? 1 : *operands.residual_scale};
    if (plan.in_integers)
      run_in_integers(plan, fusion, plans_.threads(), static_cast<const std::int8_t*>(x), operands,
                      stored, scratch_.data());
    else
      run_in_float(plan, fusion, plans_.threads(), static_cast<const float*>(x), operands, stored,
                   scratch_.data());
  });
}

void ReferenceInference::max_pool(const PoolShape& shape, Precision precision, const void* x,
                                  void* y, cudaStream_t stream) {
  enqueue(stream, [=, format = plans_.settings().format, threads = plans_.threads()] {
    if (precision == Precision::int8)
      pool(shape, format, static_cast<const std::int8_t*>(x), static_cast<std::int8_t*>(y),
           threads);
    else
      pool(shape, format, static_cast<const float*>(x), static_cast<float*>(y), threads);
  });
}

void ReferenceInference::average_pool(const Extents& extents, Precision precision, const void* x,
                                      float scale, void* y, cudaStream_t stream) {
  const ActivationLayout layout(extents, plans_.settings().format);
  enqueue(stream, [=, threads = plans_.threads()] {
    parallel_for(threads, extents.n * extents.c, [&](std::int64_t channel, int) {
      const std::int64_t row = layout.row(channel / extents.c, channel % extents.c);
      float sum = 0;
      for (std::int64_t i = 0; i < layout.pixels(); ++i) {
        const std::int64_t at = row + i * layout.pixel;
        sum += precision == Precision::int8
                   ? static_cast<float>(static_cast<const std::int8_t*>(x)[at])
                   : static_cast<const float*>(x)[at];
      }
      static_cast<float*>(y)[channel] =
          rounded(floating(precision), scale * (sum / static_cast<float>(layout.pixels())));
    });
  });
}

void ReferenceInference::linear(std::int64_t n, std::int64_t features, std::int64_t classes,
                                const void* x, const void* weights, const float* bias,
                                float* logits, cudaStream_t stream) {
  enqueue(stream, [=, threads = plans_.threads()] {
    reference::linear({n, features, classes}, static_cast<const float*>(x),
                      static_cast<const float*>(weights), bias, logits, threads);
  });
}

}  // namespace resnet::reference

namespace resnet {

std::unique_ptr<InferencePlans> make_inference_plans(const Settings& settings) {
  return std::make_unique<reference::ReferencePlans>(settings);
}

}  // namespace resnet
