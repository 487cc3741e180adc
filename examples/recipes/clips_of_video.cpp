// SPDX-License-Identifier: Apache-2.0

// docs/recipes/clips-of-video.md: clips of video files for a model, with a directory for each
// class. Trains on random clips and validates on those that lie evenly in each file. The variable
// VIDEO_FOLDER names the folder; its directories are red, green and blue, and so are their videos.

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <penstock/images/crop.hpp>
#include <penstock/penstock.hpp>
#include <penstock/video/clip_source.hpp>
#include <penstock/video/video_folder.hpp>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace images = penstock::images;
namespace video = penstock::video;

constexpr std::int64_t kBatch = 4, kFrames = 8;
constexpr std::uint64_t kClipsPerFile = 2;

/// Clips of (sample, frame, channel, row, column) in half precision.
using Batch = video::Clips<__half>;
const images::OutputFormat kFormat{.size = {64, 64},
                                   .order = images::PixelOrder::nchw,
                                   .mean = {0.5f, 0.5f, 0.5f},
                                   .standard_deviation = {0.25f, 0.25f, 0.25f}};

/// Stands for a model: the class of a clip is its brightest channel. The classes are blue, green
/// and red, in the order of their names. A clip that could not be read has no class.
struct Look {
  enum : std::uint8_t { wrong, right, bad };
  Batch batch;
  std::uint8_t* found;

  __host__ __device__ void operator()(std::int64_t clip) const {
    const auto& pixels = batch.pixels;
    float sums[3] = {0, 0, 0};
    for (std::int64_t frame = 0; frame < pixels.extent(1); ++frame)
      for (int channel = 0; channel < 3; ++channel)
        for (std::int64_t y = 0; y < pixels.extent(3); ++y)
          for (std::int64_t x = 0; x < pixels.extent(4); ++x)
            sums[channel] += static_cast<float>(pixels(clip, frame, channel, y, x));
    int brightest = 0;
    for (int channel = 1; channel < 3; ++channel)
      if (sums[channel] > sums[brightest]) brightest = channel;
    const std::int32_t label = batch.labels(clip);
    found[clip] = label < 0 ? bad : label == 2 - brightest ? right : wrong;
  }
};

struct Counts {
  std::int64_t right = 0, wrong = 0, bad = 0;
};

/// One epoch of the clips that `choose` chooses.
template <class Choose, class View>
Counts epoch(const char* name, const video::VideoFiles& files, const Choose& choose,
             const View& view, bool shuffle) {
  std::atomic<int> told = 0;
  const video::ClipSourceOptions options{.clips_per_file = kClipsPerFile,
                                         .reader = {.engine = video::EngineUse::if_free},
                                         .on_bad_clip = [&told](const video::BadClip& clip) {
                                           if (told++ < 3)
                                             std::printf("bad clip: %s\n", clip.what.c_str());
                                         }};
  const int workers = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  penstock::Prefetcher<Batch> prefetcher{
      video::clips_layout<__half>(kBatch, kFrames, kFormat),
      {.samples = files.size() * kClipsPerFile,
       .batch_size = kBatch,
       .shuffle = shuffle,
       .seed = 7},
      video::clip_source<__half>(files, choose, view, kFormat, options),
      {.workers = workers, .device_depth = static_cast<std::size_t>(workers) + 2}};

  const penstock::Stream stream;
  std::vector<std::uint8_t> found(files.size() * kClipsPerFile);
  void* memory = nullptr;
  cudaMalloc(&memory, found.size());
  auto* next = static_cast<std::uint8_t*>(memory);
  while (const auto batch = prefetcher.next(stream.get())) {
    penstock::for_each(stream.get(), batch.samples(), Look{*batch, next});
    next += batch.samples();
  }
  cudaMemcpyAsync(found.data(), memory, found.size(), cudaMemcpyDeviceToHost, stream.get());
  stream.synchronize();
  cudaFree(memory);

  const auto count = [&](std::uint8_t what) {
    return std::count(found.begin(), found.end(), what);
  };
  const Counts counts{count(Look::right), count(Look::wrong), count(Look::bad)};
  std::printf("%s: %jd clips right, %jd wrong, %jd could not be read\n", name,
              static_cast<std::intmax_t>(counts.right), static_cast<std::intmax_t>(counts.wrong),
              static_cast<std::intmax_t>(counts.bad));
  return counts;
}

int run(const std::filesystem::path& folder) {
  const video::VideoFolder listed = video::VideoFolder::list(folder);
  const video::VideoFiles files(listed.files, listed.labels, {.index_folder = "indexes"});
  for (std::size_t i = 0; i < listed.classes.size(); ++i)
    std::printf("class %zu: %s\n", i, listed.classes[i].c_str());

  const Counts trained = epoch("train", files, video::RandomClip{.frames = kFrames, .rate = 15},
                               images::RandomResizedCrop{.output = kFormat.size}, true);
  const Counts validated =
      epoch("validate", files, video::DenseClips{.frames = kFrames, .rate = 15},
            video::WholePicture{.output = kFormat.size}, false);
  return trained.right > 0 && trained.wrong == 0 && validated.right == trained.right &&
                 validated.wrong == 0 && validated.bad == trained.bad
             ? 0
             : 1;
}

}  // namespace

int main() {
  const char* const folder = std::getenv("VIDEO_FOLDER");  // NOLINT(concurrency-mt-unsafe)
  if (folder == nullptr) {
    std::fputs("clips_of_video: set VIDEO_FOLDER to a folder of video files\n", stderr);
    return 2;
  }
  try {
    return run(folder);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "clips_of_video: %s\n", error.what());
    return 1;
  }
}
