// SPDX-License-Identifier: Apache-2.0
#pragma once

// open_codec(): makes libavcodec's decoder of a stream.

#include <cstdint>
#include <penstock/version.hpp>

#include "ffmpeg.hpp"

namespace penstock::inline PENSTOCK_ABI::video {

/// `threads`: how many the decoder may use. Throws VideoError, which does not name the file.
CodecHandle open_codec(const AVStream& stream, std::int32_t reorder_delay, std::int64_t max_pixels,
                       int threads);

}  // namespace penstock::video
