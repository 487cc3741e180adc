// SPDX-License-Identifier: Apache-2.0

// FrameIndex::make(): finds the frames of a video in its packets.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <penstock/video/frame_index.hpp>
#include <penstock/video/video_error.hpp>
#include <string>
#include <utility>
#include <vector>

#include "demuxer.hpp"
#include "first_frames.hpp"
#include "stream_of.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

struct Packet {
  std::int64_t time, decode_time, position, duration;
  bool is_key, is_shown;
};

/// Reads all packets, in the order of decoding.
std::vector<Packet> read_packets(Demuxer& demuxer, std::uint64_t max_frames) {
  std::vector<Packet> packets;
  const PacketHandle packet(allocated(av_packet_alloc()));
  while (demuxer.read(*packet)) {
    if ((packet->flags & AV_PKT_FLAG_CORRUPT) != 0) continue;  // The file ends within it.
    if (packets.size() == max_frames)
      throw VideoError("has more than " + std::to_string(max_frames) +
                       " frames: raise VideoLimits::max_frames");
    if (packet->pts == AV_NOPTS_VALUE)
      throw VideoError("packet " + std::to_string(packets.size()) +
                       " has no time stamp: write the file again with `ffmpeg -fflags +genpts "
                       "-i FILE -c copy NEW`");
    packets.push_back({packet->pts, packet->dts, packet->pos, packet->duration,
                       (packet->flags & AV_PKT_FLAG_KEY) != 0,
                       (packet->flags & AV_PKT_FLAG_DISCARD) == 0});
  }
  return packets;
}

/// Sets where decoding has to begin for each frame. A frame that is decoded after a key frame and
/// displayed before it may need frames that are before the key frame, too.
struct Starts {
  std::vector<StartEntry> entries;
  std::vector<std::uint32_t> of_packet;
  bool begins_whole = true;  ///< no frame precedes the first key frame
};

Starts find_starts(const std::vector<Packet>& packets) {
  Starts starts;
  starts.of_packet.reserve(packets.size());
  for (std::size_t i = 0; i < packets.size(); ++i) {
    const Packet& packet = packets[i];
    if (packet.is_key || i == 0)
      starts.entries.push_back({packet.time, packet.decode_time, packet.position,
                                static_cast<std::uint32_t>(i), packet.is_key ? 1u : 0u});
    std::size_t start = starts.entries.size() - 1;
    while (start > 0 && packet.time < starts.entries[start].time) --start;
    starts.of_packet.push_back(static_cast<std::uint32_t>(start));
    if (packet.time < starts.entries[start].time || starts.entries[start].is_key == 0)
      starts.begins_whole = false;
  }
  return starts;
}

std::int64_t first_key_time(const std::vector<StartEntry>& starts) {
  for (const StartEntry& start : starts)
    if (start.is_key != 0) return start.time;
  throw VideoError("has no key frame: it cannot be decoded");
}

/// Marks the frames before the first key frame that do not appear as not shown.
void hide_first_frames(std::vector<Packet>& packets, std::int64_t key,
                       std::vector<std::int64_t> shown) {
  std::sort(shown.begin(), shown.end());
  for (Packet& packet : packets)
    if (packet.is_shown && packet.time < key)
      packet.is_shown = std::binary_search(shown.begin(), shown.end(), packet.time);
}

/// The time at which the last frame ends. A packet without a duration ends a frame after it began.
std::int64_t end_of(const std::vector<FrameEntry>& frames, const std::vector<Packet>& packets) {
  const std::int64_t last = frames.back().time;
  std::int64_t duration = packets[frames.back().packet].duration;
  if (duration <= 0 && frames.size() > 1) duration = last - frames[frames.size() - 2].time;
  return last + std::clamp<std::int64_t>(duration, 1, std::int64_t{1} << 40);
}

FrameIndex make_index(const File& video, const VideoLimits& limits) {
  Demuxer demuxer(video);
  const VideoStream stream = stream_of(demuxer.stream(), limits);
  std::vector<Packet> packets = read_packets(
      demuxer,
      std::min<std::uint64_t>(limits.max_frames, std::numeric_limits<std::uint32_t>::max()));
  if (packets.empty()) throw VideoError("has no frames: the file is cut or damaged");
  Starts starts = find_starts(packets);
  const std::int64_t key = first_key_time(starts.entries);
  if (!starts.begins_whole) hide_first_frames(packets, key, first_frames(video, key, limits));
  std::vector<FrameEntry> frames;
  frames.reserve(packets.size());
  for (std::size_t i = 0; i < packets.size(); ++i)
    if (packets[i].is_shown)
      frames.push_back({packets[i].time, static_cast<std::uint32_t>(i), starts.of_packet[i]});
  if (frames.empty()) throw VideoError("has no frame that is displayed");
  std::stable_sort(frames.begin(), frames.end(),
                   [](const FrameEntry& a, const FrameEntry& b) { return a.time < b.time; });
  const std::int64_t end = end_of(frames, packets);
  return {stream, std::move(frames), std::move(starts.entries), end};
}

}  // namespace

FrameIndex FrameIndex::make(const File& video, const VideoLimits& limits) {
  try {
    return make_index(video, limits);
  } catch (const VideoError& error) {
    const std::string what = error.what();
    if (what.starts_with(video.name())) throw;
    throw VideoError(video.name() + ": " + what + said_by_ffmpeg());
  }
}

}  // namespace penstock::video
