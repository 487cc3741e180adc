// SPDX-License-Identifier: Apache-2.0
#pragma once

// AnnexbFilter: converts packets of MP4 and Matroska to the byte stream that NVDEC's parser reads.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <penstock/version.hpp>
#include <penstock/video/video_error.hpp>
#include <span>
#include <string>

#include "ffmpeg.hpp"

extern "C" {
#include <libavcodec/bsf.h>
}

namespace penstock::inline PENSTOCK_ABI::video {

/// Other codecs than H.264 and HEVC pass unchanged. Throws VideoError.
class AnnexbFilter {
 public:
  explicit AnnexbFilter(const AVStream& stream) {
    const AVCodecID id = stream.codecpar->codec_id;
    const char* const name = id == AV_CODEC_ID_H264   ? "h264_mp4toannexb"
                             : id == AV_CODEC_ID_HEVC ? "hevc_mp4toannexb"
                                                      : nullptr;
    if (name == nullptr) return;
    const AVBitStreamFilter* const filter = av_bsf_get_by_name(name);
    if (filter == nullptr) throw VideoError(std::string("this libavcodec has no filter ") + name);
    AVBSFContext* context = nullptr;
    const MessageScope scope;
    if (av_bsf_alloc(filter, &context) < 0) throw std::bad_alloc();
    filter_.reset(context);
    context->time_base_in = stream.time_base;
    if (avcodec_parameters_copy(context->par_in, stream.codecpar) < 0) throw std::bad_alloc();
    check(av_bsf_init(context));
  }

  /// The headers of the stream, such as its parameter sets; empty for other codecs.
  std::span<const std::uint8_t> headers() const {
    if (filter_ == nullptr) return {};
    const AVCodecParameters& out = *filter_->par_out;
    return {out.extradata, static_cast<std::size_t>(out.extradata_size)};
  }

  /// Forgets what it has seen: the next packet is of another place.
  void flush() {
    if (filter_ != nullptr) av_bsf_flush(filter_.get());
  }

  /// Calls use(packet) for each converted packet. `packet` is empty afterwards.
  template <class Use>
  void convert(AVPacket& packet, Use&& use) {
    if (filter_ == nullptr) {
      use(packet);
      av_packet_unref(&packet);
      return;
    }
    const MessageScope scope;
    check(av_bsf_send_packet(filter_.get(), &packet));
    while (av_bsf_receive_packet(filter_.get(), &packet) >= 0) {
      use(packet);
      av_packet_unref(&packet);
    }
  }

 private:
  struct Free {
    void operator()(AVBSFContext* context) const { av_bsf_free(&context); }
  };
  static void check(int status) {
    if (status < 0) throw VideoError("a packet cannot be converted: " + error_text(status));
  }

  std::unique_ptr<AVBSFContext, Free> filter_;
};

}  // namespace penstock::video
