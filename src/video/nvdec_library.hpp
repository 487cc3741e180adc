// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions of libnvcuvid that this library calls, loaded at run time.

#include <ffnvcodec/dynlink_cuda.h>
// It needs the types of the header before.
#include <ffnvcodec/dynlink_nvcuvid.h>

#include <penstock/version.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::video {

// The type of a function is its name behind a `t`.
#define PENSTOCK_NVDEC_FUNCTIONS(FUNCTION) \
  FUNCTION(cuvidGetDecoderCaps)            \
  FUNCTION(cuvidCreateDecoder)             \
  FUNCTION(cuvidDestroyDecoder)            \
  FUNCTION(cuvidDecodePicture)             \
  FUNCTION(cuvidGetDecodeStatus)           \
  FUNCTION(cuvidReconfigureDecoder)        \
  FUNCTION(cuvidMapVideoFrame64)           \
  FUNCTION(cuvidUnmapVideoFrame64)         \
  FUNCTION(cuvidCreateVideoParser)         \
  FUNCTION(cuvidParseVideoData)            \
  FUNCTION(cuvidDestroyVideoParser)

struct NvdecLibrary {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a member's name
#define PENSTOCK_NVDEC_MEMBER(name) t##name* name = nullptr;
  PENSTOCK_NVDEC_FUNCTIONS(PENSTOCK_NVDEC_MEMBER)
#undef PENSTOCK_NVDEC_MEMBER

  /// Loads the library at the first call and keeps it loaded. Returns nullptr if it cannot be
  /// loaded; then `why_not` says why.
  static const NvdecLibrary* load(std::string& why_not);
  /// Loads `file` into this table. Returns false on failure; then `why_not` says why.
  bool load_from(const char* file, std::string& why_not);
};

}  // namespace penstock::video
