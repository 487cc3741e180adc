// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the quickstart computes: mean and standard deviation of every channel, and samples of every
// class. Accumulate is the step that runs on the device, once for each batch; it only adds
// integers, so the result is exact and the same in whatever order batches come.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cuda/std/array>
#include <penstock/tensor.hpp>

#include "../data/cifar10.hpp"

#ifdef __CUDACC__
#define QUICKSTART_HOST_DEVICE __host__ __device__
#else
#define QUICKSTART_HOST_DEVICE
#endif

namespace quickstart {

struct Images {
  penstock::Tensor<std::uint8_t, 4> pixels;  // sample x height x width x channel
  penstock::Tensor<std::int32_t, 1> labels;  // sample
};

/// Sums over samples, kept apart for every value of an image. Lives on the device; a copy comes
/// back.
struct Totals {
  cuda::std::array<std::uint64_t, cifar10::pixel_bytes> sum;
  cuda::std::array<std::uint64_t, cifar10::pixel_bytes> sum_of_squares;
  cuda::std::array<std::uint64_t, cifar10::classes> classes;
};

/// Adds a batch to totals. Called with every index of an image's values, 0 .. pixel_bytes-1, each
/// by a thread of its own: it goes through the batch's samples at that place, so that neighbouring
/// threads read neighbouring bytes, and no two threads add to the same number.
struct Accumulate {
  Images batch;
  Totals* totals;

  QUICKSTART_HOST_DEVICE void operator()(std::int64_t index) const {
    const std::int64_t channel = index % cifar10::channels;
    const std::int64_t x = index / cifar10::channels % cifar10::width;
    const std::int64_t y = index / cifar10::channels / cifar10::width;
    std::uint64_t sum = 0, sum_of_squares = 0, labels = 0;
    for (std::int64_t sample = 0; sample < batch.pixels.extent(0); ++sample) {
      const std::uint64_t value = batch.pixels(sample, y, x, channel);
      sum += value;
      sum_of_squares += value * value;
    }
    totals->sum[static_cast<std::size_t>(index)] += sum;
    totals->sum_of_squares[static_cast<std::size_t>(index)] += sum_of_squares;
    if (index >= cifar10::classes) return;
    for (std::int64_t sample = 0; sample < batch.labels.extent(0); ++sample)
      labels += batch.labels(sample) == index ? 1u : 0u;
    totals->classes[static_cast<std::size_t>(index)] += labels;
  }
};

/// The totals of every channel.
struct Summary {
  std::array<std::uint64_t, cifar10::channels> sum{};
  std::array<std::uint64_t, cifar10::channels> sum_of_squares{};
  std::array<std::uint64_t, cifar10::classes> classes{};
  bool operator==(const Summary&) const = default;
  Summary operator+(const Summary& other) const {
    Summary both = *this;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      both.sum[i] += other.sum[i];
      both.sum_of_squares[i] += other.sum_of_squares[i];
    }
    for (std::size_t i = 0; i < classes.size(); ++i) both.classes[i] += other.classes[i];
    return both;
  }

  std::uint64_t samples() const {
    std::uint64_t all = 0;
    for (const std::uint64_t count : classes) all += count;
    return all;
  }
  double mean(std::size_t channel) const { return static_cast<double>(sum[channel]) / values(); }
  double standard_deviation(std::size_t channel) const {
    const double square = static_cast<double>(sum_of_squares[channel]) / values();
    return std::sqrt(square - mean(channel) * mean(channel));
  }

 private:
  double values() const { return static_cast<double>(samples() * cifar10::plane_bytes); }
};

inline Summary summarise(const Totals& totals) {
  Summary summary;
  for (std::size_t i = 0; i < cifar10::pixel_bytes; ++i) {
    summary.sum[i % cifar10::channels] += totals.sum[i];
    summary.sum_of_squares[i % cifar10::channels] += totals.sum_of_squares[i];
  }
  for (std::size_t i = 0; i < cifar10::classes; ++i) summary.classes[i] = totals.classes[i];
  return summary;
}

}  // namespace quickstart
