// SPDX-License-Identifier: Apache-2.0

#include "sgd.hpp"

#include <cstddef>

#include "numbers.cuh"

namespace resnet::cudnn {

namespace {

constexpr double pi = 3.14159265358979323846;

/// Of the step that is taken after `step` others. Warm-up goes from base / warmup_steps to base;
/// what decays begins behind it, and stays at its end after total_steps.
__device__ double learning_rate(const Schedule& schedule, std::int64_t step) {
  const double base = static_cast<double>(schedule.base);
  if (step < schedule.warmup_steps)
    return base * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  if (schedule.decay == Decay::constant) return base;
  const std::int64_t total = max(schedule.total_steps, std::int64_t{1});
  if (schedule.decay == Decay::steps) {
    const std::int64_t thirds = 3 * min(step, total) / total;
    return thirds >= 2 ? base * 0.01 : thirds == 1 ? base * 0.1 : base;
  }
  const std::int64_t decaying = max(total - schedule.warmup_steps, std::int64_t{1});
  const double done = static_cast<double>(min(step - schedule.warmup_steps, decaying)) /
                      static_cast<double>(decaying);
  return base * 0.5 * (1 + cos(pi * done));
}

/// What this step's kernels share.
struct Step {
  float rate;
  float gradient_factor;  ///< 1 / ranks / loss scale
};

__global__ void begin_step(Schedule schedule, const std::int64_t* steps, LossScale* loss_scale,
                           float ranks, Step* step) {
  step->rate = static_cast<float>(learning_rate(schedule, *steps));
  step->gradient_factor = 1 / ranks / (loss_scale == nullptr ? 1 : loss_scale->scale);
  if (loss_scale != nullptr) loss_scale->overflow = 0;
}

template <int V, class T>
__global__ void find_overflow(const T* gradients, std::uint32_t packs, LossScale* loss_scale) {
  const std::uint32_t i = thread_index();
  if (i >= packs) return;
  const Floats<V> values = load<V>(gradients + std::size_t{i} * V);
  bool finite = true;
#pragma unroll
  for (int j = 0; j < V; ++j) finite = finite && isfinite(values[j]);
  if (!finite) loss_scale->overflow = 1;  // Whoever comes first or last, it is 1.
}

/// What a range of parameters is updated with.
template <class T>
struct Range {
  const T* gradients;
  float* parameters;
  float* momenta;
  T* compute;  ///< the parameters again, in T; or null
  std::uint32_t packs;
  float momentum, decay;
};

template <int V, class T>
__global__ void update(Range<T> range, const Step* step, const LossScale* loss_scale) {
  const std::uint32_t i = thread_index();
  if (i >= range.packs || (loss_scale != nullptr && loss_scale->overflow != 0)) return;
  const std::size_t at = std::size_t{i} * V;
  const Floats<V> gradients = load<V>(range.gradients + at);
  Floats<V> momenta = load<V>(range.momenta + at);
  Floats<V> parameters = load<V>(range.parameters + at);
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const float gradient = gradients[j] * step->gradient_factor + range.decay * parameters[j];
    momenta[j] = range.momentum * momenta[j] + gradient;
    parameters[j] -= step->rate * momenta[j];
  }
  store<V>(range.momenta + at, momenta);
  store<V>(range.parameters + at, parameters);
  if (range.compute != nullptr) store<V>(range.compute + at, parameters);
}

__global__ void end_step(std::int64_t* steps, LossScale* loss_scale, std::int32_t interval,
                         Metrics* metrics) {
  if (loss_scale == nullptr || loss_scale->overflow == 0) ++*steps;
  if (loss_scale == nullptr) return;
  LossScale next = *loss_scale;
  if (next.overflow != 0) {
    next.scale *= 0.5f;
    next.good_steps = 0;
    ++next.skipped;
    if (metrics != nullptr) ++metrics->skipped;
  } else if (++next.good_steps >= interval) {
    if (isfinite(next.scale * 2)) next.scale *= 2;
    next.good_steps = 0;
  }
  *loss_scale = next;
}

/// launch.operator()<V>(): 4 numbers a thread where that can be.
template <class Launch>
void four_or_one(bool four, const Launch& launch) {
  if (four)
    launch.template operator()<4>();
  else
    launch.template operator()<1>();
}

template <class T>
void launch_find_overflow(const T* gradients, std::int64_t count, LossScale* loss_scale,
                          cudaStream_t stream) {
  if (count == 0) return;
  four_or_one(count % 4 == 0 && aligned({gradients}), [&]<int V>() {
    find_overflow<V><<<blocks_for(count / V), block_threads, 0, stream>>>(
        gradients, static_cast<std::uint32_t>(count / V), loss_scale);
  });
  check_launch("find_overflow");
}

template <class T>
void launch_update(Range<T> range, std::int64_t count, const Step* step,
                   const LossScale* loss_scale, cudaStream_t stream) {
  if (count == 0) return;
  const bool four =
      count % 4 == 0 && aligned({range.gradients, range.parameters, range.momenta, range.compute});
  four_or_one(four, [&]<int V>() {
    range.packs = static_cast<std::uint32_t>(count / V);
    update<V><<<blocks_for(range.packs), block_threads, 0, stream>>>(range, step, loss_scale);
  });
  check_launch("update");
}

}  // namespace

void sgd(const Context& context, const SgdState& state, const SgdOptions& options,
         cudaStream_t stream) {
  Step* step = context.scratch<Step>(1);
  begin_step<<<1, 1, 0, stream>>>(options.schedule, state.step, state.loss_scale,
                                  static_cast<float>(state.ranks), step);
  check_launch("begin_step");
  dispatch(context.precision, false, [&]<class T, int V>() {
    const auto* gradients = static_cast<const T*>(state.weight_gradients);
    if (state.loss_scale != nullptr) {
      launch_find_overflow(gradients, state.weights, state.loss_scale, stream);
      launch_find_overflow(state.other_gradients, state.others, state.loss_scale, stream);
    }
    const Range<T> weights{
        gradients, state.parameters, state.momenta,       static_cast<T*>(state.compute_weights),
        0,         options.momentum, options.weight_decay};
    launch_update(weights, state.weights, step, state.loss_scale, stream);
  });
  const Range<float> others{state.other_gradients,
                            state.parameters + state.weights,
                            state.momenta + state.weights,
                            nullptr,
                            0,
                            options.momentum,
                            0};
  launch_update(others, state.others, step, state.loss_scale, stream);
  end_step<<<1, 1, 0, stream>>>(state.step, state.loss_scale, options.growth_interval,
                                state.metrics);
  check_launch("end_step");
}

}  // namespace resnet::cudnn
