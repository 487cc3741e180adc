// SPDX-License-Identifier: Apache-2.0

// Implements FrameEngine with NVDEC. The library is loaded at run time: a program needs it only if
// there are engines, and a program over the emulated runtime never loads it.

#include "frame_engine.hpp"

#ifndef PENSTOCK_VIDEO_WITH_NVDEC

namespace penstock::inline PENSTOCK_ABI::video {

std::unique_ptr<EngineMaker> make_nvdec(std::string& why_not) {
  why_not = "penstock::video was built without ffnvcodec/dynlink_nvcuvid.h";
  return nullptr;
}

}  // namespace penstock::video

#else

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/images/image_error.hpp>
#include <penstock/markers.hpp>
#include <penstock/video/video_error.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "annexb_filter.hpp"
#include "clip_clock.hpp"
#include "nvdec_decoder.hpp"
#include "nvdec_library.hpp"
#include "packet_source.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

struct WaitForEngine {
  static constexpr const char* message = "wait for a video engine";
  static constexpr MarkerCategory category = markers::category::wait;
};

const char* name_of(Codec codec) {
  switch (codec) {
    case Codec::h264:
      return "H.264";
    case Codec::hevc:
      return "HEVC";
    case Codec::vp9:
      return "VP9";
    case Codec::av1:
      return "AV1";
  }
  return "this codec";
}

cudaVideoCodec engine_codec(Codec codec) {
  switch (codec) {
    case Codec::h264:
      return cudaVideoCodec_H264;
    case Codec::hevc:
      return cudaVideoCodec_HEVC;
    case Codec::vp9:
      return cudaVideoCodec_VP9;
    case Codec::av1:
      return cudaVideoCodec_AV1;
  }
  return cudaVideoCodec_H264;
}

/// Whether a frame of the list is displayed at this time.
bool is_wanted(const FrameIndex& index, std::span<const std::uint64_t> frames, std::int64_t time) {
  const auto found = std::lower_bound(
      frames.begin(), frames.end(), time,
      [&](std::uint64_t frame, std::int64_t at) { return index.frames()[frame].time < at; });
  return found != frames.end() && index.frames()[*found].time == time;
}

class NvdecEngine final : public FrameEngine {
 public:
  explicit NvdecEngine(const NvdecLibrary& library) : library_(library) {}
  ~NvdecEngine() override { end_parser(); }

  std::size_t surfaces() const noexcept override { return kMappedSurfaces; }
  void decode(const Video& video, std::span<const std::uint64_t> frames, cudaStream_t stream,
              EngineSink& sink, const std::stop_token& stop) override;
  void give_back(const std::uint8_t* luma) noexcept override { decoder_->unmap(luma); }

 private:
  /// What is being decoded.
  struct Job {
    std::span<const std::uint64_t> frames;
    cudaStream_t stream;
    EngineSink& sink;
    std::size_t next = 0;   ///< of `frames`
    bool is_needed = true;  ///< the picture of the packet that is parsed is wanted
    std::exception_ptr error{};
  };

  void open(const Video& video);
  void run(const std::stop_token& stop);
  void begin(std::uint32_t start);
  void make_parser();
  void end_parser() noexcept;
  bool feed();
  void flush();
  void parse(CUVIDSOURCEDATAPACKET data);
  int prepare(CUVIDEOFORMAT& format);
  void show(const CUVIDPARSERDISPINFO& shown);

  /// Runs `f` in a callback of the parser, which is C and knows no exceptions. Returns 0 on
  /// failure.
  template <class F>
  static int guarded(void* engine, F&& f) noexcept {
    auto& self = *static_cast<NvdecEngine*>(engine);
    if (self.job_->error != nullptr) return 0;
    try {
      return f(self);
    } catch (...) {
      self.job_->error = std::current_exception();
      return 0;
    }
  }

  const NvdecLibrary& library_;
  /// By codec and bits: another kind needs a new decoder, which takes a tenth of a second.
  std::map<std::pair<Codec, int>, NvdecDecoder> decoders_;
  NvdecDecoder* decoder_ = nullptr;  ///< the one that decodes; all surfaces that are out are its
  CUvideoparser parser_ = nullptr;
  Codec parsed_ = Codec::h264;  ///< the codec of the parser
  CUVIDEOFORMATEX header_{};
  std::shared_ptr<const FrameIndex> index_;
  std::string name_;
  std::optional<PacketSource> packets_;
  std::optional<AnnexbFilter> filter_;
  PacketHandle packet_{allocated(av_packet_alloc())};
  std::uint64_t fed_ = 0;  ///< the number of the next packet
  Job* job_ = nullptr;
};

void NvdecEngine::open(const Video& video) {
  if (index_ == video.index && name_ == video.file.name() && packets_) return;
  filter_.reset();
  packets_.reset();
  if (video.index->stream().codec != parsed_ || parsed_ == Codec::av1)
    end_parser();  // That of AV1 has got the header of its file.
  index_ = video.index;
  name_ = video.file.name();
  packets_.emplace(video.file, *index_);
  filter_.emplace(packets_->stream());
}

/// The decoder may have to be changed for what the parser has found.
int NvdecEngine::prepare(CUVIDEOFORMAT& format) {
  if (NvdecDecoder::size_of(format) != index_->stream().size)
    throw VideoError("the engine finds another size than the file says");
  const VideoStream& stream = index_->stream();
  NvdecDecoder& needed = decoders_.try_emplace({stream.codec, stream.bits}, library_).first->second;
  if (&needed != decoder_ || !needed.is_ready_for(format)) job_->sink.give_back_all();
  decoder_ = &needed;
  decoder_->prepare(format);
  return decoder_->pictures();
}

void NvdecEngine::make_parser() {
  parsed_ = index_->stream().codec;
  header_ = {};
  const AVCodecParameters& parameters = *packets_->stream().codecpar;
  if (parsed_ == Codec::av1 && parameters.extradata_size > 4) {
    constexpr int kRecord = 4;  // The bytes of av1C before the sequence header.
    const auto bytes = std::min(static_cast<std::size_t>(parameters.extradata_size - kRecord),
                                sizeof(header_.raw_seqhdr_data));
    std::memcpy(header_.raw_seqhdr_data, parameters.extradata + kRecord, bytes);
    header_.format.seqhdr_data_length = static_cast<unsigned>(bytes);
  }
  CUVIDPARSERPARAMS params{};
  params.CodecType = engine_codec(parsed_);
  params.ulMaxNumDecodeSurfaces = 1;  // The answer to the sequence says how many there are.
  params.ulErrorThreshold = 100;
  params.ulMaxDisplayDelay = 4;
  params.pUserData = this;
  params.pExtVideoInfo = &header_;
  params.pfnSequenceCallback = [](void* engine, CUVIDEOFORMAT* format) noexcept {
    return guarded(engine, [&](NvdecEngine& self) { return self.prepare(*format); });
  };
  params.pfnDecodePicture = [](void* engine, CUVIDPICPARAMS* picture) noexcept {
    return guarded(engine, [&](NvdecEngine& self) {
      if (!self.job_->is_needed && picture->ref_pic_flag == 0) return 1;
      self.decoder_->decode(*picture);
      ClipClock::count_picture();
      return 1;
    });
  };
  params.pfnDisplayPicture = [](void* engine, CUVIDPARSERDISPINFO* shown) noexcept {
    return guarded(engine, [&](NvdecEngine& self) {
      if (shown != nullptr) self.show(*shown);
      return 1;
    });
  };
  check_cuvid(library_.cuvidCreateVideoParser(&parser_, &params), "cuvidCreateVideoParser");
}

void NvdecEngine::end_parser() noexcept {
  if (parser_ != nullptr) library_.cuvidDestroyVideoParser(parser_);
  parser_ = nullptr;
}

/// The parser has to know the headers of the file, which are not before each start.
void NvdecEngine::begin(std::uint32_t start) {
  if (index_->starts()[start].is_key == 0)
    throw VideoError("the file begins without a key frame: only the CPU decodes its first frames");
  packets_->go_to(start);
  filter_->flush();
  if (parser_ == nullptr) make_parser();
  fed_ = index_->starts()[start].packet;
  const std::span<const std::uint8_t> headers = filter_->headers();
  if (headers.empty()) return;
  CUVIDSOURCEDATAPACKET data{};
  data.payload = headers.data();
  data.payload_size = static_cast<unsigned long>(headers.size());
  parse(data);
}

/// A picture is displayed: gives it to the sink if it is wanted.
void NvdecEngine::show(const CUVIDPARSERDISPINFO& shown) {
  Job& job = *job_;
  if (job.next == job.frames.size()) return;
  const std::uint64_t wanted = job.frames[job.next];
  const std::int64_t time = index_->frames()[wanted].time;
  if (shown.timestamp < time) return;
  if (shown.timestamp > time)
    throw VideoError("the engine does not deliver frame " + std::to_string(wanted));
  FramePlanes planes;
  {
    const ScopedRange range(WaitForEngine{}, wanted);
    planes = decoder_->map(shown, job.stream);
  }
  const bool is_damaged = decoder_->is_damaged(shown.picture_index);
  job.sink.take(job.next, planes);
  ++job.next;
  if (is_damaged)
    throw VideoError("the engine reports that frame " + std::to_string(wanted) + " is damaged");
}

void NvdecEngine::parse(CUVIDSOURCEDATAPACKET data) {
  const InStage stage(ClipStage::engine);
  const CUresult status = library_.cuvidParseVideoData(parser_, &data);
  if (job_->error != nullptr) std::rethrow_exception(std::exchange(job_->error, nullptr));
  check_cuvid(status, "cuvidParseVideoData");
}

/// Feeds the next packet. Returns false at the end of the file. A picture that is not wanted is
/// decoded only if others refer to it: that of H.264 and HEVC is the one of its packet.
bool NvdecEngine::feed() {
  if (!packets_->read(*packet_)) return false;
  ++fed_;
  if ((packet_->flags & AV_PKT_FLAG_DISCARD) != 0) packet_->pts = INT64_MIN + 1;  // not a frame
  const bool is_one_picture = parsed_ == Codec::h264 || parsed_ == Codec::hevc;
  filter_->convert(*packet_, [&](const AVPacket& packet) {
    job_->is_needed = !is_one_picture || is_wanted(*index_, job_->frames, packet.pts);
    CUVIDSOURCEDATAPACKET data{};
    data.flags = CUVID_PKT_TIMESTAMP;
    if (is_one_picture) data.flags |= CUVID_PKT_ENDOFPICTURE;
    data.payload = packet.data;
    data.payload_size = static_cast<unsigned long>(packet.size);
    data.timestamp = packet.pts;
    parse(data);
  });
  return true;
}

/// Brings out all pictures. The parser then forgets what was before.
void NvdecEngine::flush() {
  CUVIDSOURCEDATAPACKET data{};
  data.flags = CUVID_PKT_ENDOFSTREAM;
  parse(data);
}

/// Decodes the frames from the next one on, as far as it goes without another seek.
void NvdecEngine::run(const std::stop_token& stop) {
  Job& job = *job_;
  const auto entry = [&](std::size_t k) { return index_->frames()[job.frames[k]]; };
  std::uint64_t last = entry(job.next).packet;  // the last packet that is needed
  std::size_t end = job.next + 1;
  for (; end < job.frames.size() && index_->starts()[entry(end).start].packet <= last + 1; ++end)
    last = std::max<std::uint64_t>(last, entry(end).packet);
  begin(entry(job.next).start);
  while (fed_ <= last) {
    if (stop.stop_requested()) throw images::DecodeStopped();
    if (!feed()) break;
  }
  flush();
  if (job.next < end)
    throw VideoError("the engine does not deliver frame " + std::to_string(job.frames[job.next]));
}

void NvdecEngine::decode(const Video& video, std::span<const std::uint64_t> frames,
                         cudaStream_t stream, EngineSink& sink, const std::stop_token& stop) {
  Job job{frames, stream, sink};
  job_ = &job;
  try {
    open(video);
    while (job.next < frames.size()) run(stop);
  } catch (...) {
    end_parser();  // It may be within a picture.
    job_ = nullptr;
    throw;
  }
  job_ = nullptr;
}

/// What the engines can do is asked once for each kind of stream: the call takes milliseconds, and
/// those of several threads wait for each other.
class NvdecMaker final : public EngineMaker {
 public:
  explicit NvdecMaker(const NvdecLibrary& library) : library_(library) {}

  std::string why_not(const VideoStream& stream) override;
  int engines(const VideoStream& stream) override {
    return std::max<int>(1, answer(stream).caps.nNumNVDECs);
  }
  std::unique_ptr<FrameEngine> make() override { return std::make_unique<NvdecEngine>(library_); }

 private:
  struct Answer {
    CUVIDDECODECAPS caps{};
    CUresult status = CUDA_SUCCESS;
  };
  const Answer& answer(const VideoStream& stream);

  const NvdecLibrary& library_;
  std::map<std::pair<Codec, int>, Answer> answers_;  ///< by codec and bits
};

const NvdecMaker::Answer& NvdecMaker::answer(const VideoStream& stream) {
  const auto [found, is_new] = answers_.try_emplace({stream.codec, stream.bits});
  Answer& answer = found->second;
  if (!is_new) return answer;
  answer.caps.eCodecType = engine_codec(stream.codec);
  answer.caps.eChromaFormat = cudaVideoChromaFormat_420;
  answer.caps.nBitDepthMinus8 = static_cast<unsigned>(stream.bits - 8);
  answer.status = library_.cuvidGetDecoderCaps(&answer.caps);
  return answer;
}

std::string NvdecMaker::why_not(const VideoStream& stream) {
  const auto& [can, status] = answer(stream);
  if (status != CUDA_SUCCESS) return cuvid_error(status, "cuvidGetDecoderCaps");
  const auto height = static_cast<unsigned>(stream.size.height);
  const auto width = static_cast<unsigned>(stream.size.width);
  const unsigned format = surface_format(static_cast<unsigned>(stream.bits));
  if (can.bIsSupported == 0 || (unsigned{can.nOutputFormatMask} >> format & 1u) == 0)
    return "the engines do not decode " + std::string(name_of(stream.codec)) + " with " +
           std::to_string(stream.bits) + " bits";
  if (width % 2 != 0 || height % 2 != 0 || width < can.nMinWidth || height < can.nMinHeight ||
      width > can.nMaxWidth || height > can.nMaxHeight ||
      ((width + 15) / 16) * ((height + 15) / 16) > can.nMaxMBCount)
    return "the engines decode " + std::string(name_of(stream.codec)) + " of even sizes from " +
           std::to_string(can.nMinWidth) + " x " + std::to_string(can.nMinHeight) + " to " +
           std::to_string(can.nMaxWidth) + " x " + std::to_string(can.nMaxHeight) +
           " pixels, not of " + std::to_string(width) + " x " + std::to_string(height);
  return {};
}

bool is_emulated() {
  cudaDeviceProp properties{};
  penstock::detail::check(cudaGetDeviceProperties(&properties, current_device()),
                          "cudaGetDeviceProperties");
  return std::string_view(properties.name) == "penstock emulated device";
}

}  // namespace

std::unique_ptr<EngineMaker> make_nvdec(std::string& why_not) {
  if (is_emulated()) {
    why_not = "the CUDA runtime is emulated";
    return nullptr;
  }
  const NvdecLibrary* const library = NvdecLibrary::load(why_not);
  if (library == nullptr) return nullptr;
  return std::make_unique<NvdecMaker>(*library);
}

}  // namespace penstock::video

#endif
