// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <limits>
#include <penstock/detail/mix.hpp>
#include <penstock/video/clip.hpp>
#include <penstock/video/video_error.hpp>
#include <stdexcept>
#include <string>

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

[[noreturn]] void reject(const std::string& why) {
  throw std::invalid_argument("clip of a video: " + why);
}

/// Limits that keep products of frames and strides within 64 bits.
constexpr std::uint64_t kMost = std::uint64_t{1} << 31;

void check(std::uint64_t frames, std::uint64_t stride) {
  if (frames < 1 || frames > kMost || stride < 1 || stride > kMost)
    reject(std::to_string(frames) + " frames with a stride of " + std::to_string(stride) +
           ": both must be from 1 to 2^31");
}

void check(const ClipChoice& choice) {
  if (choice.clip >= choice.clips)
    reject("clip " + std::to_string(choice.clip) + " of a file with " +
           std::to_string(choice.clips) + " clips");
}

[[noreturn]] void too_short(const std::string& file, const std::string& clip) {
  throw VideoError("the file has " + file + ", and a clip needs " + clip +
                   ": choose another rule for short files, or shorter clips");
}

/// A number of [0, 1), from the seed of a sample.
double fraction(std::uint64_t seed) {
  // Another use of the seed, such as a crop, gets numbers that are not related to this one.
  constexpr std::uint64_t kClips = 0x636c697073;  // "clips"
  return std::ldexp(static_cast<double>(penstock::detail::mix64(seed ^ kClips) >> 11), -53);
}

/// Where in its possible places a clip lies, from 0 to 1.
double evenly(const ClipChoice& choice) {
  check(choice);
  if (choice.clips == 1) return 0.5;
  return static_cast<double>(choice.clip) / static_cast<double>(choice.clips - 1);
}

/// Frames at given times from the begin of the file. `place`: where the clip begins, among the
/// possible places, from 0 to 1.
void by_time(double rate, std::uint64_t count, ShortFile rule, double place,
             const FrameIndex& index, std::vector<std::uint64_t>& chosen) {
  if (!std::isfinite(rate) || rate <= 0)
    reject("a rate of " + std::to_string(rate) + " frames per second: it must be above 0");
  const double duration = index.duration(), needed = static_cast<double>(count) / rate;
  if (needed > duration && rule == ShortFile::error)
    too_short(std::to_string(duration) + " s", std::to_string(needed) + " s");
  const double begin = place * std::max(duration - needed, 0.0);
  chosen.clear();
  for (std::uint64_t k = 0; k < count; ++k) {
    double time = begin + static_cast<double>(k) / rate;
    if (rule == ShortFile::loop && time >= duration) time = std::fmod(time, duration);
    chosen.push_back(index.at(time));
  }
}

/// `place`: where the clip begins, among the possible places, from 0 to below 1.
void by_number(std::uint64_t count, std::uint64_t stride, ShortFile rule, double place,
               const FrameIndex& index, std::vector<std::uint64_t>& chosen) {
  check(count, stride);
  const std::uint64_t span = (count - 1) * stride + 1;
  const std::uint64_t places = index.size() > span ? index.size() - span + 1 : 1;
  const auto first = static_cast<std::uint64_t>(place * static_cast<double>(places));
  clip_frames({0, std::min(first, places - 1), count, stride}, index.size(), rule, chosen);
}

}  // namespace

void clip_frames(const Clip& clip, std::uint64_t size, ShortFile rule,
                 std::vector<std::uint64_t>& frames) {
  check(clip.frames, clip.stride);
  if (size == 0) throw VideoError("the file has no frames");
  if (clip.first >= size)
    reject("it begins with frame " + std::to_string(clip.first) + " of a file with " +
           std::to_string(size) + " frames");
  if (rule == ShortFile::error && (clip.frames - 1) * clip.stride > size - 1 - clip.first)
    too_short(std::to_string(size) + " frames",
              std::to_string((clip.frames - 1) * clip.stride + 1) + " from frame " +
                  std::to_string(clip.first) + " on");
  frames.clear();
  for (std::uint64_t k = 0; k < clip.frames; ++k) {
    const std::uint64_t frame = clip.first + k * clip.stride;
    frames.push_back(rule == ShortFile::loop ? frame % size : std::min(frame, size - 1));
  }
}

void RandomClip::operator()(const ClipChoice& choice, const FrameIndex& index,
                            std::vector<std::uint64_t>& chosen) const {
  check(choice);
  check(frames, stride);
  const double place = fraction(
      choice.clips == 1 ? choice.seed : penstock::detail::mix64(choice.seed) + choice.clip);
  if (rate != 0) return by_time(rate, frames, short_file, place, index, chosen);
  by_number(frames, stride, short_file, place, index, chosen);
}

void DenseClips::operator()(const ClipChoice& choice, const FrameIndex& index,
                            std::vector<std::uint64_t>& chosen) const {
  check(frames, stride);
  const double place = evenly(choice);
  if (rate != 0) return by_time(rate, frames, short_file, place, index, chosen);
  const std::uint64_t span = (frames - 1) * stride + 1;
  const std::uint64_t last = index.size() > span ? index.size() - span : 0;
  const auto first = static_cast<std::uint64_t>(std::llround(place * static_cast<double>(last)));
  clip_frames({0, first, frames, stride}, index.size(), short_file, chosen);
}

void UniformFrames::operator()(const ClipChoice& choice, const FrameIndex& index,
                               std::vector<std::uint64_t>& chosen) const {
  check(choice);
  check(frames, 1);
  const double place = (static_cast<double>(choice.clip) + 0.5) / static_cast<double>(choice.clips);
  const double parts = static_cast<double>(frames);
  chosen.clear();
  for (std::uint64_t k = 0; k < frames; ++k) {
    const double at = (static_cast<double>(k) + place) / parts;
    if (by_time) {
      chosen.push_back(index.at(at * index.duration()));
    } else {
      const auto frame = static_cast<std::uint64_t>(at * static_cast<double>(index.size()));
      chosen.push_back(std::min(frame, index.size() - 1));
    }
  }
}

}  // namespace penstock::video
