// SPDX-License-Identifier: Apache-2.0

#include "stream_of.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <penstock/video/video_error.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

Codec codec_of(AVCodecID id) {
  switch (id) {
    case AV_CODEC_ID_H264:
      return Codec::h264;
    case AV_CODEC_ID_HEVC:
      return Codec::hevc;
    case AV_CODEC_ID_VP9:
      return Codec::vp9;
    case AV_CODEC_ID_AV1:
      return Codec::av1;
    default:
      throw VideoError(std::string("the codec is ") + avcodec_get_name(id) +
                       ": only H.264, HEVC, VP9 and AV1 are decoded. Convert the file");
  }
}

ColourMatrix matrix_of(AVColorSpace space) {
  switch (space) {
    case AVCOL_SPC_BT709:
      return ColourMatrix::bt709;
    case AVCOL_SPC_BT2020_NCL:
    case AVCOL_SPC_BT2020_CL:
      return ColourMatrix::bt2020;
    case AVCOL_SPC_SMPTE240M:
      return ColourMatrix::smpte240m;
    case AVCOL_SPC_FCC:
      return ColourMatrix::fcc;
    default:
      return ColourMatrix::bt601;
  }
}

ChromaSite chroma_of(AVChromaLocation location) {
  switch (location) {
    case AVCHROMA_LOC_CENTER:
      return ChromaSite::centre;
    case AVCHROMA_LOC_TOPLEFT:
      return ChromaSite::top_left;
    default:
      return ChromaSite::left;
  }
}

/// The display matrix of the stream, 9 numbers; nullptr if it has none.
const std::uint8_t* display_matrix(const AVStream& stream) {
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(60, 30, 100)
  const AVPacketSideData* const data =
      av_packet_side_data_get(stream.codecpar->coded_side_data, stream.codecpar->nb_coded_side_data,
                              AV_PKT_DATA_DISPLAYMATRIX);
  return data != nullptr && data->size >= 9 * sizeof(std::int32_t) ? data->data : nullptr;
#else
  std::size_t size = 0;
  const std::uint8_t* const data =
      av_stream_get_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, &size);
  return data != nullptr && size >= 9 * sizeof(std::int32_t) ? data : nullptr;
#endif
}

Orientation orientation_of(const AVStream& stream) {
  const std::uint8_t* const bytes = display_matrix(stream);
  if (bytes == nullptr) return {};
  std::int32_t m[9];
  std::memcpy(m, bytes, sizeof(m));
  // A picture's point (x, y) is displayed at (m[0] x + m[3] y, m[1] x + m[4] y).
  if (m[1] == 0 && m[3] == 0 && m[0] != 0 && m[4] != 0) return {false, m[4] < 0, m[0] < 0};
  if (m[0] == 0 && m[4] == 0 && m[1] != 0 && m[3] != 0) return {true, m[1] < 0, m[3] < 0};
  throw VideoError("the picture is turned by " + std::to_string(av_display_rotation_get(m)) +
                   " degrees: only multiples of 90 are supported. Convert the file");
}

void check_size(const AVCodecParameters& parameters, const VideoLimits& limits) {
  const std::int64_t height = parameters.height, width = parameters.width;
  if (height < 1 || width < 1)
    throw VideoError("the size of the picture is unknown: the file is cut or damaged");
  if (height > INT32_MAX / width || height * width > limits.max_pixels)
    throw VideoError("a picture has " + std::to_string(height) + " x " + std::to_string(width) +
                     " pixels, beyond the limit of " + std::to_string(limits.max_pixels) +
                     ": raise VideoLimits::max_pixels");
}

}  // namespace

int bits_of(AVPixelFormat format) {
  switch (format) {
    case AV_PIX_FMT_YUV420P:
    case AV_PIX_FMT_YUVJ420P:
      return 8;
    case AV_PIX_FMT_YUV420P10:
      return 10;
    default:
      return 0;
  }
}

AVCodecID codec_id(Codec codec) {
  switch (codec) {
    case Codec::h264:
      return AV_CODEC_ID_H264;
    case Codec::hevc:
      return AV_CODEC_ID_HEVC;
    case Codec::vp9:
      return AV_CODEC_ID_VP9;
    case Codec::av1:
      return AV_CODEC_ID_AV1;
  }
  return AV_CODEC_ID_NONE;
}

VideoStream stream_of(const AVStream& stream, const VideoLimits& limits) {
  const AVCodecParameters& parameters = *stream.codecpar;
  VideoStream found;
  found.codec = codec_of(parameters.codec_id);
  check_size(parameters, limits);
  const auto format = static_cast<AVPixelFormat>(parameters.format);
  found.bits = bits_of(format);
  if (found.bits == 0) {
    const char* const name = av_get_pix_fmt_name(format);
    throw VideoError(std::string("the pixel format is ") + (name != nullptr ? name : "unknown") +
                     ": only 4:2:0 with 8 or 10 bits is supported. Convert the file");
  }
  found.number = static_cast<std::uint32_t>(stream.index);
  found.size = {parameters.height, parameters.width};
  found.orientation = orientation_of(stream);
  found.full_range = parameters.color_range == AVCOL_RANGE_JPEG || format == AV_PIX_FMT_YUVJ420P;
  found.matrix = matrix_of(parameters.color_space);
  found.chroma = chroma_of(parameters.chroma_location);
  found.time_base = {stream.time_base.num, stream.time_base.den};
  if (parameters.sample_aspect_ratio.num > 0 && parameters.sample_aspect_ratio.den > 0)
    found.pixel_aspect = {parameters.sample_aspect_ratio.num, parameters.sample_aspect_ratio.den};
  found.reorder_delay = std::clamp(parameters.video_delay, 0, 16);
  return found;
}

}  // namespace penstock::video
