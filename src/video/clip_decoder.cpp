// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstring>
#include <optional>
#include <penstock/images/image_error.hpp>
#include <penstock/video/clip_decoder.hpp>
#include <penstock/video/video_error.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "clip_clock.hpp"
#include "codec.hpp"
#include "ffmpeg_messages.hpp"
#include "packet_source.hpp"
#include "stream_of.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

/// Whether a decoder of one stream decodes another one as well. The headers must be the same.
bool are_alike(const AVCodecParameters& a, const AVCodecParameters& b) {
  return a.codec_id == b.codec_id && a.width == b.width && a.height == b.height &&
         a.format == b.format && a.extradata_size == b.extradata_size &&
         (a.extradata_size == 0 ||
          std::memcmp(a.extradata, b.extradata, static_cast<std::size_t>(a.extradata_size)) == 0);
}

struct FreeParameters {
  void operator()(AVCodecParameters* parameters) const { avcodec_parameters_free(&parameters); }
};

}  // namespace

class ClipDecoder::Core {
 public:
  explicit Core(const DecoderOptions& options) : options_(options) {
    if (options.threads < 1 || options.threads > 64)
      throw std::invalid_argument("ClipDecoder: " + std::to_string(options.threads) +
                                  " threads: it must be from 1 to 64");
  }

  void decode(const Video& video, std::span<const std::uint64_t> frames, const FrameSink& sink,
              const std::stop_token& stop);
  DecoderStats stats;

 private:
  enum class Step { delivered, missing };

  void open(const Video& video);
  void make_codec();
  Step run_to(std::uint64_t wanted, const std::stop_token& stop);
  bool can_go_on_to(std::uint64_t wanted) const;
  void begin_at(std::uint32_t start);
  bool receive();
  void feed(std::uint64_t wanted);
  bool is_passed_over(std::uint64_t wanted) const;
  void note_damage(int status, std::int64_t time);
  bool is_damaged() const;
  void find(std::uint64_t wanted, const std::stop_token& stop);
  FramePlanes planes(std::uint64_t wanted) const;
  std::optional<std::uint64_t> number_of(std::int64_t time) const;
  [[noreturn]] void fail(std::uint64_t frame, const std::string& why) const;

  const DecoderOptions options_;
  // The file. The index precedes what refers to it.
  std::shared_ptr<const FrameIndex> index_;
  std::optional<PacketSource> packets_;
  std::string name_;
  // The decoder.
  std::unique_ptr<AVCodecParameters, FreeParameters> made_for_;
  std::int32_t made_delay_ = 0;
  CodecHandle codec_;
  PacketHandle packet_{allocated(av_packet_alloc())};
  FrameHandle frame_{allocated(av_frame_alloc())};
  // Where it is.
  bool is_begun_ = false;              ///< it decodes, from start_ on
  std::uint32_t start_ = 0;            ///< the start where it began
  std::uint64_t fed_ = 0;              ///< the number of the next packet
  std::optional<std::uint64_t> last_;  ///< the last frame that came out
  bool is_drained_ = false;            ///< the file has ended
  std::optional<std::string> damage_;  ///< what was damaged since start_
};

void ClipDecoder::Core::fail(std::uint64_t frame, const std::string& why) const {
  throw VideoError(name_ + ": frame " + std::to_string(frame) + ", at " +
                   std::to_string(index_->file_time(frame)) + " s: " + why);
}

// ---- Files and decoders ------------------------------------------------------------------------

void ClipDecoder::Core::open(const Video& video) {
  if (index_ == video.index && name_ == video.file.name() && packets_) return;
  packets_.reset();
  is_begun_ = false;
  index_ = video.index;
  name_ = video.file.name();
  packets_.emplace(video.file, *index_);
  ++stats.files;
  if (codec_ != nullptr && made_delay_ == index_->stream().reorder_delay &&
      are_alike(*made_for_, *packets_->stream().codecpar))
    return;
  try {
    make_codec();
  } catch (const VideoError& error) {
    packets_.reset();
    throw VideoError(name_ + ": " + error.what());
  }
}

void ClipDecoder::Core::make_codec() {
  codec_.reset();  // Both at a time would need twice the memory.
  made_delay_ = index_->stream().reorder_delay;
  made_for_.reset(allocated(avcodec_parameters_alloc()));
  if (avcodec_parameters_copy(made_for_.get(), packets_->stream().codecpar) < 0)
    throw std::bad_alloc();
  codec_ = open_codec(packets_->stream(), made_delay_, options_.max_pixels, options_.threads);
  ++stats.decoders;
}

// ---- Frames ------------------------------------------------------------------------------------

void ClipDecoder::Core::begin_at(std::uint32_t start) {
  is_begun_ = false;
  packets_->go_to(start);
  avcodec_flush_buffers(codec_.get());
  codec_->pkt_timebase = packets_->stream().time_base;
  start_ = start;
  fed_ = index_->starts()[start].packet;
  last_.reset();
  is_drained_ = false;
  damage_.reset();
  is_begun_ = true;
  ++stats.seeks;
}

/// Whether the frame comes out if decoding goes on, and no later than from its own start.
bool ClipDecoder::Core::can_go_on_to(std::uint64_t wanted) const {
  const std::uint32_t start = index_->frames()[wanted].start;
  return is_begun_ && start >= start_ && index_->starts()[start].packet <= fed_ &&
         (!last_ || *last_ < wanted);
}

/// The number of the frame with this time. Of several with one time, the one after the last.
std::optional<std::uint64_t> ClipDecoder::Core::number_of(std::int64_t time) const {
  const auto frames = index_->frames();
  const auto found =
      std::lower_bound(frames.begin(), frames.end(), time,
                       [](const FrameEntry& frame, std::int64_t at) { return frame.time < at; });
  if (found == frames.end() || found->time != time) return std::nullopt;
  auto number = static_cast<std::uint64_t>(found - frames.begin());
  if (last_ && *last_ >= number && *last_ + 1 < frames.size() && frames[*last_ + 1].time == time)
    number = *last_ + 1;
  return number;
}

/// Frames that precede the start, and are decoded after it, may lack what they refer to.
void ClipDecoder::Core::note_damage(int status, std::int64_t time) {
  if (time < index_->starts()[start_].time && index_->starts()[start_].is_key != 0) return;
  if (!damage_)
    damage_ = status == 0 ? "it is damaged, or what it refers to is missing"
                          : "a packet before it cannot be decoded: " + error_text(status);
}

bool ClipDecoder::Core::receive() {
  const InStage stage(ClipStage::libavcodec);
  const int status = avcodec_receive_frame(codec_.get(), frame_.get());
  if (status == AVERROR(ENOMEM)) throw std::bad_alloc();
  if (status < 0 && status != AVERROR(EAGAIN) && status != AVERROR_EOF)
    note_damage(status, packet_->pts);
  if (status >= 0) ClipClock::count_picture();
  return status >= 0;
}

/// Whether the packet is a picture that is displayed before the wanted one. It is decoded only if
/// others refer to it. Without a key frame, what is decoded depends on each picture before.
bool ClipDecoder::Core::is_passed_over(std::uint64_t wanted) const {
  const AVCodecID id = codec_->codec_id;
  return index_->starts()[start_].is_key != 0 &&
         (id == AV_CODEC_ID_H264 || id == AV_CODEC_ID_HEVC) && packet_->pts != AV_NOPTS_VALUE &&
         packet_->pts < index_->frames()[wanted].time;
}

void ClipDecoder::Core::feed(std::uint64_t wanted) {
  if (!packets_->read(*packet_)) {
    const InStage stage(ClipStage::libavcodec);
    avcodec_send_packet(codec_.get(), nullptr);
    is_drained_ = true;
    return;
  }
  ++fed_;
  const InStage stage(ClipStage::libavcodec);
  codec_->skip_frame = is_passed_over(wanted) ? AVDISCARD_NONREF : AVDISCARD_DEFAULT;
  const int status = avcodec_send_packet(codec_.get(), packet_.get());
  if (status == AVERROR(ENOMEM)) throw std::bad_alloc();
  if (status < 0 && status != AVERROR(EAGAIN)) note_damage(status, packet_->pts);
}

/// Decodes until the frame is in frame_, or until it can no longer come out.
ClipDecoder::Core::Step ClipDecoder::Core::run_to(std::uint64_t wanted,
                                                  const std::stop_token& stop) {
  for (;;) {
    while (receive()) {
      const std::optional<std::uint64_t> number = number_of(frame_->pts);
      if (number) last_ = number;
      if (number == wanted) return Step::delivered;
      ++stats.dropped;
      if (number && *number > wanted) return Step::missing;
    }
    if (is_drained_) return Step::missing;
    if (stop.stop_requested()) throw images::DecodeStopped();
    feed(wanted);
  }
}

bool ClipDecoder::Core::is_damaged() const {
  return damage_ || frame_->decode_error_flags != 0 || (frame_->flags & AV_FRAME_FLAG_CORRUPT) != 0;
}

/// Decodes the frame to frame_. A start that the file calls a key frame may be none, such as that
/// of a gradual refresh; then the ones before it are tried.
void ClipDecoder::Core::find(std::uint64_t wanted, const std::stop_token& stop) {
  constexpr int kAttempts = 3;
  std::uint32_t start = index_->frames()[wanted].start;
  bool goes_on = can_go_on_to(wanted), is_found = false;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (!goes_on) begin_at(start);
    is_found = run_to(wanted, stop) == Step::delivered;
    if (is_found && (options_.allow_damaged || !is_damaged())) return;
    if (!goes_on && start-- == 0) break;
    goes_on = false;
  }
  is_begun_ = false;
  if (damage_) fail(wanted, *damage_);
  const std::string why =
      is_found ? "it is damaged" : "the decoder does not deliver it: the file is damaged";
  fail(wanted, why + said_by_ffmpeg());
}

FramePlanes ClipDecoder::Core::planes(std::uint64_t wanted) const {
  const VideoStream& stream = index_->stream();
  if (frame_->height != stream.size.height || frame_->width != stream.size.width)
    fail(wanted, "its size is " + std::to_string(frame_->height) + " x " +
                     std::to_string(frame_->width) + ", and that of the file " +
                     std::to_string(stream.size.height) + " x " +
                     std::to_string(stream.size.width) + ": convert the file to one size");
  const int bits = bits_of(static_cast<AVPixelFormat>(frame_->format));
  if (bits != stream.bits) fail(wanted, "it has another pixel format than the file says");
  return {bits == 8 ? PlaneFormat::i420 : PlaneFormat::i420p10,
          stream.size,
          frame_->data[0],
          frame_->data[1],
          frame_->data[2],
          frame_->linesize[0],
          frame_->linesize[1]};
}

void ClipDecoder::Core::decode(const Video& video, std::span<const std::uint64_t> frames,
                               const FrameSink& sink, const std::stop_token& stop) {
  if (video.index == nullptr) throw std::invalid_argument("ClipDecoder: the video has no index");
  for (std::size_t k = 0; k < frames.size(); ++k) {
    if (frames[k] >= video.index->size())
      throw std::out_of_range("ClipDecoder: frame " + std::to_string(frames[k]) +
                              " of a file with " + std::to_string(video.index->size()) + " frames");
    if (k > 0 && frames[k] <= frames[k - 1])
      throw std::invalid_argument("ClipDecoder: the numbers of the frames do not ascend");
  }
  if (frames.empty()) return;
  open(video);
  for (std::size_t k = 0; k < frames.size(); ++k) {
    find(frames[k], stop);
    sink(k, planes(frames[k]));
    ++stats.frames;
  }
}

// ---- ClipDecoder -------------------------------------------------------------------------------

ClipDecoder::ClipDecoder(const DecoderOptions& options) : core_(std::make_unique<Core>(options)) {}
ClipDecoder::ClipDecoder(ClipDecoder&&) noexcept = default;
ClipDecoder& ClipDecoder::operator=(ClipDecoder&&) noexcept = default;
ClipDecoder::~ClipDecoder() = default;

void ClipDecoder::operator()(const Video& video, std::span<const std::uint64_t> frames,
                             const FrameSink& sink, const std::stop_token& stop) {
  core_->decode(video, frames, sink, stop);
}

const DecoderStats& ClipDecoder::stats() const noexcept {
  return core_->stats;
}

}  // namespace penstock::video
