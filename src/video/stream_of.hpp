// SPDX-License-Identifier: Apache-2.0
#pragma once

// stream_of(): translates libavformat's description of a stream. bits_of(): of a pixel format.

#include <penstock/version.hpp>
#include <penstock/video/frame_index.hpp>
#include <penstock/video/video_stream.hpp>

#include "ffmpeg.hpp"

namespace penstock::inline PENSTOCK_ABI::video {

/// Throws VideoError, which does not name the file, for what cannot be decoded, and for pictures
/// beyond the limits.
VideoStream stream_of(const AVStream& stream, const VideoLimits& limits);

/// 8 or 10 for the formats that are supported, which are all 4:2:0; else 0.
int bits_of(AVPixelFormat format);

/// FFmpeg's number of a codec.
AVCodecID codec_id(Codec codec);

}  // namespace penstock::video
