// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the examples of penstock::video's headers take for granted. Compiled only.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <penstock/file.hpp>
#include <penstock/images/crop.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/source.hpp>
#include <penstock/video/clip_source.hpp>
#include <penstock/video/clip_verdict.hpp>
#include <penstock/video/video_folder.hpp>
#include <vector>

namespace {

struct Bare {
  penstock::Sample sample;
  std::vector<std::filesystem::path> paths;
  std::vector<std::int32_t> labels;
  std::vector<std::uint64_t> frames;
  penstock::video::Video video{penstock::File::open("clip.mp4"), nullptr}, clip = video;
  penstock::video::FramePlanes planes;
  const penstock::video::ConvertedFrame* on_device;
  penstock::images::RandomResizedCrop crop;
  penstock::images::View view;
  penstock::images::OutputFormat format;
  cudaStream_t stream;
  float* out;
};

void clean_up() {}

}  // namespace
