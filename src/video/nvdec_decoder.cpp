// SPDX-License-Identifier: Apache-2.0

#ifdef PENSTOCK_VIDEO_WITH_NVDEC

#include "nvdec_decoder.hpp"

#include <algorithm>
#include <cstring>
#include <penstock/video/video_error.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

/// Pictures that are decoded ahead of those that are displayed.
constexpr unsigned kAhead = 4;

/// Sets what a new decoder and a reconfigured one have in common.
template <class Info>
void set_area(Info& info, const CUVIDEOFORMAT& format) {
  const images::ImageSize size = NvdecDecoder::size_of(format);
  info.ulWidth = format.coded_width;
  info.ulHeight = format.coded_height;
  info.display_area = {static_cast<short>(format.display_area.left),
                       static_cast<short>(format.display_area.top),
                       static_cast<short>(format.display_area.right),
                       static_cast<short>(format.display_area.bottom)};
  info.ulTargetWidth = static_cast<unsigned>(size.width);
  info.ulTargetHeight = static_cast<unsigned>(size.height);
}

}  // namespace

std::string cuvid_error(CUresult status, const char* call) {
  return std::string(call) + ": status " + std::to_string(static_cast<int>(status)) + " (CUresult)";
}

void check_cuvid(CUresult status, const char* call) {
  if (status != CUDA_SUCCESS) throw VideoError(cuvid_error(status, call));
}

cudaVideoSurfaceFormat surface_format(unsigned bits) {
  return bits == 8 ? cudaVideoSurfaceFormat_NV12 : cudaVideoSurfaceFormat_P016;
}

images::ImageSize NvdecDecoder::size_of(const CUVIDEOFORMAT& format) {
  return {format.display_area.bottom - format.display_area.top,
          format.display_area.right - format.display_area.left};
}

bool NvdecDecoder::has_same_samples(const CUVIDEOFORMAT& format) const {
  return format.codec == format_.codec && format.chroma_format == format_.chroma_format &&
         format.bit_depth_luma_minus8 == format_.bit_depth_luma_minus8;
}

bool NvdecDecoder::is_ready_for(const CUVIDEOFORMAT& format) const {
  return handle_ != nullptr && has_same_samples(format) &&
         format.coded_width == format_.coded_width && format.coded_height == format_.coded_height &&
         std::memcmp(&format.display_area, &format_.display_area, sizeof(format.display_area)) ==
             0 &&
         format.min_num_decode_surfaces + kAhead <= pictures_;
}

void NvdecDecoder::prepare(const CUVIDEOFORMAT& format) {
  if (is_ready_for(format)) return;
  const unsigned pictures = std::max<unsigned>(format.min_num_decode_surfaces, 4) + kAhead;
  if (handle_ == nullptr || !reconfigure(format, pictures)) create(format, pictures);
  format_ = format;
  pictures_ = pictures;
}

bool NvdecDecoder::reconfigure(const CUVIDEOFORMAT& format, unsigned pictures) {
  if (!has_same_samples(format) || format.coded_width > most_width_ ||
      format.coded_height > most_height_)
    return false;
  CUVIDRECONFIGUREDECODERINFO info{};
  set_area(info, format);
  info.ulNumDecodeSurfaces = pictures;
  return library_.cuvidReconfigureDecoder(handle_, &info) == CUDA_SUCCESS;
}

void NvdecDecoder::create(const CUVIDEOFORMAT& format, unsigned pictures) {
  destroy();
  most_width_ = std::max(most_width_, format.coded_width);
  most_height_ = std::max(most_height_, format.coded_height);
  CUVIDDECODECREATEINFO info{};
  set_area(info, format);
  info.ulNumDecodeSurfaces = pictures;
  info.CodecType = format.codec;
  info.ChromaFormat = format.chroma_format;
  info.ulCreationFlags = cudaVideoCreate_PreferCUVID;
  info.bitDepthMinus8 = format.bit_depth_luma_minus8;
  info.ulMaxWidth = most_width_;
  info.ulMaxHeight = most_height_;
  info.OutputFormat = surface_format(8u + format.bit_depth_luma_minus8);
  info.DeinterlaceMode = cudaVideoDeinterlaceMode_Weave;
  info.ulNumOutputSurfaces = kMappedSurfaces;
  check_cuvid(library_.cuvidCreateDecoder(&handle_, &info), "cuvidCreateDecoder");
}

void NvdecDecoder::destroy() noexcept {
  if (handle_ != nullptr) library_.cuvidDestroyDecoder(handle_);
  handle_ = nullptr;
}

void NvdecDecoder::decode(CUVIDPICPARAMS& picture) const {
  check_cuvid(library_.cuvidDecodePicture(handle_, &picture), "cuvidDecodePicture");
}

bool NvdecDecoder::is_damaged(int picture) const {
  CUVIDGETDECODESTATUS status{};
  if (library_.cuvidGetDecodeStatus(handle_, picture, &status) != CUDA_SUCCESS) return false;
  return status.decodeStatus == cuvidDecodeStatus_Error ||
         status.decodeStatus == cuvidDecodeStatus_Error_Concealed;
}

FramePlanes NvdecDecoder::map(const CUVIDPARSERDISPINFO& shown, cudaStream_t stream) const {
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

void NvdecDecoder::unmap(const std::uint8_t* luma) const noexcept {
  library_.cuvidUnmapVideoFrame64(handle_, reinterpret_cast<unsigned long long>(luma));
}

}  // namespace penstock::video

#endif
