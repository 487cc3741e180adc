// SPDX-License-Identifier: Apache-2.0
#pragma once

// clip_verdict: what limits a pipeline of clips, and what to change. It is the pipeline's verdict
// and, if the source limits the rate, the stage of the clips that takes most of the workers' time.
//
//   namespace video = penstock::video;
//   video::ClipTotals totals;  // outlives the pipeline
//   const video::VideoFiles files(paths);
//   const penstock::images::OutputFormat format{.size = {112, 112}};
//   penstock::Prefetcher<video::Clips<float>> prefetcher{
//       video::clips_layout<float>(8, 16, format),
//       {.samples = files.size(), .shuffle = true, .seed = 7},
//       video::clip_source<float>(files, video::RandomClip{.frames = 16},
//                                 video::WholePicture{format.size}, format, {.totals = &totals})};
//   ...
//   std::cout << video::clip_verdict(prefetcher.stats(), totals).sentence << '\n';

#include <optional>
#include <penstock/stats.hpp>
#include <penstock/verdict.hpp>
#include <penstock/version.hpp>
#include <penstock/video/clip_times.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::video {

/// What limits a pipeline of clips.
struct ClipVerdict {
  Verdict pipeline{};  ///< Stats::verdict()
  /// The stage in which the workers spend most time; empty: the source is not the limit, or no clip
  /// was counted.
  std::optional<ClipStage> stage{};
  std::optional<double> engine_use{};  ///< video::engine_use() now; empty: not known
  std::string sentence{};              ///< all of that as text, with what to change
};

/// Finds what limits the pipeline with these stats, whose source adds to `totals`
/// (ClipSourceOptions). Ask while the pipeline runs: it asks how busy the engines of the current
/// device are now. Throws what engine_use throws.
ClipVerdict clip_verdict(const Stats& stats, const ClipTotals& totals);
/// The same from its parts: the pipeline's verdict, the times of the clips, how busy the engines
/// are, and why that is not known. A pure function.
ClipVerdict clip_verdict(const Verdict& pipeline, const ClipTimes& times,
                         std::optional<double> engine_use, const std::string& why_not_known);

}  // namespace penstock::video
