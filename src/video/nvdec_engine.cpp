// SPDX-License-Identifier: Apache-2.0

// Implements FrameEngine with NVDEC. The library is loaded at run time: a program needs it only if
// there are engines, and a program over the emulated runtime never loads it.

#include "frame_engine.hpp"

#ifndef PENSTOCK_VIDEO_WITH_NVDEC

namespace penstock::inline PENSTOCK_ABI::video {

std::unique_ptr<FrameEngine> make_nvdec_engine(std::string& why_not) {
  why_not = "penstock::video was built without ffnvcodec/dynlink_nvcuvid.h";
  return nullptr;
}

}  // namespace penstock::video

#else

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/images/image_error.hpp>
#include <penstock/video/video_error.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "annexb_filter.hpp"
#include "nvdec_library.hpp"
#include "packet_source.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

constexpr std::size_t kSurfaces = 8;  ///< mapped at a time

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

void check_cuvid(CUresult status, const char* call) {
  if (status != CUDA_SUCCESS)
    throw VideoError(std::string(call) + ": status " + std::to_string(static_cast<int>(status)) +
                     " (CUresult)");
}

cudaVideoSurfaceFormat surface_format(unsigned bits) {
  return bits == 8 ? cudaVideoSurfaceFormat_NV12 : cudaVideoSurfaceFormat_P016;
}

/// A decoder of the engine, which is kept and reconfigured.
class Decoder {
 public:
  explicit Decoder(const NvdecLibrary& library) : library_(library) {}
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() { destroy(); }

  /// Makes it ready for a stream. Returns the number of its surfaces, for the parser.
  int prepare(const CUVIDEOFORMAT& format) {
    const unsigned surfaces = std::max<unsigned>(format.min_num_decode_surfaces, 4) + 4;
    if (handle_ != nullptr && is_same(format)) return static_cast<int>(surfaces_);
    if (handle_ == nullptr || !reconfigure(format, surfaces)) create(format, surfaces);
    format_ = format;
    return static_cast<int>(surfaces_);
  }

  void decode(CUVIDPICPARAMS& picture) const {
    check_cuvid(library_.cuvidDecodePicture(handle_, &picture), "cuvidDecodePicture");
  }

  /// Whether the engine has reported an error of this picture.
  bool is_damaged(int picture) const {
    CUVIDGETDECODESTATUS status{};
    if (library_.cuvidGetDecodeStatus(handle_, picture, &status) != CUDA_SUCCESS) return false;
    return status.decodeStatus == cuvidDecodeStatus_Error ||
           status.decodeStatus == cuvidDecodeStatus_Error_Concealed;
  }

  FramePlanes map(const CUVIDPARSERDISPINFO& shown, cudaStream_t stream) const {
    CUVIDPROCPARAMS how{};
    how.progressive_frame = shown.progressive_frame;
    how.top_field_first = shown.top_field_first;
    how.unpaired_field = shown.repeat_first_field < 0 ? 1 : 0;
    how.output_stream = reinterpret_cast<CUstream>(stream);
    unsigned long long address = 0;
    unsigned pitch = 0;
    check_cuvid(library_.cuvidMapVideoFrame64(handle_, shown.picture_index, &address, &pitch, &how),
                "cuvidMapVideoFrame64");
    const images::ImageSize size = size_of(format_);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of device memory
    const auto* const luma = reinterpret_cast<const std::uint8_t*>(address);
    const bool is_eight = format_.bit_depth_luma_minus8 == 0;
    const std::uint8_t* const chroma =
        luma + std::size_t{pitch} * static_cast<std::size_t>(size.height);
    return {is_eight ? PlaneFormat::nv12 : PlaneFormat::p010,
            size,
            luma,
            chroma,
            chroma + (is_eight ? 1 : 2),
            pitch,
            pitch};
  }
  void unmap(const std::uint8_t* luma) const noexcept {
    library_.cuvidUnmapVideoFrame64(handle_, reinterpret_cast<unsigned long long>(luma));
  }

  static images::ImageSize size_of(const CUVIDEOFORMAT& format) {
    return {format.display_area.bottom - format.display_area.top,
            format.display_area.right - format.display_area.left};
  }

 private:
  bool is_same(const CUVIDEOFORMAT& format) const {
    return has_same_samples(format) && format.coded_width == format_.coded_width &&
           format.coded_height == format_.coded_height &&
           std::memcmp(&format.display_area, &format_.display_area, sizeof(format.display_area)) ==
               0 &&
           format.min_num_decode_surfaces <= surfaces_;
  }
  bool has_same_samples(const CUVIDEOFORMAT& format) const {
    return format.codec == format_.codec && format.chroma_format == format_.chroma_format &&
           format.bit_depth_luma_minus8 == format_.bit_depth_luma_minus8;
  }

  template <class Info>
  static void set_area(Info& info, const CUVIDEOFORMAT& format) {
    const images::ImageSize size = size_of(format);
    info.ulWidth = format.coded_width;
    info.ulHeight = format.coded_height;
    info.display_area = {static_cast<short>(format.display_area.left),
                         static_cast<short>(format.display_area.top),
                         static_cast<short>(format.display_area.right),
                         static_cast<short>(format.display_area.bottom)};
    info.ulTargetWidth = static_cast<unsigned>(size.width);
    info.ulTargetHeight = static_cast<unsigned>(size.height);
  }

  bool reconfigure(const CUVIDEOFORMAT& format, unsigned surfaces) {
    if (!has_same_samples(format) || format.coded_width > most_width_ ||
        format.coded_height > most_height_)
      return false;
    CUVIDRECONFIGUREDECODERINFO info{};
    set_area(info, format);
    info.ulNumDecodeSurfaces = surfaces;
    if (library_.cuvidReconfigureDecoder(handle_, &info) != CUDA_SUCCESS) return false;
    surfaces_ = surfaces;
    return true;
  }

  void create(const CUVIDEOFORMAT& format, unsigned surfaces) {
    destroy();
    most_width_ = std::max(most_width_, format.coded_width);
    most_height_ = std::max(most_height_, format.coded_height);
    CUVIDDECODECREATEINFO info{};
    set_area(info, format);
    info.ulNumDecodeSurfaces = surfaces;
    info.CodecType = format.codec;
    info.ChromaFormat = format.chroma_format;
    info.ulCreationFlags = cudaVideoCreate_PreferCUVID;
    info.bitDepthMinus8 = format.bit_depth_luma_minus8;
    info.ulMaxWidth = most_width_;
    info.ulMaxHeight = most_height_;
    info.OutputFormat = surface_format(8u + format.bit_depth_luma_minus8);
    info.DeinterlaceMode = cudaVideoDeinterlaceMode_Weave;
    info.ulNumOutputSurfaces = kSurfaces;
    check_cuvid(library_.cuvidCreateDecoder(&handle_, &info), "cuvidCreateDecoder");
    surfaces_ = surfaces;
  }

  void destroy() noexcept {
    if (handle_ != nullptr) library_.cuvidDestroyDecoder(handle_);
    handle_ = nullptr;
  }

  const NvdecLibrary& library_;
  CUvideodecoder handle_ = nullptr;
  CUVIDEOFORMAT format_{};
  unsigned surfaces_ = 0, most_width_ = 0, most_height_ = 0;
};

class NvdecEngine final : public FrameEngine {
 public:
  explicit NvdecEngine(const NvdecLibrary& library) : library_(library), decoder_(library) {}
  ~NvdecEngine() override { end_parser(); }

  std::size_t surfaces() const noexcept override { return kSurfaces; }
  bool takes(const VideoStream& stream) override;
  void decode(const Video& video, std::span<const std::uint64_t> frames, cudaStream_t stream,
              const Sink& sink, const std::stop_token& stop) override;
  void give_back(const std::uint8_t* luma) noexcept override { decoder_.unmap(luma); }

 private:
  /// What is being decoded.
  struct Job {
    const FrameIndex& index;
    std::span<const std::uint64_t> frames;
    cudaStream_t stream;
    const Sink& sink;
    std::size_t next = 0;  ///< of `frames`
    std::exception_ptr error;
  };

  void begin(std::uint32_t start);
  void begin_parser();
  void end_parser() noexcept;
  bool feed();
  void parse(const AVPacket* packet);
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
  Decoder decoder_;
  CUvideoparser parser_ = nullptr;
  CUVIDEOFORMATEX header_{};
  std::shared_ptr<const FrameIndex> index_;
  std::string name_;
  std::optional<PacketSource> packets_;
  std::optional<AnnexbFilter> filter_;
  PacketHandle packet_{allocated(av_packet_alloc())};
  std::uint64_t fed_ = 0;  ///< the number of the next packet
  Job* job_ = nullptr;
};

bool NvdecEngine::takes(const VideoStream& stream) {
  if (stream.size.height % 2 != 0 || stream.size.width % 2 != 0) return false;
  CUVIDDECODECAPS caps{};
  caps.eCodecType = engine_codec(stream.codec);
  caps.eChromaFormat = cudaVideoChromaFormat_420;
  caps.nBitDepthMinus8 = static_cast<unsigned>(stream.bits - 8);
  if (library_.cuvidGetDecoderCaps(&caps) != CUDA_SUCCESS || caps.bIsSupported == 0) return false;
  const auto height = static_cast<unsigned>(stream.size.height);
  const auto width = static_cast<unsigned>(stream.size.width);
  const unsigned format = surface_format(static_cast<unsigned>(stream.bits));
  return width >= caps.nMinWidth && width <= caps.nMaxWidth && height >= caps.nMinHeight &&
         height <= caps.nMaxHeight &&
         ((width + 15) / 16) * ((height + 15) / 16) <= caps.nMaxMBCount &&
         (unsigned{caps.nOutputFormatMask} >> format & 1u) != 0;
}

void NvdecEngine::begin_parser() {
  end_parser();
  header_ = {};
  const AVCodecParameters& parameters = *packets_->stream().codecpar;
  if (index_->stream().codec == Codec::av1 && parameters.extradata_size > 4) {
    constexpr int kRecord = 4;  // The bytes of av1C before the sequence header.
    const auto bytes = std::min(static_cast<std::size_t>(parameters.extradata_size - kRecord),
                                sizeof(header_.raw_seqhdr_data));
    std::memcpy(header_.raw_seqhdr_data, parameters.extradata + kRecord, bytes);
    header_.format.seqhdr_data_length = static_cast<unsigned>(bytes);
  }
  CUVIDPARSERPARAMS params{};
  params.CodecType = engine_codec(index_->stream().codec);
  params.ulMaxNumDecodeSurfaces = 1;  // The answer to the sequence says how many there are.
  params.ulErrorThreshold = 100;
  params.ulMaxDisplayDelay = 2;
  params.pUserData = this;
  params.pExtVideoInfo = &header_;
  params.pfnSequenceCallback = [](void* engine, CUVIDEOFORMAT* format) noexcept {
    return guarded(engine, [&](NvdecEngine& self) {
      if (Decoder::size_of(*format) != self.index_->stream().size)
        throw VideoError("the engine finds another size than the file says");
      return self.decoder_.prepare(*format);
    });
  };
  params.pfnDecodePicture = [](void* engine, CUVIDPICPARAMS* picture) noexcept {
    return guarded(engine, [&](NvdecEngine& self) {
      self.decoder_.decode(*picture);
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

/// Each start has a parser of its own, which remembers nothing of what was before.
void NvdecEngine::begin(std::uint32_t start) {
  packets_->go_to(start);
  filter_->flush();
  begin_parser();
  fed_ = index_->starts()[start].packet;
}

/// A picture is displayed: gives it to the sink if it is wanted.
void NvdecEngine::show(const CUVIDPARSERDISPINFO& shown) {
  Job& job = *job_;
  if (job.next == job.frames.size()) return;
  const auto frames = job.index.frames();
  const std::uint64_t wanted = job.frames[job.next];
  const std::int64_t time = shown.timestamp;
  if (time < frames[wanted].time) return;
  if (time > frames[wanted].time)
    throw VideoError("the engine does not deliver frame " + std::to_string(wanted));
  if (decoder_.is_damaged(shown.picture_index))
    throw VideoError("the engine reports that frame " + std::to_string(wanted) + " is damaged");
  const FramePlanes planes = decoder_.map(shown, job.stream);
  job.sink(job.next, planes);
  ++job.next;
}

void NvdecEngine::parse(const AVPacket* packet) {
  CUVIDSOURCEDATAPACKET data{};
  data.flags = packet == nullptr ? CUVID_PKT_ENDOFSTREAM : CUVID_PKT_TIMESTAMP;
  if (packet != nullptr) {
    data.payload = packet->data;
    data.payload_size = static_cast<unsigned long>(packet->size);
    data.timestamp = packet->pts;
  }
  const CUresult status = library_.cuvidParseVideoData(parser_, &data);
  if (job_->error != nullptr) std::rethrow_exception(std::exchange(job_->error, nullptr));
  check_cuvid(status, "cuvidParseVideoData");
}

/// Feeds the next packet. Returns false at the end of the file.
bool NvdecEngine::feed() {
  const bool more = packets_->read(*packet_);
  if (!more) {
    parse(nullptr);
    return false;
  }
  ++fed_;
  if ((packet_->flags & AV_PKT_FLAG_DISCARD) != 0) packet_->pts = INT64_MIN + 1;  // not a frame
  filter_->convert(*packet_, [&](const AVPacket& packet) { parse(&packet); });
  return true;
}

void NvdecEngine::decode(const Video& video, std::span<const std::uint64_t> frames,
                         cudaStream_t stream, const Sink& sink, const std::stop_token& stop) {
  if (index_ != video.index || name_ != video.file.name() || !packets_) {
    filter_.reset();
    packets_.reset();
    index_ = video.index;
    name_ = video.file.name();
    packets_.emplace(video.file, *index_);
    filter_.emplace(packets_->stream());
  }
  Job job{*index_, frames, stream, sink, 0, {}};
  job_ = &job;
  struct End {
    NvdecEngine& engine;
    ~End() {
      engine.end_parser();  // Its callbacks use the job.
      engine.job_ = nullptr;
    }
  } const end{*this};
  const auto packet_of_start = [&] {
    return index_->starts()[index_->frames()[frames[job.next]].start].packet;
  };
  while (job.next < frames.size()) {
    const std::size_t before = job.next;
    begin(index_->frames()[frames[job.next]].start);
    // It goes on to the next frame as long as the start of that is not ahead.
    while (job.next < frames.size() && packet_of_start() <= fed_) {
      if (stop.stop_requested()) throw images::DecodeStopped();
      if (!feed()) break;
    }
    if (job.next == before)
      throw VideoError("the engine does not deliver frame " + std::to_string(frames[job.next]));
  }
}

bool is_emulated() {
  cudaDeviceProp properties{};
  penstock::detail::check(cudaGetDeviceProperties(&properties, current_device()),
                          "cudaGetDeviceProperties");
  return std::string_view(properties.name) == "penstock emulated device";
}

}  // namespace

std::unique_ptr<FrameEngine> make_nvdec_engine(std::string& why_not) {
  if (is_emulated()) {
    why_not = "the CUDA runtime is emulated";
    return nullptr;
  }
  const NvdecLibrary* const library = NvdecLibrary::load(why_not);
  if (library == nullptr) return nullptr;
  return std::make_unique<NvdecEngine>(*library);
}

}  // namespace penstock::video

#endif
