// SPDX-License-Identifier: Apache-2.0
#pragma once

// Owning handles of FFmpeg's objects, and the text of its errors.

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/avutil.h>
#include <libavutil/display.h>
#include <libavutil/pixdesc.h>
}

#include <array>
#include <memory>
#include <new>
#include <penstock/version.hpp>
#include <string>

#include "ffmpeg_messages.hpp"

namespace penstock::inline PENSTOCK_ABI::video {

struct FreeCodec {
  void operator()(AVCodecContext* codec) const { avcodec_free_context(&codec); }
};
struct FreePacket {
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
};
struct FreeFrame {
  void operator()(AVFrame* frame) const { av_frame_free(&frame); }
};

using CodecHandle = std::unique_ptr<AVCodecContext, FreeCodec>;
using PacketHandle = std::unique_ptr<AVPacket, FreePacket>;
using FrameHandle = std::unique_ptr<AVFrame, FreeFrame>;

/// Throws std::bad_alloc for nullptr, which FFmpeg returns if there is no memory.
template <class T>
T* allocated(T* object) {
  if (object == nullptr) throw std::bad_alloc();
  return object;
}

/// With the last messages of FFmpeg.
inline std::string error_text(int code) {
  std::array<char, AV_ERROR_MAX_STRING_SIZE> text{};
  av_strerror(code, text.data(), text.size());
  return text.data() + said_by_ffmpeg();
}

}  // namespace penstock::video
