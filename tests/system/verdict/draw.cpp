// SPDX-License-Identifier: Apache-2.0

// Pipelines of any kind, drawn at random.

#include <cstdint>
#include <random>

#include "pipeline.hpp"

namespace penstock::test {

namespace {

class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t number) : engine_(seed * 1'000'003 + number) {}

  double between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(engine_);
  }
  std::uint64_t whole(std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(engine_);
  }
  bool one_in(std::uint64_t count) { return whole(1, count) == 1; }

 private:
  std::mt19937_64 engine_;
};

Shape draw_shape(Draw& draw) {
  switch (draw.whole(0, 9)) {
    case 0:
    case 1:
      return Shape::lognormal;
    case 2:
      return Shape::outliers;
    case 3:
      return Shape::bursts;
    case 4:
      return Shape::phases;
    case 5:
      return Shape::jitter;
    default:
      return Shape::steady;
  }
}

}  // namespace

Pipeline draw(std::uint64_t seed, std::uint64_t number) {
  Draw draw(seed, number);
  Pipeline pipeline;
  pipeline.source = Source(draw.whole(0, 3));
  const bool on_host = pipeline.source == Source::batch || pipeline.source == Source::sample;
  pipeline.workers = static_cast<int>(draw.whole(1, 4));
  pipeline.loop = Loop(draw.whole(0, 2));
  pipeline.ragged = on_host && draw.one_in(6);
  pipeline.floats = !pipeline.ragged && draw.one_in(4);
  pipeline.transforms = on_host && draw.one_in(3);
  pipeline.batches = 128;
  if (draw.one_in(4)) pipeline.epochs = 2;
  pipeline.device_times = draw.one_in(3);
  pipeline.device_depth = draw.whole(1, 3);
  if (!on_host)
    pipeline.device_depth = static_cast<std::size_t>(pipeline.workers) + draw.whole(1, 3);
  if (draw.one_in(2))
    pipeline.host_depth = static_cast<std::size_t>(pipeline.workers) + draw.whole(0, 4);
  // Times of the stages: any of them may be the slowest.
  const double source = draw.between(0.8, 4);
  pipeline.fill = {source * (draw.one_in(2) ? pipeline.workers : 1), draw_shape(draw)};
  pipeline.step = {draw.between(0.8, 4), draw_shape(draw)};
  pipeline.copy = draw.between(0.2, draw.one_in(3) ? 4 : 1.5);
  if (pipeline.transforms) pipeline.transform = draw.between(0.3, draw.one_in(3) ? 4 : 1.5);
  // The loop's leases.
  if (on_host && pipeline.device_depth > 1) {
    if (draw.one_in(4))
      pipeline.replaces = true;
    else if (draw.one_in(4))
      pipeline.leases = draw.whole(2, pipeline.device_depth);
  }
  // What has nothing to do with the batches that come later.
  const auto some = [&] { return draw.one_in(6) ? draw.between(40, 100) : 0; };
  pipeline.start = some();
  pipeline.first_fill = some();
  if (pipeline.loop != Loop::queues) pipeline.first_step = some();
  return pipeline;
}

}  // namespace penstock::test
