// SPDX-License-Identifier: Apache-2.0

// A program that uses the installed penstock::video: the index of a file that is no video.

#include <filesystem>
#include <fstream>
#include <iostream>
#include <penstock/video/clip_source.hpp>
#include <string>

int main() {
  namespace video = penstock::video;
  const penstock::images::OutputFormat format{.size = {16, 16}};
  const auto layout = video::clips_layout<float>(2, 4, format);
  const std::filesystem::path path = "no_video.mp4";
  std::ofstream(path) << "no video";
  const video::VideoFiles files({path}, {}, {.save_indexes = false});
  const auto source = video::clip_source<float>(files, video::RandomClip{.frames = 4},
                                                video::WholePicture{.output = format.size}, format);
  static_cast<void>(source);
  try {
    static_cast<void>(files.video(0));
  } catch (const video::VideoError& error) {
    std::cout << layout.bytes() << " bytes; " << error.what() << '\n';
    return std::string(error.what()).find("no_video.mp4: is no MP4") == 0 ? 0 : 1;
  }
  return 1;
}
