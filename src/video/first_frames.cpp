// SPDX-License-Identifier: Apache-2.0

#include "first_frames.hpp"

#include "codec.hpp"
#include "demuxer.hpp"

namespace penstock::inline PENSTOCK_ABI::video {

std::vector<std::int64_t> first_frames(const File& video, std::int64_t key,
                                       const VideoLimits& limits) {
  constexpr int kDelay = 0;  // The demuxer has found it.
  Demuxer demuxer(video);
  const CodecHandle codec = open_codec(demuxer.stream(), kDelay, limits.max_pixels, 1);
  const PacketHandle packet(allocated(av_packet_alloc()));
  const FrameHandle frame(allocated(av_frame_alloc()));
  std::vector<std::int64_t> shown;
  for (bool more = true; more;) {
    more = demuxer.read(*packet);
    avcodec_send_packet(codec.get(), more ? packet.get() : nullptr);  // A bad packet shows nothing.
    while (avcodec_receive_frame(codec.get(), frame.get()) >= 0) {
      if (frame->pts >= key) return shown;
      shown.push_back(frame->pts);
    }
  }
  return shown;
}

}  // namespace penstock::video
