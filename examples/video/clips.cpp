// SPDX-License-Identifier: Apache-2.0

// clips: random clips of the video files in a folder, as batches in device memory. The same file is
// compiled as C++ over the emulated runtime and, by way of clips.cu, as CUDA C++. Exit codes: 0
// done, 1 an exception, 2 wrong arguments.

#include <cstdint>
#include <exception>
#include <iostream>
#include <penstock/images/crop.hpp>
#include <penstock/penstock.hpp>
#include <penstock/video/clip_source.hpp>
#include <stdexcept>

namespace video = penstock::video;

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "clips FOLDER: the folder of the video files\n";
    return 2;
  }
  const video::VideoFiles files = video::video_files_in(argv[1]);  // indexes are kept beside them
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
  if (!std::cout.flush()) throw std::runtime_error("the standard output cannot be written");
} catch (const std::exception& error) {
  std::cerr << "clips: " << error.what() << '\n';
  return 1;
}
