// SPDX-License-Identifier: Apache-2.0

#include "codec.hpp"

#include <algorithm>
#include <penstock/video/video_error.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::video {

CodecHandle open_codec(const AVStream& stream, std::int32_t reorder_delay, std::int64_t max_pixels,
                       int threads) {
  const AVCodecID id = stream.codecpar->codec_id;
  const AVCodec* const decoder = avcodec_find_decoder(id);
  if (decoder == nullptr)
    throw VideoError(std::string("this libavcodec has no decoder of ") + avcodec_get_name(id) +
                     ": install one that has it");
  CodecHandle codec(allocated(avcodec_alloc_context3(decoder)));
  int status = avcodec_parameters_to_context(codec.get(), stream.codecpar);
  if (status >= 0) {
    codec->pkt_timebase = stream.time_base;
    codec->has_b_frames = std::max<int>(codec->has_b_frames, reorder_delay);
    codec->max_pixels = max_pixels;
    codec->thread_count = threads;
    keep_messages_of(*codec);
    status = avcodec_open2(codec.get(), decoder, nullptr);
  }
  if (status < 0) throw VideoError("the decoder cannot be opened: " + error_text(status));
  return codec;
}

}  // namespace penstock::video
