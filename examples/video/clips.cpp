// SPDX-License-Identifier: Apache-2.0

// clips: random clips of the video files in a folder, as batches in device memory. The same file is
// compiled as C++ over the emulated runtime and, by way of clips.cu, as CUDA C++. Exit codes: 0
// done, 1 an exception, 2 wrong arguments.

#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <penstock/images/crop.hpp>
#include <penstock/penstock.hpp>
#include <penstock/video/clip_source.hpp>
#include <stdexcept>
#include <vector>

namespace video = penstock::video;

void run(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".mp4" || entry.path().extension() == ".mkv")
      paths.push_back(entry.path());
  const video::VideoFiles files(paths);  // an index of each is kept beside it
  const penstock::images::OutputFormat format{.size = {112, 112},
                                              .mean = {0.43f, 0.39f, 0.37f},
                                              .standard_deviation = {0.22f, 0.22f, 0.21f}};
  penstock::Prefetcher<video::Clips<float>> prefetcher{
      video::clips_layout<float>(8, 16, format),  // 8 clips of 16 frames
      {.samples = files.size(), .batch_size = 8, .shuffle = true, .seed = 1},
      video::clip_source<float>(files, video::RandomClip{.frames = 16, .rate = 15},
                                penstock::images::RandomResizedCrop{.output = format.size}, format),
      {.on_failure = penstock::FailurePolicy::skip(10)}};

  penstock::Stream stream;
  std::int64_t clips = 0;
  while (const auto batch = prefetcher.next(stream.get()))
    clips += batch->pixels.extent(0);  // your kernels on `stream`: 8 x 16 x 112 x 112 x 3 floats
  stream.synchronize();

  for (const penstock::Failure& failure : prefetcher.failures()) std::cout << failure.what << '\n';
  std::cout << clips << " clips\n" << prefetcher.stats() << '\n';
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "clips FOLDER: its files .mp4 and .mkv\n");
    return 2;
  }
  try {
    run(argv[1]);
    if (!std::cout.flush()) throw std::runtime_error("the standard output cannot be written");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "clips: %s\n", error.what());
    return 1;
  }
}
