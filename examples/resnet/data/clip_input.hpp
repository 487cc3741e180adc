// SPDX-License-Identifier: Apache-2.0
#pragma once

// Clips of video files on their way to a network: workers decode them, by the CPU or by the GPU's
// video engines, and a kernel crops, resizes and flips them to bytes, frame x channel x height x
// width. Each frame is an image of the network's batch and has the label of its clip.
//
// What is queued on a stream neither blocks nor synchronises.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <penstock/layout.hpp>
#include <penstock/source.hpp>
#include <penstock/video/clip_source.hpp>
#include <penstock/video/clip_times.hpp>
#include <string>

#include "clip_set.hpp"
#include "input.hpp"

namespace resnet {

using Clips = penstock::video::Clips<std::uint8_t>;

penstock::Layout<Clips> clips_layout(std::int64_t clips, std::int64_t frames, std::int32_t size);

/// An on_device source of random clips, all frames of which have the same random crop. `engines` is
/// the name of a penstock::video::EngineUse. Throws std::invalid_argument for a file that cannot be
/// decoded, with the file's name. `files` and `totals` outlive it.
penstock::AnySource<Clips> random_clips(const penstock::video::VideoFiles& files,
                                        const ClipSet& set, std::int32_t size,
                                        const std::string& engines,
                                        penstock::video::ClipTotals& totals);

/// Queues: `frame_labels` (clip x frame) gets the label of each clip for each of its frames.
void repeat_labels(const Clips& clips, std::int32_t* frame_labels, cudaStream_t stream);

}  // namespace resnet
