// SPDX-License-Identifier: Apache-2.0

#include "packet_source.hpp"

#include <penstock/markers.hpp>
#include <penstock/video/video_error.hpp>
#include <string>

#include "clip_clock.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

struct OpenFile {
  static constexpr const char* message = "open video file";
  static constexpr MarkerCategory category = markers::category::fill;
};
struct Seek {
  static constexpr const char* message = "seek";
  static constexpr MarkerCategory category = markers::category::fill;
};

bool is_packet_of(const StartEntry& start, const AVPacket& packet) {
  return packet.pts == start.time &&
         (packet.pos < 0 || start.position < 0 || packet.pos == start.position);
}

}  // namespace

PacketSource::PacketSource(const File& file, const FrameIndex& index) : file_(file), index_(index) {
  reopen();
}

/// libavformat may come out elsewhere than where it was asked to go, so the packet itself is looked
/// for. The last way is to read the file from its begin.
void PacketSource::go_to(std::uint32_t number) {
  const ScopedRange range(Seek{}, number);
  const InStage stage(ClipStage::seek);
  const auto starts = index_.starts();
  const StartEntry& start = starts[number];
  has_first_ = false;
  if (number > 0 && (find(start, start) || find(start, starts[number - 1]))) return;
  if (!demuxer_->is_at_begin()) reopen();
  if (skip_to(start)) return;
  throw VideoError(file_.name() + ": packet " + std::to_string(start.packet) +
                   " is not where its index says: the file has changed, so delete the saved index");
}

/// Seeks to `near`, and reads until the packet of `start`. Returns false if it is not ahead.
bool PacketSource::find(const StartEntry& start, const StartEntry& near) {
  const bool by_display = demuxer_->seeks_by_display() || near.decode_time == AV_NOPTS_VALUE;
  if (!demuxer_->seek(by_display ? near.time : near.decode_time)) return false;
  while (demuxer_->read(*first_)) {
    if (is_packet_of(start, *first_)) return has_first_ = true;
    if (is_behind(start)) return false;
  }
  return false;
}

/// Whether the start lies before the packet that was read, so that reading on does not find it.
bool PacketSource::is_behind(const StartEntry& start) const {
  const AVPacket& packet = *first_;
  if (!demuxer_->seeks_by_display() && packet.dts != AV_NOPTS_VALUE &&
      start.decode_time != AV_NOPTS_VALUE)
    return packet.dts > start.decode_time;
  return (packet.flags & AV_PKT_FLAG_KEY) != 0 && packet.pts != AV_NOPTS_VALUE &&
         packet.pts > start.time;
}

/// Reads all packets up to that of the start, from the begin of the file.
bool PacketSource::skip_to(const StartEntry& start) {
  while (demuxer_->read(*first_))
    if (is_packet_of(start, *first_)) return has_first_ = true;
  return false;
}

void PacketSource::reopen() {
  const ScopedRange range(OpenFile{}, 0);
  const InStage stage(ClipStage::open_file);
  demuxer_.emplace(file_, index_.stream().number);
}

bool PacketSource::read(AVPacket& packet) {
  const InStage stage(ClipStage::read_packets);
  if (!has_first_) return demuxer_->read(packet);
  av_packet_unref(&packet);
  av_packet_move_ref(&packet, first_.get());
  has_first_ = false;
  return true;
}

}  // namespace penstock::video
