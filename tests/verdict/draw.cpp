// SPDX-License-Identifier: Apache-2.0

// Pipelines of any kind, drawn at random.

#include <algorithm>
#include <cstdint>
#include <random>

#include "pipeline.hpp"

namespace penstock::test {

namespace {

/// The slow stage of a case; `ring`: none, but the queues are short and batches come in bursts.
enum class Slow { source, copy, transform, consumer, slots, data, ring, kinds };

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

/// What the case is made of, whatever is slow.
Pipeline draw_parts(Draw& draw, Slow slow) {
  Pipeline pipeline;
  pipeline.unbounded = slow == Slow::data || (slow != Slow::source && draw.one_in(8));
  const bool copies = slow == Slow::copy || slow == Slow::transform || slow == Slow::slots;
  if (!pipeline.unbounded) {
    pipeline.source = Source(draw.whole(0, copies ? 1 : 3));
    pipeline.workers = static_cast<int>(draw.whole(1, 4));
    if (draw.one_in(4)) pipeline.epochs = draw.whole(2, 4);
  }
  const bool on_host = pipeline.source == Source::batch || pipeline.source == Source::sample;
  pipeline.ragged = on_host && draw.one_in(5);
  pipeline.floats = !pipeline.ragged && draw.one_in(3);
  pipeline.transforms = on_host && (slow == Slow::transform || draw.one_in(3));
  pipeline.loop = Loop(draw.whole(slow == Slow::slots ? 1 : 0, 2));
  pipeline.batches = draw.one_in(5) ? draw.whole(12, 20) : draw.whole(32, 48);
  pipeline.batches -= pipeline.batches % pipeline.epochs;
  pipeline.device_times = draw.one_in(2);
  pipeline.device_depth = draw.whole(2, 3);
  if (!on_host) pipeline.device_depth = static_cast<std::size_t>(pipeline.workers) + 2;
  if (draw.one_in(2))
    pipeline.host_depth = static_cast<std::size_t>(pipeline.workers) + draw.whole(2, 5);
  return pipeline;
}

Shape draw_shape(Draw& draw) {
  return draw.one_in(4) ? (draw.one_in(2) ? Shape::jitter : Shape::bursts) : Shape::steady;
}

/// Times of the stages; `usual` is the most that those take which are not slow.
void draw_times(Pipeline& pipeline, Draw& draw, Slow slow) {
  const double usual = draw.between(1.5, 2.5), far = draw.between(1.4, 4);
  const auto some = [&] { return usual * draw.between(0.3, 1); };
  double source = some();
  pipeline.copy = pipeline.transforms ? some() / 2 : some();
  pipeline.transform = some() / 2;
  pipeline.step = {some()};
  if (slow == Slow::source || slow == Slow::data) source = usual * far;
  if (slow == Slow::copy) pipeline.copy = usual * far;
  if (slow == Slow::transform) pipeline.transform = usual * far;
  if (slow == Slow::consumer) pipeline.step = {usual * far, draw_shape(draw)};
  pipeline.fill = {source * pipeline.workers};
  if (slow == Slow::source) pipeline.fill.shape = draw_shape(draw);
}

/// What has nothing to do with the batches that come later.
void draw_start(Pipeline& pipeline, Draw& draw) {
  const auto some = [&] { return draw.one_in(5) ? draw.between(80, 200) : 0; };
  pipeline.start = some();
  pipeline.first_fill = some();
  if (pipeline.loop != Loop::queues) pipeline.first_step = some();
  pipeline.replaces = pipeline.leases == 1 && pipeline.device_depth > 1 && draw.one_in(3);
}

}  // namespace

Pipeline draw(std::uint64_t seed, std::uint64_t number) {
  Draw draw(seed, number);
  const auto slow = Slow(draw.whole(0, static_cast<std::uint64_t>(Slow::kinds) - 1));
  Pipeline pipeline = draw_parts(draw, slow);
  draw_times(pipeline, draw, slow);
  if (slow == Slow::slots) {
    pipeline.device_depth = draw.whole(1, 3);
    pipeline.leases = pipeline.device_depth;
  }
  if (slow == Slow::ring) {
    pipeline.source = Source::batch;
    pipeline.workers = 1;
    pipeline.host_depth = draw.whole(1, 2);
    pipeline.fill = {draw.between(1.2, 1.8), Shape::bursts};
    pipeline.step = {draw.between(2, 2.5)};
    pipeline.copy = pipeline.transform = 0.3;
    pipeline.batches = 40;
    pipeline.epochs = 1;
  }
  draw_start(pipeline, draw);
  return pipeline;
}

}  // namespace penstock::test
