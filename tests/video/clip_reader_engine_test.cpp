// SPDX-License-Identifier: Apache-2.0

// ClipReader with engines. Those of this program take the place of NVDEC: libavcodec decodes, and
// the frames come in a few surfaces of device memory that are overwritten when they are given back.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <penstock/cuda.hpp>
#include <penstock/images/image_error.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/video/clip_reader.hpp>
#include <penstock/video/clip_source.hpp>
#include <penstock/video/video_error.hpp>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "clips.hpp"
#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/thrown.hpp"
#include "video/engine_pool.hpp"
#include "video/staging.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

using namespace test;
using penstock::test::DeviceMemory;
using penstock::test::Mentions;
using penstock::test::TestStream;

constexpr std::size_t kSurfaces = 4;
constexpr std::size_t kSurfaceBytes = 64 << 10;

/// What the engines do in place of decoding.
enum class Trouble { none, fails, has_no_memory, changes_decoder };

std::atomic<Trouble> trouble = Trouble::none;
std::atomic<int> surfaces_out = 0, engines_made = 0;

class LibavcodecEngine final : public FrameEngine {
 public:
  LibavcodecEngine() {
    for (std::size_t i = 0; i < kSurfaces; ++i) surfaces_.push_back(std::make_unique<Surface>());
  }

  std::size_t surfaces() const noexcept override { return kSurfaces; }

  void decode(const Video& video, std::span<const std::uint64_t> frames, cudaStream_t stream,
              EngineSink& sink, const std::stop_token& stop) override {
    decoder_(
        video, frames,
        [&](std::size_t k, const FramePlanes& planes) {
          if (k == frames.size() / 2) cause_trouble(sink);
          sink.take(k, to_surface(planes, stream));
        },
        stop);
  }

  void give_back(const std::uint8_t* luma) noexcept override {
    for (const auto& surface : surfaces_)
      if (surface->luma() == luma) {
        // A kernel that still reads would see this.
        cudaMemsetAsync(surface->luma(), 0xaa, kSurfaceBytes, other_.get());
        cudaStreamSynchronize(other_.get());
        surface->is_out = false;
        --surfaces_out;
      }
  }

 private:
  struct Surface {
    Staging memory{kSurfaceBytes};
    bool is_out = false;
    std::uint8_t* luma() const { return reinterpret_cast<std::uint8_t*>(memory.device.get()); }
  };

  void cause_trouble(EngineSink& sink) const {
    switch (trouble.load()) {
      case Trouble::none:
        return;
      case Trouble::fails:
        throw VideoError("the engine is damaged");
      case Trouble::has_no_memory:
        throw std::bad_alloc();
      case Trouble::changes_decoder:
        sink.give_back_all();
        for (const auto& surface : surfaces_)
          if (surface->is_out) throw std::logic_error("a surface was not given back");
    }
  }

  /// The planes as NVDEC has them: NV12, or P010 with the bits at the top.
  FramePlanes to_surface(const FramePlanes& planes, cudaStream_t stream) {
    const auto free = std::find_if(surfaces_.begin(), surfaces_.end(),
                                   [](const auto& surface) { return !surface->is_out; });
    if (free == surfaces_.end()) throw std::logic_error("too many surfaces are out");
    Surface& surface = **free;
    surface.is_out = true;
    ++surfaces_out;
    const bool is_eight = planes.format == PlaneFormat::i420;
    const std::size_t sample = is_eight ? 1 : 2;
    const images::ImageSize chroma = chroma_size(planes.size);
    const auto width = static_cast<std::size_t>(planes.size.width);
    const std::size_t pitch = 2 * static_cast<std::size_t>(chroma.width) * sample;
    auto* const out = reinterpret_cast<std::uint8_t*>(surface.memory.host.get());
    const auto put = [&](const std::uint8_t* from, std::size_t at) {
      if (is_eight) {
        out[at] = *from;
        return;
      }
      std::uint16_t value = 0;
      std::memcpy(&value, from, sizeof(value));
      value = static_cast<std::uint16_t>(value << 6u);
      std::memcpy(out + 2 * at, &value, sizeof(value));
    };
    const std::size_t samples_of_pitch = pitch / sample;
    for (std::int32_t y = 0; y < planes.size.height; ++y)
      for (std::size_t x = 0; x < width; ++x)
        put(planes.luma + y * planes.luma_stride + static_cast<std::ptrdiff_t>(x * sample),
            static_cast<std::size_t>(y) * samples_of_pitch + x);
    const std::size_t begin = static_cast<std::size_t>(planes.size.height) * samples_of_pitch;
    for (std::int32_t y = 0; y < chroma.height; ++y)
      for (std::size_t x = 0; x < static_cast<std::size_t>(chroma.width); ++x) {
        const auto from = y * planes.chroma_stride + static_cast<std::ptrdiff_t>(x * sample);
        const std::size_t at = begin + static_cast<std::size_t>(y) * samples_of_pitch + 2 * x;
        put(planes.blue + from, at);
        put(planes.red + from, at + 1);
      }
    cudaMemcpyAsync(surface.luma(), out, kSurfaceBytes, cudaMemcpyHostToDevice, stream);
    const std::uint8_t* const luma = surface.luma();
    const std::uint8_t* const both = luma + begin * sample;
    return {is_eight ? PlaneFormat::nv12 : PlaneFormat::p010,
            planes.size,
            luma,
            both,
            both + sample,
            static_cast<std::int64_t>(pitch),
            static_cast<std::int64_t>(pitch)};
  }

  ClipDecoder decoder_;
  Stream other_;
  std::vector<std::unique_ptr<Surface>> surfaces_;
};

class LibavcodecMaker final : public EngineMaker {
 public:
  std::string why_not(const VideoStream& stream) override {
    return stream.codec == Codec::vp9 ? "no VP9 here" : "";
  }
  int engines(const VideoStream&) override { return 1; }
  std::unique_ptr<FrameEngine> make() override {
    ++engines_made;
    return std::make_unique<LibavcodecEngine>();
  }
};

/// Causes trouble as long as it lives.
class Causes {
 public:
  explicit Causes(Trouble what) { trouble = what; }
  Causes(const Causes&) = delete;
  Causes& operator=(const Causes&) = delete;
  ~Causes() { trouble = Trouble::none; }
};

/// Little staging memory, since the system clears all of it.
ClipReaderOptions with(EngineUse use) {
  return {.engine = use, .staging_bytes = std::size_t{1} << 20};
}

Video open(const Kind& kind) {
  const File file = File::open(clip(kind));
  return {file, std::make_shared<FrameIndex>(FrameIndex::make(file))};
}

/// The whole pictures, as small as a thumbnail: few pixels, since kernels run on the CPU.
std::vector<std::uint8_t> outputs(ClipReader& reader, const Video& video,
                                  const std::vector<std::uint64_t>& frames,
                                  const std::stop_token& stop = {}) {
  const TestStream stream;
  const images::OutputFormat format{.size = {16, 24}};
  const images::View view = WholePicture{format.size}(0, video.index->stream().display());
  const DeviceMemory<std::uint8_t> out(frames.size() * static_cast<std::size_t>(format.values()));
  reader.read(video, frames, view, format, out.data(), stream, stop);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  return out.read();
}

/// The order of the samples changes the rounding.
bool are_alike(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](int x, int y) { return std::abs(x - y) <= 1; });
}

const std::vector<std::uint64_t> kTwelve{3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};

TEST_CASE("a reader delivers what an engine decodes, in any order and with repetitions",
          "[video]") {
  ClipReader cpu(with(EngineUse::none)), engine(with(EngineUse::required));
  for (const Kind& kind : {kH264, kOpen, kHevc10}) {
    const Video video = open(kind);
    for (const std::vector<std::uint64_t>& frames :
         {kTwelve, std::vector<std::uint64_t>{31}, std::vector<std::uint64_t>{13, 2, 13, 49, 25}}) {
      INFO(kind.file << ", from frame " << frames[0]);
      const std::uint64_t before = engine.times().by_engine;
      CHECK(are_alike(outputs(engine, video, frames), outputs(cpu, video, frames)));
      CHECK(engine.times().by_engine == before + 1);
      CHECK(surfaces_out == 0);
    }
  }
  CHECK(engine.times().by_cpu == 0);
  CHECK(engine.why_no_engine().empty());
  CHECK(engine.times()[ClipStage::libavcodec].count() > 0);  // These engines are libavcodec.
  CHECK(cpu.times()[ClipStage::copy].count() > 0);
  CHECK(cpu.times().pictures >= cpu.times().frames - 3);  // Of a repeated frame there is one.
}

TEST_CASE("what an engine does not decode or deliver, the CPU decodes", "[video]") {
  ClipReader cpu(with(EngineUse::none)), engine(with(EngineUse::required));
  const Video vp9 = open(kVp9), h264 = open(kH264);
  CHECK(outputs(engine, vp9, {1, 2}) == outputs(cpu, vp9, {1, 2}));
  CHECK(engine.why_no_engine() == "no VP9 here");
  {
    const Causes fails(Trouble::fails);
    CHECK(outputs(engine, h264, kTwelve) == outputs(cpu, h264, kTwelve));
    CHECK(engine.why_no_engine() == "the engine is damaged");
  }
  const std::vector<std::uint64_t> too_often(4097, 3);
  CHECK(outputs(engine, h264, too_often) == outputs(cpu, h264, too_often));
  CHECK_THAT(engine.why_no_engine(), Mentions("repeated too often"));
  CHECK(engine.times().by_cpu == 3);
  CHECK(surfaces_out == 0);
  CHECK(are_alike(outputs(engine, h264, kTwelve), outputs(cpu, h264, kTwelve)));
  CHECK(engine.times().by_engine == 1);
}

TEST_CASE("an engine gets all surfaces back before it changes its decoder", "[video]") {
  ClipReader cpu(with(EngineUse::none)), engine(with(EngineUse::required));
  const Video video = open(kH264);
  const Causes changes(Trouble::changes_decoder);
  CHECK(are_alike(outputs(engine, video, kTwelve), outputs(cpu, video, kTwelve)));
  CHECK(engine.times().by_engine == 1);
}

TEST_CASE("after an error the engine is free again, with all its surfaces", "[video]") {
  ClipReader cpu(with(EngineUse::none)), engine(with(EngineUse::required));
  const Video video = open(kH264);
  const int made = engines_made;
  for (int i = 0; i < 5; ++i) {
    const Causes no_memory(Trouble::has_no_memory);
    CHECK_THROWS_AS(outputs(engine, video, kTwelve), std::bad_alloc);
    CHECK(surfaces_out == 0);
  }
  CHECK(engines_made <= made + 1);
  CHECK(are_alike(outputs(engine, video, kTwelve), outputs(cpu, video, kTwelve)));
}

TEST_CASE("a clip for which no decoder is free goes to the CPU, or waits until a stop", "[video]") {
  std::string why_not;
  const std::shared_ptr<EnginePool> pool = EnginePool::of_current_device(why_not);
  const Video video = open(kH264);
  const VideoStream& stream = video.index->stream();
  ClipReader free(with(EngineUse::if_free)), waits(with(EngineUse::if_possible));
  std::stop_source stop;
  {
    const EnginePool::Lease one = pool->take(stream, false, {}),
                            two = pool->take(stream, false, {});
    REQUIRE(two != nullptr);
    outputs(free, video, kTwelve);
    CHECK(free.times().by_cpu == 1);
    const std::jthread stops([&] { stop.request_stop(); });
    CHECK_THROWS_AS(outputs(waits, video, kTwelve, stop.get_token()), images::DecodeStopped);
  }
  outputs(free, video, kTwelve);
  CHECK(free.times().by_engine == 1);
}

TEST_CASE("workers share engines, and their totals have each clip once", "[video]") {
  const std::vector<std::filesystem::path> paths{clip(kH264), clip(kOpen), clip(kVp9)};
  const VideoFiles files(paths);
  const images::OutputFormat format{.size = {16, 24}};
  constexpr std::uint64_t kClips = 24;
  ClipTotals totals;
  std::vector<std::uint8_t> first;
  for (const EngineUse use : {EngineUse::none, EngineUse::if_possible, EngineUse::if_free}) {
    const ClipTimes before = totals.read();
    Prefetcher<Clips<std::uint8_t>> prefetcher{
        clips_layout<std::uint8_t>(4, 6, format),
        {.samples = kClips, .batch_size = 4},
        clip_source<std::uint8_t>(files, RandomClip{.frames = 6}, WholePicture{format.size}, format,
                                  {.clips_per_file = 8, .reader = with(use), .totals = &totals}),
        {.workers = 4}};
    const TestStream stream;
    std::vector<std::uint8_t> all;
    while (const auto batch = prefetcher.next(stream)) {
      const std::size_t at = all.size(), bytes = static_cast<std::size_t>(batch->pixels.size());
      all.resize(at + bytes);
      REQUIRE(cudaMemcpyAsync(all.data() + at, batch->pixels.data_handle(), bytes,
                              cudaMemcpyDeviceToHost, stream) == cudaSuccess);
      REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    }
    if (use == EngineUse::none) first = all;
    CHECK(are_alike(all, first));
    ClipTimes now = totals.read();
    now -= before;
    CHECK(now.by_engine + now.by_cpu == kClips);
    CHECK(now.frames == kClips * 6);
    CHECK(now.pictures >= now.frames);
    if (use == EngineUse::if_possible) CHECK(now.by_engine == kClips * 2 / 3);
    for (const ClipStage stage : {ClipStage::index, ClipStage::open_file, ClipStage::seek,
                                  ClipStage::read_packets, ClipStage::libavcodec})
      CHECK(now[stage].count() > 0);
  }
}

}  // namespace

/// Takes the place of that of the library.
std::unique_ptr<EngineMaker> make_nvdec(std::string&) {
  return std::make_unique<LibavcodecMaker>();
}

}  // namespace penstock::video
