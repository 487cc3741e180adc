// SPDX-License-Identifier: Apache-2.0

// ClipReader by NVDEC and by the CPU: the same frames of the same files. PENSTOCK_VIDEO_CLIPS may
// name a folder that has the clips already, for a machine without ffmpeg.

#include <penstock/video/clip_reader.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <penstock/video/engine_use.hpp>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "video/clips.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

using namespace test;
using penstock::test::DeviceMemory;
using penstock::test::TestStream;

images::OutputFormat format_of(const Video& video) {
  return {.size = video.index->stream().display()};
}

/// Memory of the device for the outputs of some frames.
class Outputs {
 public:
  Outputs(ClipReader& reader, const Video& video, const std::vector<std::uint64_t>& frames,
          const TestStream& stream)
      : memory_(frames.size() * static_cast<std::size_t>(format_of(video).values())) {
    const images::OutputFormat format = format_of(video);
    reader.read(video, frames, images::whole(format.size), format, memory_.data(), stream);
  }
  std::vector<std::uint8_t> read() const { return memory_.read(); }

 private:
  DeviceMemory<std::uint8_t> memory_;
};

/// The codecs are exact; the order of samples changes the rounding.
bool are_equal(const Outputs& a, const Outputs& b) {
  const std::vector<std::uint8_t> left = a.read(), right = b.read();
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](int x, int y) { return std::abs(x - y) <= 1; });
}

Video open(const Kind& kind, const char* input) {
  const File file = File::open(clip(kind, input));
  return {file, std::make_shared<FrameIndex>(FrameIndex::make(file))};
}

bool has_engine(const ClipReader& reader) {
  if (reader.why_no_engine().empty()) return true;
  WARN(reader.why_no_engine());
  return false;
}

TEST_CASE("NVDEC delivers the frames that the CPU delivers", "[video][gpu]") {
  ClipReader cpu, engine({.engine = EngineUse::if_possible});
  if (!has_engine(engine)) return;
  const TestStream stream;
  for (const Kind& kind : {kLarge, kLargeOpen, kLargeHevc, kLargeHevc10, kLargeVp9, kLargeAv1}) {
    const Video video = open(kind, kLargePicture);
    for (const std::vector<std::uint64_t>& frames :
         {std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
          std::vector<std::uint64_t>{31}, std::vector<std::uint64_t>{13, 2, 13, 49, 25}}) {
      const std::uint64_t before = engine.times().by_engine;
      const Outputs by_cpu(cpu, video, frames, stream), by_engine(engine, video, frames, stream);
      INFO(kind.file << ", from frame " << frames[0] << ": " << engine.why_no_engine());
      CHECK(are_equal(by_cpu, by_engine));
      // Not all GPUs have engines for AV1.
      if (engine.why_no_engine() != "the engines do not decode AV1 with 8 bits")
        CHECK(engine.times().by_engine == before + 1);
    }
  }
}

TEST_CASE("NVDEC's decoders are changed for other sizes while kernels still read", "[video][gpu]") {
  ClipReader cpu, engine({.engine = EngineUse::if_possible});
  if (!has_engine(engine)) return;
  const TestStream stream;
  const char* const options = "-c:v libx264 -g 12 -bf 2";
  const std::vector<Video> videos{
      open({"mixed_640x480.mp4", options}, "testsrc2=size=640x480:rate=25:duration=2"),
      open({"mixed_1280x720.mp4", options}, "testsrc2=size=1280x720:rate=25:duration=2"),
      open(kLargeHevc, kLargePicture),
      open({"mixed_426x240.mp4", options}, "testsrc2=size=426x240:rate=25:duration=2"),
      open(kLarge, kLargePicture)};
  const std::vector<std::uint64_t> frames{5, 6, 7, 8, 9, 20, 21, 40};
  std::vector<std::unique_ptr<Outputs>> by_engine;
  for (int round = 0; round < 3; ++round)
    for (const Video& video : videos)
      by_engine.push_back(std::make_unique<Outputs>(engine, video, frames, stream));
  CHECK(engine.times().by_engine == by_engine.size());
  for (std::size_t i = 0; i < by_engine.size(); ++i)
    CHECK(are_equal(*by_engine[i], Outputs(cpu, videos[i % videos.size()], frames, stream)));
}

TEST_CASE("while NVDEC decodes, the driver says how busy it is, and the clips where they wait",
          "[video][gpu]") {
  ClipReader reader({.engine = EngineUse::if_possible});
  if (!has_engine(reader)) return;
  const Video video = open(kLarge, kLargePicture);
  const TestStream stream;
  std::vector<std::uint64_t> frames(50);
  std::iota(frames.begin(), frames.end(), 0);
  std::string why_not;
  double most = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (std::chrono::steady_clock::now() < end) {
    const Outputs clip(reader, video, frames, stream);
    const std::optional<double> use = engine_use(why_not);
    INFO(why_not);
    REQUIRE(use.has_value());
    most = std::max(most, *use);
  }
  CHECK(most > 0);
  CHECK(most <= 1);
  CHECK(reader.times()[ClipStage::engine] > reader.times().total() / 4);
  CHECK(reader.times().pictures >= reader.times().frames);
}

TEST_CASE("more readers than decoders share the engines, and the CPU has the rest",
          "[video][gpu]") {
  if (!has_engine(ClipReader({.engine = EngineUse::if_possible}))) return;
  const Video video = open(kLarge, kLargePicture);
  const std::vector<std::uint64_t> frames{9, 10, 11, 12, 13, 14, 15, 16};
  const TestStream stream;
  ClipReader cpu;
  const std::vector<std::uint8_t> expected = Outputs(cpu, video, frames, stream).read();
  for (const EngineUse use : {EngineUse::required, EngineUse::if_free}) {
    std::atomic<std::uint64_t> by_engine = 0, wrong = 0;
    constexpr int kReaders = 24, kClips = 6;
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < kReaders; ++i)
        threads.emplace_back([&] {
          const penstock::Stream own;
          ClipReader reader({.engine = use});
          const images::OutputFormat format = format_of(video);
          const std::size_t bytes = frames.size() * static_cast<std::size_t>(format.values());
          std::uint8_t* memory = nullptr;
          if (cudaMalloc(&memory, bytes) != cudaSuccess) ++wrong;
          for (int k = 0; k < kClips; ++k)
            reader.read(video, frames, images::whole(format.size), format, memory, own.get());
          std::vector<std::uint8_t> read(bytes);
          own.synchronize();
          cudaMemcpy(read.data(), memory, bytes, cudaMemcpyDeviceToHost);
          cudaFree(memory);
          by_engine += reader.times().by_engine;
          if (!std::equal(read.begin(), read.end(), expected.begin(),
                          [](int x, int y) { return std::abs(x - y) <= 1; }))
            ++wrong;
        });
    }
    CHECK(wrong == 0);
    CHECK(by_engine > 0);
    if (use == EngineUse::required) CHECK(by_engine == std::uint64_t{kReaders * kClips});
  }
}

}  // namespace
}  // namespace penstock::video
