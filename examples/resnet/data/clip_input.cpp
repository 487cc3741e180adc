// SPDX-License-Identifier: Apache-2.0

#include "clip_input.hpp"

#include <cstddef>
#include <map>
#include <penstock/images/crop.hpp>
#include <penstock/launch.hpp>
#include <stdexcept>

namespace resnet {
namespace {

namespace images = penstock::images;
namespace video = penstock::video;

images::OutputFormat format_of(std::int32_t size) {
  return {.size = {size, size}, .order = images::PixelOrder::nchw};
}

struct RepeatLabels {
  const std::int32_t* labels;
  std::int64_t frames;
  std::int32_t* frame_labels;

  PENSTOCK_HOST_DEVICE void operator()(std::int64_t i) const {
    frame_labels[i] = labels[i / frames];
  }
};

}  // namespace

penstock::Layout<Clips> clips_layout(std::int64_t clips, std::int64_t frames, std::int32_t size) {
  return video::clips_layout<std::uint8_t>(clips, frames, format_of(size));
}

penstock::AnySource<Clips> random_clips(const video::VideoFiles& files, const ClipSet& set,
                                        std::int32_t size, const std::string& engines,
                                        video::ClipTotals& totals) {
  static const std::map<std::string, video::EngineUse> uses = {
      {"none", video::EngineUse::none},
      {"if_possible", video::EngineUse::if_possible},
      {"if_free", video::EngineUse::if_free},
      {"required", video::EngineUse::required}};
  const images::RandomResizedCrop crop{.output = {size, size}};
  // A worker takes twice this amount of page-locked memory, which delays the first batch.
  const video::ClipReaderOptions reader{.engine = uses.at(engines),
                                        .staging_bytes = std::size_t{16} << 20};
  return video::clip_source<std::uint8_t>(
      files, video::RandomClip{.frames = static_cast<std::uint64_t>(set.frames)},
      [crop](std::uint64_t seed, images::ImageSize picture) {
        return images::RandomHorizontalFlip{}(seed, crop(seed, picture));
      },
      format_of(size),
      {.clips_per_file = static_cast<std::uint64_t>(set.clips_per_file),
       .reader = reader,
       // Whoever has given a bad file can put it right, see options.hpp.
       .on_bad_clip = [](const video::BadClip& clip) { throw std::invalid_argument(clip.what); },
       .totals = &totals});
}

void repeat_labels(const Clips& clips, std::int32_t* frame_labels, cudaStream_t stream) {
  const std::int64_t frames = clips.pixels.extent(1);
  penstock::for_each(stream, clips.labels.extent(0) * frames,
                     RepeatLabels{clips.labels.data_handle(), frames, frame_labels});
}

}  // namespace resnet
