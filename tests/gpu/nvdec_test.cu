// SPDX-License-Identifier: Apache-2.0

// ClipReader by NVDEC and by the CPU: the same frames of the same files. PENSTOCK_VIDEO_CLIPS may
// name a folder that has the clips already, for a machine without ffmpeg.

#include <penstock/video/clip_reader.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
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

std::vector<std::uint8_t> read(ClipReader& reader, const Video& video,
                               const std::vector<std::uint64_t>& frames) {
  const TestStream stream;
  const images::OutputFormat format{.size = video.index->stream().display()};
  const DeviceMemory<std::uint8_t> out(frames.size() * static_cast<std::size_t>(format.values()));
  reader.read(video, frames, images::whole(format.size), format, out.data(), stream);
  return out.read();
}

TEST_CASE("NVDEC delivers the frames that the CPU delivers", "[video][gpu]") {
  ClipReader cpu, engine({.engine = EngineUse::if_possible});
  INFO(engine.why_no_engine());
  if (!engine.why_no_engine().empty()) return;
  for (const Kind& kind : {kLarge, kLargeOpen, kLargeHevc, kLargeHevc10, kLargeVp9, kLargeAv1}) {
    const File file = File::open(clip(kind, kLargePicture));
    const Video video{file, std::make_shared<FrameIndex>(FrameIndex::make(file))};
    for (const std::vector<std::uint64_t>& frames :
         {std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
          std::vector<std::uint64_t>{31}, std::vector<std::uint64_t>{13, 2, 13, 49, 25}}) {
      const std::uint64_t before = engine.clips_by_engine();
      const auto by_cpu = read(cpu, video, frames), by_engine = read(engine, video, frames);
      INFO(kind.file << ", from frame " << frames[0]);
      CHECK(engine.clips_by_engine() == before + 1);
      int largest = 0;
      for (std::size_t i = 0; i < by_cpu.size(); ++i)
        largest = std::max(largest, std::abs(by_cpu[i] - by_engine[i]));
      CHECK(largest <= 1);  // The codecs are exact; the order of samples changes the rounding.
    }
  }
}

}  // namespace
}  // namespace penstock::video
