// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions of libnvjpeg that this library calls, loaded at run time.

#include <nvjpeg.h>

#include <penstock/version.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::images {

#define PENSTOCK_NVJPEG_FUNCTIONS(FUNCTION)   \
  FUNCTION(nvjpegGetProperty)                 \
  FUNCTION(nvjpegCreateEx)                    \
  FUNCTION(nvjpegDestroy)                     \
  FUNCTION(nvjpegJpegStateCreate)             \
  FUNCTION(nvjpegJpegStateDestroy)            \
  FUNCTION(nvjpegJpegStreamCreate)            \
  FUNCTION(nvjpegJpegStreamDestroy)           \
  FUNCTION(nvjpegJpegStreamParseHeader)       \
  FUNCTION(nvjpegDecodeBatchedSupported)      \
  FUNCTION(nvjpegDecodeBatchedPreAllocate)    \
  FUNCTION(nvjpegDecodeBatchedInitialize)     \
  FUNCTION(nvjpegDecodeBatchedEx)             \
  FUNCTION(nvjpegDecodeParamsCreate)          \
  FUNCTION(nvjpegDecodeParamsDestroy)         \
  FUNCTION(nvjpegDecodeParamsSetOutputFormat) \
  FUNCTION(nvjpegDecodeParamsSetROI)

struct NvjpegLibrary {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a member's name
#define PENSTOCK_NVJPEG_MEMBER(name) decltype(&::name) name = nullptr;
  PENSTOCK_NVJPEG_FUNCTIONS(PENSTOCK_NVJPEG_MEMBER)
#undef PENSTOCK_NVJPEG_MEMBER

  /// Loads the library at the first call and keeps it loaded. Returns nullptr if it cannot be
  /// loaded; then `why_not` says why.
  static const NvjpegLibrary* load(std::string& why_not);
  /// Loads `file` into this table. Returns false on failure; then `why_not` says why.
  bool load_from(const char* file, std::string& why_not);
};

}  // namespace penstock::images
