// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <stdexcept>
#include <utility>

#include "convolutions.hpp"
#include "elementwise.hpp"
#include "inference.hpp"
#include "inference_kernels.hpp"
#include "stem.hpp"
#include "tuning.hpp"

namespace resnet::cudnn {
namespace {

const char* name(Way way) {
  switch (way) {
    case Way::fused:
      return "fused";
    case Way::narrow_bias:
      return "fused, narrow bias";
    case Way::separate:
      return "separate";
  }
  return "";
}

/// What a convolution's saved plan is found by.
std::string key_of(const InferenceConvolution& what, const Settings& settings) {
  std::string key = graph_of(what, settings, Way::fused).text();
  if (what.result != what.precision) key += ", to int8";
  if (settings.fusion != Fusion::full) key += ", not fused";
  return key;
}

bool tensor_cores(Precision precision) {
  return precision != Precision::fp32;
}

/// The convolution leaves sums that are exact or wrong. Some engines of cuDNN 9.14 that are offered
/// for int8 with sums in int32 leave other numbers, on an H200 all but one: each is put to the
/// test.
bool sums_tell(const InferenceConvolution& what, Way way) {
  return what.precision == Precision::int8 && way == Way::separate;
}

}  // namespace

// ---- Trying a plan ------------------------------------------------------------------------------

/// Operands for one convolution. Their numbers are noise: zeros would make a kernel seem faster
/// than it is.
class CudnnPlans::Trial {
 public:
  Trial(const InferenceConvolution& what, const Settings& settings, cudnnHandle_t handle,
        cudaStream_t stream)
      : what_(what), settings_(settings), handle_(handle), stream_(stream) {
    operands_.weights = weights_.get();
    operands_.bias = static_cast<const float*>(per_channel_.get());
    operands_.narrow_bias = per_channel_.get();
    if (!what.quantised()) return;
    operands_.scale = operands_.bias;
    operands_.residual_scale = operands_.bias;
  }

  /// In milliseconds. Infinite when cuDNN refuses to run it, or its sums are wrong. Blocks.
  float time(const Plan& plan, Way way) {
    const float milliseconds = time_runs(stream_, [&] { run(plan, way); });
    const bool right = std::isinf(milliseconds) || !sums_tell(what_, way) || sums_are_right(plan);
    return right ? milliseconds : std::numeric_limits<float>::infinity();
  }

 private:
  /// Four bytes an element, whatever is in them.
  Memory noise(std::int64_t count) const {
    Memory memory = allocate(static_cast<std::size_t>(count) * 4);
    fill_noise(what_.precision, memory.get(), count, stream_);
    return memory;
  }

  /// Of a plan that was run before.
  bool sums_are_right(const Plan& plan) const {
    const auto check = [](cudaError_t status, const char* call) {
      penstock::detail::check(status, call);
    };
    const Memory wrong = allocate(sizeof(int));
    int count = 0;
    plan.run(handle_, {x_.get(), weights_.get(), sums_.get()}, workspace_.get());
    check(cudaMemsetAsync(wrong.get(), 0, sizeof(int), stream_), "cudaMemsetAsync");
    count_wrong_sums(what_.shape, x_.get(), weights_.get(), sums_.get(),
                     static_cast<int*>(wrong.get()), stream_);
    check(cudaMemcpyAsync(&count, wrong.get(), sizeof(int), cudaMemcpyDeviceToHost, stream_),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return count == 0;
  }

  void run(const Plan& plan, Way way) {
    if (const std::size_t bytes = plan.workspace(); bytes > workspace_bytes_) {
      workspace_.reset();
      workspace_bytes_ = 0;
      workspace_ = allocate(bytes);
      workspace_bytes_ = bytes;
    }
    cudnn::run(what_, way, plan, settings_,
               {x_.get(), operands_, what_.residual ? residual_.get() : nullptr, y_.get(),
                sums_.get(), workspace_.get()},
               handle_, stream_);
  }

  const InferenceConvolution& what_;
  const Settings& settings_;
  cudnnHandle_t handle_;
  cudaStream_t stream_;
  Memory x_ = noise(what_.shape.in.count()), weights_ = noise(what_.shape.weights()),
         y_ = noise(what_.shape.out().count()), residual_ = noise(what_.shape.out().count()),
         sums_ = noise(what_.shape.out().count()), per_channel_ = noise(what_.shape.k),
         workspace_ = allocate(0);
  ConvolutionOperands operands_;
  std::size_t workspace_bytes_ = 0;
};

// ---- Plans --------------------------------------------------------------------------------------

CudnnPlans::CudnnPlans(const Settings& settings)
    : settings_(settings),
      handle_(make_handle()),
      file_(settings.plan_file, "inference, " + environment()) {
  if (settings.precision == Precision::int8 && settings.format != Format::nhwc)
    throw std::invalid_argument("int8 is there in nhwc alone");
  if (!file_.note().empty()) std::clog << file_.note() << '\n';
}

std::size_t CudnnPlans::element_bytes(Precision precision) const {
  return bytes_of(number_of(precision));
}

std::int64_t CudnnPlans::padded_channels(std::int64_t channels) const {
  // As in training: tensor cores read whole groups of channels.
  return tensor_cores(floating(settings_.precision)) && settings_.format == Format::nhwc &&
                 channels < 4
             ? 4
             : channels;
}

void CudnnPlans::from_float(Precision precision, const float* in, void* out, std::int64_t count,
                            cudaStream_t stream) const {
  cudnn::from_float(precision, in, out, count, stream);
}

void CudnnPlans::prepare(const InferenceConvolution& what) {
  for (const auto& plan : plans_)
    if (plan->convolution == what) return;
  if (in_use_) throw std::logic_error("a convolution is prepared while operations are there");
  set_stream(handle_, stream_.get());
  std::optional<InferencePlan> plan = saved(what);
  if (!plan) {
    plan = choose(what);
    PlanFile::Bytes bytes = plan->plan.serialize();
    bytes.insert(bytes.begin(), static_cast<std::uint8_t>(plan->way));
    file_.put(key_of(what, settings_), std::move(bytes));
  }
  workspace_bytes_ = std::max(workspace_bytes_, plan->plan.workspace());
  sums_bytes_ = std::max(sums_bytes_, cudnn::sums_bytes(what, plan->way));
  plans_.push_back(std::make_unique<const InferencePlan>(std::move(*plan)));
}

bool CudnnPlans::fuses(const InferenceConvolution& what, const PoolShape& pool) const {
  return settings_.fusion == Fusion::full && stem_is_supported(what, settings_.format, pool);
}

std::optional<InferencePlan> CudnnPlans::saved(const InferenceConvolution& what) const {
  const PlanFile::Bytes* bytes = file_.find(key_of(what, settings_));
  if (bytes == nullptr || bytes->empty() ||
      bytes->front() > static_cast<std::uint8_t>(Way::separate))
    return std::nullopt;
  try {
    return InferencePlan{
        what, static_cast<Way>(bytes->front()),
        Plan(Target{.handle = handle_.get()}, PlanFile::Bytes(bytes->begin() + 1, bytes->end()))};
  } catch (const UnsupportedOperation& error) {
    std::clog << settings_.plan_file.string() << ": a plan is not used: " << error.what() << '\n';
    return std::nullopt;
  }
}

PlanChoice CudnnPlans::plans_to_try(const InferenceConvolution& what, Way way) const {
  return sums_tell(what, way) ? std::max(settings_.plans, PlanChoice::timed) : settings_.plans;
}

/// The first way that there is, or the fastest of all; each is run, and its kernels are loaded
/// then. What the last one lacks is the error.
InferencePlan CudnnPlans::choose(const InferenceConvolution& what) {
  Trial trial(what, settings_, handle_.get(), stream_.get());
  std::optional<InferencePlan> best;
  float best_time = std::numeric_limits<float>::infinity();
  for (const Way way : ways_of(what, settings_)) {
    try {
      InferencePlan plan{
          what, way,
          choose_plan(graph_of(what, settings_, way), plans_to_try(what, way), handle_.get(),
                      [&](const Plan& one) { return trial.time(one, way); })};
      const float time = trial.time(plan.plan, way);
      if (time >= best_time) continue;
      best.emplace(std::move(plan));
      best_time = time;
      if (settings_.plans == PlanChoice::heuristic) break;
    } catch (const UnsupportedOperation&) {
      if (way == Way::separate && !best) throw;
    }
  }
  if (!best) throw UnsupportedOperation("cuDNN runs no engine for " + key_of(what, settings_));
  return std::move(*best);
}

const InferencePlan& CudnnPlans::find(const InferenceConvolution& what) const {
  for (const auto& plan : plans_)
    if (plan->convolution == what) return *plan;
  throw std::logic_error("not prepared: " + key_of(what, settings_));
}

std::string CudnnPlans::engine(const InferenceConvolution& what) const {
  const InferencePlan& plan = find(what);
  try {
    return name(plan.way) + (": " + plan.plan.engine());
  } catch (const UnsupportedOperation&) {  // out of the plan file
    return name(plan.way);
  }
}

std::unique_ptr<InferenceOperations> CudnnPlans::make_operations() {
  in_use_ = true;
  return std::make_unique<CudnnInference>(*this);
}

}  // namespace resnet::cudnn
