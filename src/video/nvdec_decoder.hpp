// SPDX-License-Identifier: Apache-2.0
#pragma once

// NvdecDecoder: a decoder of the GPU's video engines, which is kept and reconfigured for the next
// stream.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <penstock/images/view.hpp>
#include <penstock/version.hpp>
#include <penstock/video/frame_planes.hpp>
#include <string>

#include "nvdec_library.hpp"

namespace penstock::inline PENSTOCK_ABI::video {

/// How many surfaces of a decoder may be mapped at a time.
inline constexpr std::size_t kMappedSurfaces = 8;

/// The text of an error: the name of the function and its status.
std::string cuvid_error(CUresult status, const char* call);

/// Throws VideoError with the name of the function and its status.
void check_cuvid(CUresult status, const char* call);

cudaVideoSurfaceFormat surface_format(unsigned bits);

/// Use an object on one thread at a time.
class NvdecDecoder {
 public:
  explicit NvdecDecoder(const NvdecLibrary& library) : library_(library) {}
  NvdecDecoder(const NvdecDecoder&) = delete;
  NvdecDecoder& operator=(const NvdecDecoder&) = delete;
  ~NvdecDecoder() { destroy(); }

  /// Whether it decodes this format as it is.
  bool is_ready_for(const CUVIDEOFORMAT& format) const;
  /// Makes it ready for a format. No surface may be mapped.
  void prepare(const CUVIDEOFORMAT& format);
  /// How many pictures it keeps.
  int pictures() const noexcept { return static_cast<int>(pictures_); }

  void decode(CUVIDPICPARAMS& picture) const;
  /// Whether an engine has reported an error of this picture.
  bool is_damaged(int picture) const;
  /// Waits until the picture is decoded. The planes are complete in the order of the stream, and
  /// valid until unmap().
  FramePlanes map(const CUVIDPARSERDISPINFO& shown, cudaStream_t stream) const;
  void unmap(const std::uint8_t* luma) const noexcept;

  static images::ImageSize size_of(const CUVIDEOFORMAT& format);

 private:
  bool has_same_samples(const CUVIDEOFORMAT& format) const;
  bool reconfigure(const CUVIDEOFORMAT& format, unsigned pictures);
  void create(const CUVIDEOFORMAT& format, unsigned pictures);
  void destroy() noexcept;

  const NvdecLibrary& library_;
  CUvideodecoder handle_ = nullptr;
  CUVIDEOFORMAT format_{};
  unsigned pictures_ = 0, most_width_ = 0, most_height_ = 0;
};

}  // namespace penstock::video
