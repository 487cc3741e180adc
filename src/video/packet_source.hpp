// SPDX-License-Identifier: Apache-2.0
#pragma once

// PacketSource: the packets of a video from one of its starts on, in the order of decoding.

#include <cstdint>
#include <optional>
#include <penstock/file.hpp>
#include <penstock/video/frame_index.hpp>

#include "demuxer.hpp"

namespace penstock::inline PENSTOCK_ABI::video {

/// Use an object on one thread at a time. The index must outlive it. Members throw like Demuxer.
class PacketSource {
 public:
  PacketSource(const File& file, const FrameIndex& index);

  /// Goes to a start of the index; read() then begins with its packet.
  void go_to(std::uint32_t start);
  /// As Demuxer::read().
  bool read(AVPacket& packet);
  const AVStream& stream() const noexcept { return demuxer_->stream(); }

 private:
  bool find(const StartEntry& start, const StartEntry& near);
  bool is_behind(const StartEntry& start) const;
  bool skip_to(const StartEntry& start);
  void reopen();

  File file_;
  const FrameIndex& index_;
  std::optional<Demuxer> demuxer_;
  PacketHandle first_{allocated(av_packet_alloc())};  ///< the packet of the start
  bool has_first_ = false;                            ///< it was not read yet
};

}  // namespace penstock::video
