// SPDX-License-Identifier: Apache-2.0

#include "cross_entropy.hpp"

#include <cub/block/block_reduce.cuh>
#include <cub/warp/warp_reduce.cuh>

#include "numbers.cuh"

namespace resnet::cudnn {

namespace {

struct Sample {
  float loss, correct;
};

struct Largest {
  float logit;
  int at;
};

/// The first of equals.
struct Larger {
  __device__ Largest operator()(const Largest& a, const Largest& b) const {
    if (a.logit == b.logit) return a.at < b.at ? a : b;
    return a.logit > b.logit ? a : b;
  }
};

constexpr unsigned warps = block_threads / 32;

/// A warp has a sample.
__global__ void losses(int n, int classes, const float* logits, const std::int32_t* labels,
                       const LossScale* loss_scale, float* gradient, Sample* samples) {
  using ReduceLargest = cub::WarpReduce<Largest>;
  using ReduceSum = cub::WarpReduce<float>;
  __shared__ union {
    typename ReduceLargest::TempStorage largest;
    typename ReduceSum::TempStorage sum;
  } storage[warps];
  const unsigned warp = threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int sample = static_cast<int>(blockIdx.x * warps + warp);
  if (sample >= n) return;
  const float* row = logits + std::int64_t{sample} * classes;

  Largest mine{-INFINITY, classes};
  for (int i = lane; i < classes; i += 32) mine = Larger()(mine, Largest{row[i], i});
  Largest largest = ReduceLargest(storage[warp].largest).Reduce(mine, Larger());
  largest.logit = __shfl_sync(~0u, largest.logit, 0);
  float part = 0;
  for (int i = lane; i < classes; i += 32) part += expf(row[i] - largest.logit);
  __syncwarp();  // Before the storage changes its use.
  const float sum = __shfl_sync(~0u, ReduceSum(storage[warp].sum).Sum(part), 0);

  const std::int32_t label = labels[sample];
  const bool valid = label >= 0 && label < classes;
  const float loss = valid ? logf(sum) - (row[label] - largest.logit) : NAN;
  if (lane == 0) samples[sample] = {loss, valid && largest.at == label ? 1.0f : 0.0f};
  if (gradient == nullptr) return;
  const float scale = isfinite(loss)
                          ? (loss_scale == nullptr ? 1 : loss_scale->scale) / static_cast<float>(n)
                          : NAN;
  for (int i = lane; i < classes; i += 32)
    gradient[std::int64_t{sample} * classes + i] =
        scale * (expf(row[i] - largest.logit) / sum - (i == label ? 1.0f : 0.0f));
}

/// One block: the same order each time.
__global__ void add_to_metrics(int n, const Sample* samples, Metrics* metrics) {
  using Reduce = cub::BlockReduce<float, block_threads>;
  __shared__ typename Reduce::TempStorage storage;
  Sample mine{};
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(block_threads)) {
    mine.loss += samples[i].loss;
    mine.correct += samples[i].correct;
  }
  const float loss = Reduce(storage).Sum(mine.loss);
  __syncthreads();
  const float correct = Reduce(storage).Sum(mine.correct);
  if (threadIdx.x != 0) return;
  metrics->loss += loss;
  metrics->correct += correct;
  metrics->samples += static_cast<float>(n);
}

}  // namespace

void cross_entropy(const Context& context, std::int64_t n, std::int64_t classes,
                   const float* logits, const std::int32_t* labels, const LossScale* loss_scale,
                   float* logit_gradient, Metrics* metrics, cudaStream_t stream) {
  auto* samples = context.scratch<Sample>(static_cast<std::size_t>(n));
  losses<<<blocks_for(n * 32), block_threads, 0, stream>>>(
      static_cast<int>(n), static_cast<int>(classes), logits, labels, loss_scale, logit_gradient,
      samples);
  check_launch("losses");
  add_to_metrics<<<1, block_threads, 0, stream>>>(static_cast<int>(n), samples, metrics);
  check_launch("add_to_metrics");
}

}  // namespace resnet::cudnn
