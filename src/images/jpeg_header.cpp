// SPDX-License-Identifier: Apache-2.0

#include "jpeg_header.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

using Bytes = std::span<const std::uint8_t>;

/// Iterates over the segments of a file.
class Segments {
 public:
  explicit Segments(Bytes file) : file_(file) {}

  /// Goes to the next segment with contents. Returns false if there is none.
  bool next() {
    while (at_ + 1 < file_.size()) {
      if (file_[at_] != 0xff) return false;
      marker_ = file_[at_ + 1];
      if (marker_ == 0xff) {  // a fill byte
        ++at_;
        continue;
      }
      at_ += 2;
      if (marker_ == 0xd8 || marker_ == 0x01 || (marker_ >= 0xd0 && marker_ <= 0xd7)) continue;
      if (marker_ == 0xd9 || at_ + 2 > file_.size()) return false;
      const std::size_t length = static_cast<std::size_t>(file_[at_] << 8 | file_[at_ + 1]);
      if (length < 2 || at_ + length > file_.size()) return false;
      contents_ = file_.subspan(at_ + 2, length - 2);
      at_ += length;
      return true;
    }
    return false;
  }

  std::uint8_t marker() const { return marker_; }
  Bytes contents() const { return contents_; }

 private:
  Bytes file_, contents_;
  std::size_t at_ = 0;
  std::uint8_t marker_ = 0;
};

bool begins_with(Bytes bytes, std::string_view text) {
  return bytes.size() >= text.size() &&
         std::equal(text.begin(), text.end(), bytes.begin(),
                    [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; });
}

/// Whether the marker is a frame: C0 ... CF except the tables in that range.
bool is_frame(std::uint8_t marker) {
  return (marker & 0xf0) == 0xc0 && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

/// The size and the components of a frame.
struct Frame {
  explicit Frame(std::uint8_t marker, Bytes bytes) : baseline(marker == 0xc0) {
    if (bytes.size() < 6) return;
    size = {bytes[1] << 8 | bytes[2], bytes[3] << 8 | bytes[4]};
    components = bytes[5];
    baseline = baseline && bytes[0] == 8;
    const bool has_ids = components == 3 && bytes.size() >= 15;
    named_rgb = has_ids && bytes[6] == 'R' && bytes[9] == 'G' && bytes[12] == 'B';
  }

  ImageSize size;
  int components = 0;
  bool baseline, named_rgb = false;
};

}  // namespace

std::optional<JpegHeader> read_jpeg_header(std::span<const std::byte> file) {
  const Bytes bytes(reinterpret_cast<const std::uint8_t*>(file.data()), file.size());
  if (!begins_with(bytes, "\xff\xd8")) return {};
  Segments segments(bytes);
  JpegHeader header;
  std::optional<Frame> frame;
  bool adobe_rgb = false, oriented = false;
  while (segments.next()) {
    const Bytes contents = segments.contents();
    if (is_frame(segments.marker())) {
      frame.emplace(segments.marker(), contents);
    } else if (segments.marker() == 0xe1 && !oriented && is_exif(contents)) {
      header.orientation = exif_orientation(contents);
      oriented = true;
    } else if (segments.marker() == 0xee && begins_with(contents, "Adobe")) {
      adobe_rgb = contents.size() >= 12 && contents[11] == 0;
    } else if (segments.marker() == 0xda) {
      if (!frame || frame->size.height < 1 || frame->size.width < 1 || contents.empty()) return {};
      header.size = frame->size;
      const bool is_ycc = frame->components == 3 && !adobe_rgb && !frame->named_rgb;
      const bool is_whole = bytes[bytes.size() - 2] == 0xff && bytes.back() == 0xd9;
      header.plain = frame->baseline && (frame->components == 1 || is_ycc) &&
                     contents[0] == frame->components && is_whole;
      return header;
    }
  }
  return {};
}

}  // namespace penstock::images
