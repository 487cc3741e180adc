// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <penstock/markers.hpp>
#include <penstock/video/clip_reader.hpp>
#include <penstock/video/video_error.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "clip_clock.hpp"
#include "engine_pool.hpp"
#include "staging.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

struct DecodeClip {
  static constexpr const char* message = "decode clip";
  static constexpr MarkerCategory category = markers::category::fill;
};
struct WaitForTurn {
  static constexpr const char* message = "wait for a turn of the video engines";
  static constexpr MarkerCategory category = markers::category::wait;
};
struct WaitForStaging {
  static constexpr const char* message = "wait for staging memory";
  static constexpr MarkerCategory category = markers::category::wait;
};

/// How many outputs a kernel makes at most.
constexpr std::size_t kMostOutputs = 4096;
/// Staging memory begins with the descriptions of the outputs.
constexpr std::size_t kDescriptions = kMostOutputs * sizeof(ConvertedFrame);
constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

static_assert(kDescriptions % kAlignment == 0);

void copy_rows(std::byte* to, const std::uint8_t* from, std::int64_t stride, images::ImageSize size,
               std::int64_t sample) {
  const auto bytes = static_cast<std::size_t>(size.width * sample);
  for (std::int32_t row = 0; row < size.height; ++row, to += bytes)
    std::memcpy(to, from + row * stride, bytes);
}

void check(const images::View& view, const VideoStream& stream, images::ImageSize output) {
  const images::ImageSize shown = stream.display();
  const images::Region& region = view.region;
  if (view.output != output)
    throw std::invalid_argument(
        "ClipReader: a view has an output of " + std::to_string(view.output.height) + " x " +
        std::to_string(view.output.width) + " pixels, the format one of " +
        std::to_string(output.height) + " x " + std::to_string(output.width));
  if (region.height < 1 || region.width < 1 || region.top < 0 || region.left < 0 ||
      region.top > shown.height - region.height || region.left > shown.width - region.width)
    throw std::invalid_argument(
        "ClipReader: the region of a view is empty, or not within a picture of " +
        std::to_string(shown.height) + " x " + std::to_string(shown.width) + " pixels");
}

}  // namespace

class ClipReader::Core {
 public:
  explicit Core(const ClipReaderOptions& options)
      : engine_use_(options.engine),
        bytes_(kDescriptions + aligned(options.staging_bytes)),
        decode_(options.decoder),
        lanes_{Lane(bytes_), Lane(bytes_)} {
    if (options.engine == EngineUse::none)
      why_no_engine_ = "no engine is asked for";
    else
      pool_ = EnginePool::of_current_device(why_no_engine_);
    if (pool_ == nullptr && options.engine == EngineUse::required)
      throw std::runtime_error("ClipReader: no engine of the GPU decodes video: " + why_no_engine_);
  }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  ~Core() {
    for (Lane& lane : lanes_) cudaEventSynchronize(lane.staging.free.get());
  }

  void read(const Video& video, std::span<const std::uint64_t> frames, const images::View& view,
            const Launch& launch, cudaStream_t stream, const std::stop_token& stop);
  const DecoderStats& stats() const { return decode_.stats(); }
  const std::string& why_no_engine() const { return why_no_engine_; }
  const ClipTimes& times() const { return times_; }

 private:
  /// An output: the frame that it is made of, and its number.
  using Output = std::pair<std::uint64_t, std::int64_t>;

  class Surfaces;

  struct Lane {
    explicit Lane(std::size_t bytes) : staging(bytes) {}
    Staging staging;
    std::vector<const std::uint8_t*> surfaces{};  ///< of the engine, which its kernel reads
  };

  void read_by_cpu(const Video& video, const images::View& view, const Launch& launch,
                   cudaStream_t stream, const std::stop_token& stop);
  bool read_by_engine(const Video& video, const images::View& view, const Launch& launch,
                      cudaStream_t stream, const std::stop_token& stop);
  bool decode_by_engine(const Video& video, const images::View& view, const Launch& launch,
                        cudaStream_t stream, const std::stop_token& stop);
  void give_back(Lane& lane) noexcept;
  void give_back_all(cudaStream_t stream) noexcept;
  void sort(std::span<const std::uint64_t> frames);
  void take_lane();
  void hand_over(const Launch& launch, cudaStream_t stream);
  void check_room(std::size_t frame, const VideoStream& stream) const;
  FramePlanes stage(const FramePlanes& planes);
  void describe(const ConvertedFrame& frame);

  const EngineUse engine_use_;
  const std::size_t bytes_;
  ClipDecoder decode_;
  std::shared_ptr<EnginePool> pool_;  ///< nullptr: there are no engines
  FrameEngine* engine_ = nullptr;     ///< that decodes this clip; the surfaces are its
  std::string why_no_engine_;
  ClipTimes times_;
  std::array<Lane, 2> lanes_;
  std::size_t turn_ = 0;
  std::size_t outputs_ = 0;           ///< in the current lane
  std::size_t used_ = kDescriptions;  ///< bytes of the current lane
  std::vector<Output> sorted_;
  std::vector<std::uint64_t> frames_;  ///< those of sorted_, each once
};

void ClipReader::Core::sort(std::span<const std::uint64_t> frames) {
  sorted_.clear();
  for (std::size_t i = 0; i < frames.size(); ++i)
    sorted_.emplace_back(frames[i], static_cast<std::int64_t>(i));
  std::sort(sorted_.begin(), sorted_.end());
  frames_.clear();
  for (const auto& [frame, output] : sorted_)
    if (frames_.empty() || frames_.back() != frame) frames_.push_back(frame);
}

/// Begins to write the other lane, when the device has read it.
void ClipReader::Core::take_lane() {
  turn_ = (turn_ + 1) % lanes_.size();
  outputs_ = 0;
  used_ = kDescriptions;
  const ScopedRange range(WaitForStaging{}, turn_);
  const InStage stage(ClipStage::wait_for_device);
  lanes_[turn_].staging.free.synchronize();
  give_back(lanes_[turn_]);
}

/// The kernel that reads the surfaces must be done.
void ClipReader::Core::give_back(Lane& lane) noexcept {
  for (const std::uint8_t* surface : lane.surfaces) engine_->give_back(surface);
  lane.surfaces.clear();
}

/// Waits for all that reads surfaces, or writes them.
void ClipReader::Core::give_back_all(cudaStream_t stream) noexcept {
  const InStage stage(ClipStage::wait_for_device);
  if (!lanes_[turn_].surfaces.empty()) cudaStreamSynchronize(stream);
  for (Lane& lane : lanes_) {
    if (!lane.surfaces.empty()) cudaEventSynchronize(lane.staging.free.get());
    give_back(lane);
  }
}

/// Queues the copy of the lane, and the kernel that reads it.
void ClipReader::Core::hand_over(const Launch& launch, cudaStream_t stream) {
  if (outputs_ == 0) return;
  Staging& lane = lanes_[turn_].staging;
  const auto copy = [&](std::size_t at, std::size_t bytes) {
    penstock::detail::check(cudaMemcpyAsync(lane.device.get() + at, lane.host.get() + at, bytes,
                                            cudaMemcpyHostToDevice, stream),
                            "cudaMemcpyAsync", bytes);
  };
  try {
    copy(0, outputs_ * sizeof(ConvertedFrame));
    if (used_ > kDescriptions) copy(kDescriptions, used_ - kDescriptions);
    launch(reinterpret_cast<const ConvertedFrame*>(lane.device.get()),
           static_cast<std::int64_t>(outputs_));
    lane.free.record(stream);
  } catch (...) {
    cudaStreamSynchronize(stream);  // Nothing else indicates that the lane is in use.
    throw;
  }
  take_lane();
}

void ClipReader::Core::check_room(std::size_t frame, const VideoStream& stream) const {
  if (frame <= bytes_ - kDescriptions) return;
  throw std::invalid_argument("ClipReader: a frame of " + std::to_string(stream.size.height) +
                              " x " + std::to_string(stream.size.width) + " pixels takes " +
                              std::to_string(frame) + " bytes: raise staging_bytes");
}

/// Copies a frame to the lane, without gaps. Returns where it will be on the device.
FramePlanes ClipReader::Core::stage(const FramePlanes& planes) {
  const InStage stage(ClipStage::copy);
  const Staging& lane = lanes_[turn_].staging;
  const std::int64_t sample = sample_bytes(planes.format);
  const images::ImageSize chroma = chroma_size(planes.size);
  FramePlanes staged{planes.format, planes.size};
  staged.luma_stride = planes.size.width * sample;
  staged.chroma_stride = chroma.width * sample;
  const auto put = [&](const std::uint8_t* from, std::int64_t stride, images::ImageSize size) {
    copy_rows(lane.host.get() + used_, from, stride, size, sample);
    const auto* const at = reinterpret_cast<const std::uint8_t*>(lane.device.get() + used_);
    used_ += static_cast<std::size_t>(size.height * size.width * sample);
    return at;
  };
  staged.luma = put(planes.luma, planes.luma_stride, planes.size);
  staged.blue = put(planes.blue, planes.chroma_stride, chroma);
  staged.red = put(planes.red, planes.chroma_stride, chroma);
  used_ = aligned(used_);
  return staged;
}

void ClipReader::Core::describe(const ConvertedFrame& frame) {
  new (lanes_[turn_].staging.host.get() + outputs_ * sizeof(frame)) ConvertedFrame(frame);
  ++outputs_;
}

void ClipReader::Core::read(const Video& video, std::span<const std::uint64_t> frames,
                            const images::View& view, const Launch& launch, cudaStream_t stream,
                            const std::stop_token& stop) {
  const ScopedRange range(DecodeClip{}, frames.size());
  const ClipClock clock(times_);
  const CaptureModeGuard guard;
  sort(frames);
  outputs_ = 0;  // What an exception has left is not used.
  used_ = kDescriptions;
  if (read_by_engine(video, view, launch, stream, stop)) {
    ++times_.by_engine;
  } else {
    read_by_cpu(video, view, launch, stream, stop);
    ++times_.by_cpu;
  }
  times_.frames += frames.size();
}

/// Returns false if the CPU has to decode the clip, and says why.
bool ClipReader::Core::read_by_engine(const Video& video, const images::View& view,
                                      const Launch& launch, cudaStream_t stream,
                                      const std::stop_token& stop) {
  const VideoStream& described = video.index->stream();
  if (pool_ == nullptr) return false;
  if (std::string why = pool_->why_not(described); !why.empty()) {
    why_no_engine_ = std::move(why);
    return false;
  }
  EnginePool::Lease engine;
  {
    const ScopedRange range(WaitForTurn{}, frames_.size());
    const InStage stage(ClipStage::wait_for_decoder);
    engine = pool_->take(described, engine_use_ != EngineUse::if_free, stop);
  }
  engine_ = engine.get();
  return engine != nullptr && decode_by_engine(video, view, launch, stream, stop);
}

void ClipReader::Core::read_by_cpu(const Video& video, const images::View& view,
                                   const Launch& launch, cudaStream_t stream,
                                   const std::stop_token& stop) {
  const VideoStream& described = video.index->stream();
  auto next = sorted_.begin();
  decode_(
      video, frames_,
      [&](std::size_t k, const FramePlanes& planes) {
        const auto bytes =
            aligned(static_cast<std::size_t>(frame_bytes(planes.format, planes.size)));
        check_room(bytes, described);
        if (outputs_ == kMostOutputs || used_ + bytes > bytes_) hand_over(launch, stream);
        FramePlanes staged = stage(planes);
        for (; next != sorted_.end() && next->first == frames_[k]; ++next) {
          if (outputs_ == kMostOutputs) {  // The frame is repeated more often than that.
            hand_over(launch, stream);
            staged = stage(planes);
          }
          describe(converted_frame(staged, described, view, next->second));
        }
      },
      stop);
  hand_over(launch, stream);
}

/// Describes the surfaces of an engine as they come: the kernel reads them where they are.
class ClipReader::Core::Surfaces final : public EngineSink {
 public:
  Surfaces(Core& core, const Video& video, const images::View& view, const Launch& launch,
           cudaStream_t stream)
      : core_(core), video_(video), view_(view), launch_(launch), stream_(stream) {}

  void take(std::size_t k, const FramePlanes& planes) override {
    std::vector<const std::uint8_t*>& surfaces = core_.lanes_[core_.turn_].surfaces;
    surfaces.push_back(planes.luma);
    for (; next_ != core_.sorted_.end() && next_->first == core_.frames_[k]; ++next_) {
      if (core_.outputs_ == kMostOutputs)
        throw VideoError("a frame is repeated too often for the engine");
      core_.describe(converted_frame(planes, video_.index->stream(), view_, next_->second));
    }
    if (surfaces.size() == core_.engine_->surfaces() / core_.lanes_.size())
      core_.hand_over(launch_, stream_);
  }
  void give_back_all() override {
    core_.hand_over(launch_, stream_);
    core_.give_back_all(stream_);
  }

 private:
  Core& core_;
  const Video& video_;
  const images::View& view_;
  const Launch& launch_;
  const cudaStream_t stream_;
  std::vector<Output>::const_iterator next_ = core_.sorted_.begin();
};

/// Returns false if the engine cannot decode the clip: the CPU then says what is wrong with it, or
/// decodes it. All surfaces are given back, so that another reader may have the engine.
bool ClipReader::Core::decode_by_engine(const Video& video, const images::View& view,
                                        const Launch& launch, cudaStream_t stream,
                                        const std::stop_token& stop) try {
  Surfaces sink(*this, video, view, launch, stream);
  engine_->decode(video, frames_, stream, sink, stop);
  sink.give_back_all();
  return true;
} catch (const VideoError& error) {
  why_no_engine_ = error.what();
  give_back_all(stream);
  outputs_ = 0;
  used_ = kDescriptions;
  return false;
} catch (...) {
  give_back_all(stream);
  throw;
}

// ---- ClipReader --------------------------------------------------------------------------------

ClipReader::ClipReader(const ClipReaderOptions& options) : core_(std::make_unique<Core>(options)) {}
ClipReader::ClipReader(ClipReader&&) noexcept = default;
ClipReader& ClipReader::operator=(ClipReader&&) noexcept = default;
ClipReader::~ClipReader() = default;

const std::string& ClipReader::why_no_engine() const noexcept {
  return core_->why_no_engine();
}
const ClipTimes& ClipReader::times() const noexcept {
  return core_->times();
}
const DecoderStats& ClipReader::stats() const noexcept {
  return core_->stats();
}

void ClipReader::read_by(const Video& video, std::span<const std::uint64_t> frames,
                         const images::View& view, images::ImageSize output, const Launch& launch,
                         cudaStream_t stream, const std::stop_token& stop) {
  if (video.index == nullptr) throw std::invalid_argument("ClipReader: the video has no index");
  check(view, video.index->stream(), output);
  core_->read(video, frames, view, launch, stream, stop);
}

}  // namespace penstock::video
