// SPDX-License-Identifier: Apache-2.0

// ResNet-8 learns the synthetic CIFAR-10: its first steps, on images drawn in memory. Says how long
// an epoch of 50,000 images takes at this rate. And the usual schedule, with larger networks.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../../../examples/data/shapes.hpp"
#include "../../../examples/resnet/train/schedule.hpp"
#include "../../support/catch.hpp"
#include "../../support/sanitized.hpp"
#include "training.hpp"

namespace resnet::test {
namespace {

struct Samples {
  std::vector<float> images;  // nchw, in [-1, 1]
  std::vector<std::int32_t> labels;
};

Samples draw(std::int64_t first, std::int64_t count) {
  Samples samples;
  std::vector<std::byte> record(cifar10::record_bytes);
  for (std::int64_t i = first; i < first + count; ++i) {
    shapes::draw(1, shapes::Split::train, static_cast<std::uint64_t>(i),
                 std::span<std::byte, cifar10::record_bytes>(record));
    samples.labels.push_back(cifar10::label_of(record));
    for (std::size_t byte = 1; byte < record.size(); ++byte)  // planes: as they lie
      samples.images.push_back(static_cast<float>(record[byte]) / 127.5f - 1);
  }
  return samples;
}

TEST_CASE("ResNet-8 learns the synthetic data set") {
  constexpr std::int64_t batch = 32;
  constexpr int steps = PENSTOCK_TEST_SANITIZED ? 4 : 200;
  Training training({architecture_of("resnet8", 10), {batch, 3, 32, 32}});
  training.network.initialise(1, training.stream.get());
  const SgdOptions sgd{{Decay::cosine, 0.05f, 10, steps}, 0.9f, 5e-4f, 2000};
  std::vector<Metrics> parts;  // a quarter of the steps each
  double seconds = 0;
  for (int step = 0; step < steps; ++step) {
    const Samples samples = draw(step * batch, batch);
    training.set_batch(samples.images, samples.labels);
    const auto begin = std::chrono::steady_clock::now();
    training.step(sgd);
    training.stream.synchronize();
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if ((step + 1) % (steps / 4) != 0) continue;
    const Metrics& part = parts.emplace_back(training.metrics());
    std::printf("step %3d: loss %.3f, accuracy %.3f\n", step + 1,
                static_cast<double>(part.loss / part.samples),
                static_cast<double>(part.correct / part.samples));
  }
  std::printf("%.1f s for 50,000 images (steps alone)\n", seconds / (steps * batch) * 50'000);
  const Metrics first = parts.front(), last = parts.back();
  CHECK(std::isfinite(last.loss));
  if (PENSTOCK_TEST_SANITIZED) return;  // for those, a few steps
  CHECK(last.loss / last.samples < first.loss / first.samples - 0.2f);
  CHECK(last.correct / last.samples > 0.18f);  // by chance: 0.1, give or take 0.008
}

/// Losses of the first and of the last quarter of the steps, and the largest of all, on 64 images
/// that come again and again, in the usual schedule of a run that is as short.
struct Course {
  float first = 0, last = 0, largest = 0;
};

Course short_run(const std::string& model, std::int32_t size, std::int64_t batch, int steps) {
  Training training({architecture_of(model, 10), {batch, 3, size, size}});
  training.network.initialise(1, training.stream.get());
  const SgdOptions sgd{.schedule = schedule_for(training.network, Decay::cosine, 0, steps)};
  const auto batches = static_cast<int>(64 / batch);
  Course course;
  for (int step = 0; step < steps; ++step) {
    const Samples samples = draw(step % batches * batch, batch);
    training.set_batch(samples.images, samples.labels);
    training.step(sgd);
    const Metrics metrics = training.metrics();
    const float loss = metrics.loss / metrics.samples;
    if (step < steps / 4) course.first += loss / static_cast<float>(steps / 4);
    if (step >= steps - steps / 4) course.last += loss / static_cast<float>(steps / 4);
    course.largest = std::max(course.largest, loss);
  }
  std::printf("%s, batch %lld: loss %.3f, then %.3f, at most %.3f\n", model.c_str(),
              static_cast<long long>(batch), static_cast<double>(course.first),
              static_cast<double>(course.last), static_cast<double>(course.largest));
  return course;
}

TEST_CASE("in the usual schedule the loss falls from the first steps on") {
  const auto [model, batch] = GENERATE(std::pair<std::string, std::int64_t>("resnet8", 16),
                                       std::pair<std::string, std::int64_t>("resnet18", 16),
                                       std::pair<std::string, std::int64_t>("resnet18", 64),
                                       std::pair<std::string, std::int64_t>("resnet50", 16),
                                       std::pair<std::string, std::int64_t>("resnet50", 32));
  const Course course = short_run(model, 32, batch, PENSTOCK_TEST_SANITIZED ? 4 : 24);
  CHECK(std::isfinite(course.largest));
  if (PENSTOCK_TEST_SANITIZED) return;
  CHECK(course.last < course.first - 0.05f);
  CHECK(course.largest < 3.2f);  // ln 10 = 2.3 by chance; fresh weights begin a little above it
}

TEST_CASE("the usual rate grows with the batch, and the warm-up with the rate") {
  CHECK(usual_rate(256, 64) == 0.1f);
  CHECK(usual_rate(512, 64) == 2 * usual_rate(256, 64));
  CHECK(usual_rate(256, 2048) == usual_rate(256, 512) / 4);
  CHECK(warmup_steps(0.02f, 512) == 256);
  CHECK(warmup_steps(0.02f, 2048) == 4 * 256);
  CHECK(warmup_steps(1e30f, 64) == 1'000'000);
}

}  // namespace
}  // namespace resnet::test
