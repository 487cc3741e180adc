// SPDX-License-Identifier: Apache-2.0

#include <penstock/video/clip_source.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <penstock/emulation.hpp>
#include <penstock/images/crop.hpp>
#include <penstock/prefetcher.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "clips.hpp"
#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

using namespace test;
using images::OutputFormat;
using penstock::test::DeviceMemory;
using penstock::test::Mentions;
using penstock::test::TestStream;

/// A batch as it has arrived, in host memory.
template <class T>
struct Arrived {
  std::vector<std::uint64_t> samples;
  std::vector<T> pixels;
  std::vector<std::int32_t> labels;
  std::vector<double> times;
};

template <class V, class Tensor>
std::vector<V> values_of(const Tensor& tensor, cudaStream_t stream) {
  std::vector<V> values(static_cast<std::size_t>(tensor.size()));
  REQUIRE_CUDA(cudaMemcpyAsync(values.data(), tensor.data_handle(), values.size() * sizeof(V),
                               cudaMemcpyDeviceToHost, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  return values;
}

template <class T>
std::vector<Arrived<T>> all_batches(Prefetcher<Clips<T>>& prefetcher) {
  const TestStream stream;
  std::vector<Arrived<T>> all;
  while (const auto batch = prefetcher.next(stream)) {
    const auto& samples = batch.ticket().samples;
    all.push_back({{samples.begin(), samples.end()},
                   values_of<T>(batch->pixels, stream),
                   values_of<std::int32_t>(batch->labels, stream),
                   values_of<double>(batch->times, stream)});
  }
  return all;
}

/// What becomes of a whole frame that ffmpeg has decoded, by the kernel.
std::vector<std::uint8_t> converted(const std::string& frame, const VideoStream& stream) {
  const TestStream on;
  const DeviceMemory<std::uint8_t> bytes(frame.size());
  copy_and_wait(bytes, frame.data());
  const images::ImageSize chroma = chroma_size(stream.size);
  const bool is_eight = stream.bits == 8;
  const std::int64_t sample = is_eight ? 1 : 2;
  const std::int64_t blue = sample * stream.size.height * stream.size.width;
  const FramePlanes planes{is_eight ? PlaneFormat::i420 : PlaneFormat::i420p10,
                           stream.size,
                           bytes.data(),
                           bytes.data() + blue,
                           bytes.data() + blue + sample * chroma.height * chroma.width,
                           sample * stream.size.width,
                           sample * chroma.width};
  const ConvertedFrame described =
      converted_frame(planes, stream, images::whole(stream.display()), 0);
  const DeviceMemory<ConvertedFrame> on_device(1);
  copy_and_wait(on_device, &described);
  const OutputFormat format{.size = stream.display()};
  const DeviceMemory<std::uint8_t> out(static_cast<std::size_t>(format.values()));
  convert_frames(on, on_device.data(), 1, format, out.data());
  return out.read();
}

std::vector<std::uint8_t> part(const std::vector<std::uint8_t>& of, std::size_t number,
                               std::size_t size) {
  const auto begin = of.begin() + static_cast<std::ptrdiff_t>(number * size);
  return {begin, begin + static_cast<std::ptrdiff_t>(size)};
}

const OutputFormat kWhole{.size = {64, 96}};
constexpr std::size_t kFrameValues = 64 * 96 * 3;

images::View whole_view(std::uint64_t, images::ImageSize size) {
  return images::whole(size);
}

std::vector<std::filesystem::path> some_files() {
  return {clip(kH264), clip(kOpen), clip(kVariable)};
}

SamplerOptions in_order(std::uint64_t samples, std::int64_t batch) {
  return {.samples = samples, .batch_size = batch};
}

TEST_CASE("A clip source delivers the frames that ffmpeg decodes, labels and times", "[video]") {
  const VideoFiles files(some_files(), {7, 8, 9});
  const DenseClips choose{.frames = 4, .stride = 3};
  Prefetcher<Clips<std::uint8_t>> prefetcher{
      clips_layout<std::uint8_t>(2, 4, kWhole),
      in_order(6, 2),
      clip_source<std::uint8_t>(files, choose, whole_view, kWhole, {.clips_per_file = 2}),
      {.workers = 2}};
  const auto batches = all_batches(prefetcher);
  REQUIRE(batches.size() == 3);
  for (std::size_t file = 0; file < 3; ++file) {  // A batch has both clips of a file.
    const Video video = files.video(file);
    const auto expected = frames_by_ffmpeg(some_files()[file], 64, 96);
    for (std::size_t k = 0; k < 2; ++k) {
      CHECK(batches[file].labels[k] == static_cast<std::int32_t>(7 + file));
      std::vector<std::uint64_t> frames;
      choose({.clip = k, .clips = 2}, *video.index, frames);
      for (std::size_t i = 0; i < 4; ++i) {
        INFO("file " << file << ", clip " << k << ", frame " << frames[i]);
        CHECK(batches[file].times[4 * k + i] == video.index->time(frames[i]));
        CHECK((part(batches[file].pixels, 4 * k + i, kFrameValues) ==
               converted(expected[frames[i]], video.index->stream())));
      }
    }
  }
}

template <class T>
std::vector<Arrived<T>> random_crops(int workers, std::size_t staging) {
  const VideoFiles files({clip(kH264), clip(kHevc10), clip(kVp9), clip(kOpen)});
  const OutputFormat format{.size = {20, 24},
                            .order = images::PixelOrder::nchw,
                            .mean = {0.5f, 0.5f, 0.5f},
                            .standard_deviation = {0.25f, 0.25f, 0.25f}};
  Prefetcher<Clips<T>> prefetcher{
      clips_layout<T>(3, 5, format),
      {.samples = 8, .batch_size = 3, .shuffle = true, .seed = 3},
      clip_source<T>(files, RandomClip{.frames = 5, .stride = 2},
                     images::RandomResizedCrop{.output = format.size}, format,
                     {.clips_per_file = 2, .reader = {.staging_bytes = staging}}),
      {.workers = workers}};
  return all_batches(prefetcher);
}

TEST_CASE("Clips do not depend on the number of workers and on the memory", "[video]") {
  const auto one = random_crops<float>(1, std::size_t{1} << 20);
  const auto three = random_crops<float>(3, 20000);  // A frame of 10 bits takes 18432 bytes.
  REQUIRE(one.size() == 3);
  REQUIRE(three.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(one[i].samples == three[i].samples);
    CHECK((one[i].pixels == three[i].pixels));
    CHECK(one[i].times == three[i].times);
    CHECK(one[i].labels == std::vector<std::int32_t>(one[i].samples.size(), -1));
  }
}

TEST_CASE("Short files repeat their last frame, or begin again", "[video]") {
  const VideoFiles files({clip(kH264)});
  const auto delivered = [&](ShortFile rule) {
    Prefetcher<Clips<std::uint8_t>> prefetcher{
        clips_layout<std::uint8_t>(1, 3, kWhole), in_order(1, 1),
        clip_source<std::uint8_t>(files, DenseClips{.frames = 3, .stride = 40, .short_file = rule},
                                  whole_view, kWhole)};
    return all_batches(prefetcher).at(0).pixels;
  };
  const auto expected = frames_by_ffmpeg(clip(kH264), 64, 96);
  const VideoStream stream = files.video(0).index->stream();
  const auto repeated = delivered(ShortFile::repeat_last), looped = delivered(ShortFile::loop);
  CHECK((part(repeated, 1, kFrameValues) == converted(expected[40], stream)));
  CHECK((part(repeated, 2, kFrameValues) == converted(expected[49], stream)));
  CHECK((part(looped, 2, kFrameValues) == converted(expected[30], stream)));
}

TEST_CASE("A turned video is delivered as it is displayed", "[video]") {
  const auto grey = clip({"grey.mp4", "-c:v libx264 -vf hue=s=0"});
  const auto path = changed(grey, "turned_grey.mp4", "-c copy -metadata:s:v rotate=90");
  const VideoFiles files({path});
  const OutputFormat format{.size = {96, 64}};
  Prefetcher<Clips<std::uint8_t>> prefetcher{
      clips_layout<std::uint8_t>(1, 1, format), in_order(1, 1),
      clip_source<std::uint8_t>(files, UniformFrames{.frames = 1}, whole_view, format)};
  const auto shown = all_batches(prefetcher).at(0).pixels;
  // ffmpeg turns it before its filters.
  const auto raw = folder() / "turned.yuv";
  run_ffmpeg("-i '" + path.string() + "' -vf 'select=eq(n\\,25)' -frames:v 1 -f rawvideo '" +
             raw.string() + "'");
  VideoStream upright = files.video(0).index->stream();
  upright.orientation = {};
  upright.size = {96, 64};
  const auto expected = converted(penstock::test::read_file(raw), upright);
  REQUIRE(shown.size() == expected.size());
  int largest = 0;
  for (std::size_t i = 0; i < shown.size(); ++i)
    largest = std::max(largest, std::abs(shown[i] - expected[i]));
  CHECK(largest <= 1);
}

/// The second of three files is no video.
VideoFiles with_a_bad_file() {
  const auto bad = folder() / "bad.mp4";
  penstock::test::write_file(bad, "no video");
  return VideoFiles({clip(kH264), bad, clip(kOpen)}, {1, 2, 3});
}

TEST_CASE("A bad clip is a failure of its batch that names the file", "[video]") {
  const VideoFiles files = with_a_bad_file();
  Prefetcher<Clips<std::uint8_t>> prefetcher{
      clips_layout<std::uint8_t>(1, 2, kWhole),
      in_order(3, 1),
      clip_source<std::uint8_t>(files, RandomClip{.frames = 2}, whole_view, kWhole),
      {.workers = 2, .on_failure = FailurePolicy::skip(1)}};
  const auto batches = all_batches(prefetcher);
  REQUIRE(batches.size() == 2);
  CHECK(batches[0].labels[0] == 1);
  CHECK(batches[1].labels[0] == 3);
  REQUIRE(prefetcher.failures().size() == 1);
  CHECK_THAT(prefetcher.failures()[0].what, Mentions("bad.mp4: is no MP4 or Matroska file"));
}

TEST_CASE("A bad clip becomes zeros if somebody is told", "[video]") {
  const VideoFiles files = with_a_bad_file();
  std::mutex mutex;
  std::vector<BadClip> bad;
  ClipSourceOptions options;
  options.on_bad_clip = [&](const BadClip& clip) {
    const std::lock_guard lock(mutex);
    bad.push_back(clip);
  };
  Prefetcher<Clips<std::uint8_t>> prefetcher{
      clips_layout<std::uint8_t>(3, 2, kWhole), in_order(3, 3),
      clip_source<std::uint8_t>(files, RandomClip{.frames = 2}, whole_view, kWhole, options)};
  const auto batches = all_batches(prefetcher);
  REQUIRE(batches.size() == 1);
  CHECK(batches[0].labels == std::vector<std::int32_t>{1, -1, 3});
  const auto row = part(batches[0].pixels, 1, 2 * kFrameValues);
  CHECK(std::all_of(row.begin(), row.end(), [](std::uint8_t value) { return value == 0; }));
  REQUIRE(bad.size() == 1);
  CHECK(bad[0].sample == 1);
  CHECK_THAT(bad[0].what, Mentions("bad.mp4: "));
}

TEST_CASE("A clip that is too long for its file names the file", "[video]") {
  const VideoFiles files({clip(kH264)});
  Prefetcher<Clips<std::uint8_t>> prefetcher{
      clips_layout<std::uint8_t>(1, 51, kWhole), in_order(1, 1),
      clip_source<std::uint8_t>(files, RandomClip{.frames = 51, .short_file = ShortFile::error},
                                whole_view, kWhole)};
  const TestStream stream;
  CHECK_THAT(penstock::test::thrown<SourceError>([&] { prefetcher.next(stream); }),
             Mentions("h264.mp4: the file has 50 frames, and a clip needs 51"));
}

TEST_CASE("What does not fit is an error that says what to change", "[video]") {
  const VideoFiles files({clip(kH264)});
  const TestStream stream;
  const DeviceMemory<std::uint8_t> out(kFrameValues);
  const std::vector<std::uint64_t> frames{0};
  ClipReader small({.staging_bytes = 1000}), reader;
  const auto why = [&](ClipReader& by, const images::View& view) {
    return penstock::test::thrown<std::invalid_argument>(
        [&] { by.read(files.video(0), frames, view, kWhole, out.data(), stream); });
  };
  CHECK_THAT(why(small, images::whole({64, 96})), Mentions("raise staging_bytes"));
  CHECK_THAT(why(reader, images::whole({64, 95})), Mentions("a view has an output of 64 x 95"));
  images::View outside = images::whole({64, 96});
  outside.region.left = 1;
  CHECK_THAT(why(reader, outside), Mentions("not within a picture of 64 x 96"));
  CHECK_THROWS_AS(reader.read({files.video(0).file, nullptr}, frames, images::whole({64, 96}),
                              kWhole, out.data(), stream),
                  std::invalid_argument);
}

TEST_CASE("After warm-up a clip reader makes no CUDA objects and takes no CUDA memory", "[video]") {
  const VideoFiles files(some_files());
  const TestStream stream;
  const DeviceMemory<std::uint8_t> out(2 * kFrameValues);
  ClipReader reader;
  const std::vector<std::uint64_t> frames{3, 20};
  const auto read = [&](std::uint64_t file) {
    reader.read(files.video(file), frames, images::whole({64, 96}), kWhole, out.data(), stream);
  };
  read(0);
  const char* const calls[] = {"cudaMalloc", "cudaHostAlloc", "cudaEventCreateWithFlags",
                               "cudaStreamCreateWithPriority"};
  std::vector<std::uint64_t> before;
  for (const char* call : calls) before.push_back(emulation::calls(call));
  for (std::uint64_t i = 0; i < 9; ++i) read(i % 3);
  for (std::size_t i = 0; i < 4; ++i) CHECK(emulation::calls(calls[i]) == before[i]);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
}

TEST_CASE("Without an engine of a GPU the CPU decodes, or an error says why there is none",
          "[video]") {
  const ClipReader reader({.engine = EngineUse::if_possible}), cpu;
  CHECK(reader.times().by_engine == 0);
  CHECK(cpu.why_no_engine() == "no engine is asked for");
  CHECK_FALSE(reader.why_no_engine().empty());
  CHECK_THAT(penstock::test::thrown<std::runtime_error>(
                 [] { ClipReader({.engine = EngineUse::required}); }),
             Mentions("no engine of the GPU decodes video: " + reader.why_no_engine()));
}

TEST_CASE("A whole picture is resized to its output", "[video]") {
  const images::View view = WholePicture{.output = {10, 30}}(0, {20, 90});
  CHECK(view.step_y == 2);
  CHECK(view.step_x == 3);
  CHECK(view.region == images::Region{0, 0, 20, 90});
  CHECK_THROWS_AS((WholePicture{.output = {0, 1}}(0, {2, 2})), std::invalid_argument);
}

}  // namespace
}  // namespace penstock::video
