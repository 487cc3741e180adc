// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <penstock/video/clip_verdict.hpp>
#include <penstock/video/engine_use.hpp>

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

/// From here on the engines are the limit: gaps between clips leave a few percent.
constexpr double kBusy = 0.9;
/// A part of the time below this is not told.
constexpr double kSmallest = 0.05;

const char* told(ClipStage stage) {
  switch (stage) {
    case ClipStage::index:
      return "loading or making indexes";
    case ClipStage::open_file:
      return "opening files";
    case ClipStage::seek:
      return "seeking";
    case ClipStage::read_packets:
      return "reading packets";
    case ClipStage::wait_for_decoder:
      return "waiting for a decoder of the video engines";
    case ClipStage::engine:
      return "waiting for pictures of the video engines";
    case ClipStage::libavcodec:
      return "decoding by libavcodec";
    case ClipStage::copy:
      return "copying decoded frames";
    case ClipStage::wait_for_device:
      return "waiting for the device";
    case ClipStage::other:
      return "all else";
  }
  return "unknown";
}

std::string percent(double fraction) {
  return std::to_string(std::lround(fraction * 100)) + " %";
}

std::string decimal(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g", value);
  return text.data();
}

/// What to change if the engines are busy.
std::string beside_engines(const ClipTimes& times) {
  if (times.by_cpu * 20 < times.by_engine)
    return "let the CPU decode beside them (EngineUse::if_free, and more workers)";
  return "decode fewer pictures: now " +
         decimal(static_cast<double>(times.pictures) / static_cast<double>(times.frames)) +
         " are decoded for each frame, and key frames that lie closer together lessen that";
}

std::string advice(ClipStage stage, const ClipTimes& times, std::optional<double> engine_use) {
  switch (stage) {
    case ClipStage::index:
      return "make the indexes ahead: penstock-pack --index-videos";
    case ClipStage::open_file:
    case ClipStage::seek:
    case ClipStage::read_packets:
      return "the files are read too slowly: take more workers, or put them on faster storage";
    case ClipStage::wait_for_decoder:
    case ClipStage::engine:
      if (engine_use && *engine_use < kBusy)
        return "the engines have time left: take more workers, two for each engine";
      return beside_engines(times);
    case ClipStage::libavcodec:
      return times.by_engine == 0
                 ? "let the video engines decode (EngineUse::if_free), or take more workers, one "
                   "for each core"
                 : "take one worker for each core and two for each engine, or smaller pictures";
    case ClipStage::copy:
    case ClipStage::other:
      return "take more workers, one for each core";
    case ClipStage::wait_for_device:
      return "the device is behind: other work on it delays the kernels that convert frames";
  }
  return {};
}

/// The pipeline's verdict does not know that workers share the engines.
bool is_engine_bound(ClipStage stage, std::optional<double> engine_use) {
  return (stage == ClipStage::engine || stage == ClipStage::wait_for_decoder) && engine_use &&
         *engine_use >= kBusy;
}

}  // namespace

ClipVerdict clip_verdict(const Verdict& pipeline, const ClipTimes& times,
                         std::optional<double> engine_use, const std::string& why_not_known) {
  ClipVerdict verdict{.pipeline = pipeline, .stage = {}, .engine_use = engine_use};
  verdict.sentence = pipeline.sentence;
  const auto total = static_cast<double>(times.total().count());
  if (pipeline.stage != Bottleneck::source || total <= 0 || times.frames == 0) return verdict;

  std::array<std::size_t, kClipStages> order{};
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(
      order, [&](std::size_t a, std::size_t b) { return times.stages[a] > times.stages[b]; });
  verdict.stage = static_cast<ClipStage>(order.front());

  const auto clips = static_cast<double>(times.by_engine + times.by_cpu);
  if (is_engine_bound(*verdict.stage, engine_use))
    verdict.sentence = "the video engines are the limit, and more workers would wait for them";
  verdict.sentence += ". A clip takes a worker " + decimal(total / clips * 1e-6) + " ms:";
  const char* separator = " ";
  for (const std::size_t stage : order) {
    const double part = static_cast<double>(times.stages[stage].count()) / total;
    if (part < kSmallest) break;
    verdict.sentence += separator + percent(part) + ' ' + told(static_cast<ClipStage>(stage));
    separator = ", ";
  }
  verdict.sentence += '.';
  if (engine_use)
    verdict.sentence += " The video engines are busy " + percent(*engine_use) + " of the time.";
  else if (times.by_engine > 0)
    verdict.sentence += " How busy the video engines are is not known: " + why_not_known + '.';
  verdict.sentence += " To change: " + advice(*verdict.stage, times, engine_use) + '.';
  return verdict;
}

ClipVerdict clip_verdict(const Stats& stats, const ClipTotals& totals) {
  std::string why_not;
  const std::optional<double> use = engine_use(why_not);
  return clip_verdict(stats.verdict(), totals.read(), use, why_not);
}

}  // namespace penstock::video
