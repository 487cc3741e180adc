// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <penstock/detail/mix.hpp>
#include <penstock/detail/open_file.hpp>
#include <penstock/detail/storage/crc32c.hpp>
#include <penstock/detail/storage/number_at.hpp>
#include <penstock/detail/whole_file.hpp>
#include <penstock/video/frame_index.hpp>
#include <penstock/video/video_error.hpp>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

// The file: magic, version and checksum of the rest; then the header, frames and starts, all
// little-endian.
constexpr std::string_view kMagic = "PENSTVFI";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kChecked = 16;  ///< the checksum is of the bytes from here on

static_assert(sizeof(FrameEntry) == 16 && std::is_trivially_copyable_v<FrameEntry>);
static_assert(sizeof(StartEntry) == 32 && std::is_trivially_copyable_v<StartEntry>);

struct Header {
  std::uint64_t video_size;
  std::int64_t video_time;
  std::uint64_t frames, starts;
  std::int64_t end;
  std::uint8_t codec, transposed, mirrored_rows, mirrored_columns;
  std::uint8_t bits, full_range, matrix, chroma;
  std::uint32_t number;
  std::int32_t height, width;
  std::int32_t base_numerator, base_denominator, aspect_numerator, aspect_denominator;
  std::int32_t reorder_delay;
};
static_assert(sizeof(Header) == 80 && std::is_trivially_copyable_v<Header>);

Header header_of(const VideoStream& stream) {
  Header header{};
  header.codec = static_cast<std::uint8_t>(stream.codec);
  header.transposed = stream.orientation.transposed;
  header.mirrored_rows = stream.orientation.mirrored_rows;
  header.mirrored_columns = stream.orientation.mirrored_columns;
  header.bits = static_cast<std::uint8_t>(stream.bits);
  header.full_range = stream.full_range;
  header.matrix = static_cast<std::uint8_t>(stream.matrix);
  header.chroma = static_cast<std::uint8_t>(stream.chroma);
  header.number = stream.number;
  header.height = stream.size.height;
  header.width = stream.size.width;
  header.base_numerator = stream.time_base.numerator;
  header.base_denominator = stream.time_base.denominator;
  header.aspect_numerator = stream.pixel_aspect.numerator;
  header.aspect_denominator = stream.pixel_aspect.denominator;
  header.reorder_delay = stream.reorder_delay;
  return header;
}

VideoStream stream_of(const Header& header) {
  VideoStream stream;
  stream.codec = static_cast<Codec>(header.codec);
  stream.orientation = {header.transposed != 0, header.mirrored_rows != 0,
                        header.mirrored_columns != 0};
  stream.bits = header.bits;
  stream.full_range = header.full_range != 0;
  stream.matrix = static_cast<ColourMatrix>(header.matrix);
  stream.chroma = static_cast<ChromaSite>(header.chroma);
  stream.number = header.number;
  stream.size = {header.height, header.width};
  stream.time_base = {header.base_numerator, header.base_denominator};
  stream.pixel_aspect = {header.aspect_numerator, header.aspect_denominator};
  stream.reorder_delay = header.reorder_delay;
  return stream;
}

void require(bool holds, const char* what) {
  if (!holds) throw VideoError(std::string("index of a video: ") + what);
}

/// So that differences of times fit into 64 bits.
constexpr std::int64_t kLatest = std::int64_t{1} << 61;

bool is_time(std::int64_t time) {
  return time >= -kLatest && time <= kLatest;
}

void check(const VideoStream& stream) {
  require(stream.codec >= Codec::h264 && stream.codec <= Codec::av1, "the codec is unknown");
  require(stream.matrix <= ColourMatrix::fcc, "the colour matrix is unknown");
  require(stream.chroma <= ChromaSite::top_left, "the place of the chroma samples is unknown");
  require(stream.bits == 8 || stream.bits == 10, "samples have neither 8 nor 10 bits");
  require(stream.size.height > 0 && stream.size.width > 0, "the picture is empty");
  require(stream.time_base.numerator > 0 && stream.time_base.denominator > 0,
          "the time base is not above 0");
  require(stream.pixel_aspect.numerator >= 0 && stream.pixel_aspect.denominator > 0,
          "the aspect of a pixel is negative");
  require(stream.reorder_delay >= 0 && stream.reorder_delay <= 16,
          "the decoder would keep back more than 16 pictures");
}

void check(const std::vector<StartEntry>& starts) {
  require(!starts.empty(), "there is no frame to begin with");
  for (std::size_t i = 0; i < starts.size(); ++i) {
    require(is_time(starts[i].time) && starts[i].is_key <= 1, "a start is not valid");
    require(i == 0 || starts[i - 1].packet < starts[i].packet, "starts are not in order");
  }
}

std::int64_t nanoseconds_of_change(const File& video) {
  if (video.descriptor() < 0) return 0;
  const struct stat status = penstock::detail::OpenFile::status_of(video.descriptor());
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

/// Copies the values to `at`, and returns the end of the copy.
template <class T>
std::byte* put(std::byte* at, std::span<const T> values) {
  if (!values.empty()) std::memcpy(at, values.data(), values.size_bytes());
  return at + values.size_bytes();
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

FrameIndex::FrameIndex(const VideoStream& stream, std::vector<FrameEntry> frames,
                       std::vector<StartEntry> starts, std::int64_t end)
    : stream_(stream), frames_(std::move(frames)), starts_(std::move(starts)), end_(end) {
  check(stream_);
  check(starts_);
  require(!frames_.empty(), "there are no frames");
  for (std::size_t i = 0; i < frames_.size(); ++i) {
    const FrameEntry& frame = frames_[i];
    require(is_time(frame.time), "a time is too large");
    require(i == 0 || frames_[i - 1].time <= frame.time, "frames are not in order");
    require(frame.start < starts_.size() && starts_[frame.start].packet <= frame.packet,
            "a frame has no start");
  }
  require(is_time(end_) && end_ > frames_.back().time, "the end is before the last frame's");
}

// ---- Files -------------------------------------------------------------------------------------

std::vector<std::byte> FrameIndex::bytes(std::uint64_t video_size, std::int64_t video_time) const {
  Header header = header_of(stream_);
  header.video_size = video_size;
  header.video_time = video_time;
  header.frames = frames_.size();
  header.starts = starts_.size();
  header.end = end_;
  std::vector<std::byte> bytes(kChecked + sizeof(header) + frames_.size() * sizeof(FrameEntry) +
                               starts_.size() * sizeof(StartEntry));
  put(put(bytes.data(), std::span<const char>(kMagic)),
      std::span<const std::uint32_t>(&kVersion, 1));
  std::byte* at = put(bytes.data() + kChecked, std::span<const Header>(&header, 1));
  at = put(at, std::span<const FrameEntry>(frames_));
  put(at, std::span<const StartEntry>(starts_));
  const std::uint32_t sum =
      penstock::detail::crc32c(std::span<const std::byte>(bytes).subspan(kChecked));
  std::memcpy(bytes.data() + kChecked - sizeof(sum), &sum, sizeof(sum));
  return bytes;
}

FrameIndex FrameIndex::parse(std::span<const std::byte> bytes, std::uint64_t video_size,
                             std::int64_t video_time, const VideoLimits& limits) {
  using penstock::detail::number_at;
  require(bytes.size() >= kChecked + sizeof(Header) && text_of(bytes).starts_with(kMagic),
          "these bytes are none");
  require(number_at<std::uint32_t>(bytes, 8) == kVersion, "it has another version");
  require(number_at<std::uint32_t>(bytes, 12) == penstock::detail::crc32c(bytes.subspan(kChecked)),
          "the checksum is wrong");
  const auto header = number_at<Header>(bytes, kChecked);
  require(header.video_size == video_size && header.video_time == video_time,
          "it is of another video, or the video has changed");
  std::span<const std::byte> rest = bytes.subspan(kChecked + sizeof(Header));
  require(
      header.frames <= limits.max_frames && header.frames <= rest.size() / sizeof(FrameEntry) &&
          header.starts ==
              (rest.size() - header.frames * sizeof(FrameEntry)) / sizeof(StartEntry) &&
          rest.size() == header.frames * sizeof(FrameEntry) + header.starts * sizeof(StartEntry),
      "it has another length");
  require(header.height > 0 && header.width > 0 &&
              std::int64_t{header.height} * header.width <= limits.max_pixels,
          "a picture is empty, or beyond VideoLimits::max_pixels");
  std::vector<FrameEntry> frames(header.frames);
  std::memcpy(frames.data(), rest.data(), frames.size() * sizeof(FrameEntry));
  rest = rest.subspan(frames.size() * sizeof(FrameEntry));
  std::vector<StartEntry> starts(header.starts);
  if (!starts.empty()) std::memcpy(starts.data(), rest.data(), rest.size());
  return {stream_of(header), std::move(frames), std::move(starts), header.end};
}

std::optional<FrameIndex> FrameIndex::load(const std::filesystem::path& index, const File& video,
                                           const VideoLimits& limits) {
  try {
    const penstock::detail::ReadOnlyFile file(index);
    const std::uint64_t size = file.size();
    if (size >
        kChecked + sizeof(Header) + limits.max_frames * (sizeof(FrameEntry) + sizeof(StartEntry)))
      return std::nullopt;
    std::vector<std::byte> bytes(size);
    if (file.read(0, bytes) != size) return std::nullopt;
    return parse(bytes, video.size(), nanoseconds_of_change(video), limits);
  } catch (const std::system_error&) {
    return std::nullopt;  // It is missing, or cannot be read.
  } catch (const VideoError&) {
    return std::nullopt;  // It is of another version, old or damaged.
  }
}

void FrameIndex::save(const std::filesystem::path& index, const File& video) const {
  const std::vector<std::byte> content = bytes(video.size(), nanoseconds_of_change(video));
  penstock::detail::WholeFile file(index);
  file.write(text_of(content));
  file.commit();
}

FrameIndex FrameIndex::open(const File& video, const std::filesystem::path& index,
                            const VideoLimits& limits) {
  if (std::optional<FrameIndex> loaded = load(index, video, limits)) return *std::move(loaded);
  FrameIndex made = make(video, limits);
  try {
    made.save(index, video);
  } catch (const std::system_error&) {  // The folder cannot be written, or is full: the next run
  }                                     // makes the index again.
  return made;
}

std::filesystem::path FrameIndex::path_beside(std::filesystem::path video) {
  video += ".frames";
  return video;
}

std::filesystem::path FrameIndex::path_in(const std::filesystem::path& folder,
                                          const std::string& video) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::uint64_t sum = 0;
  for (const char letter : video)
    sum = penstock::detail::mix64(sum ^ static_cast<unsigned char>(letter));
  std::string name = std::filesystem::path(video).filename().string();
  if (name.size() > 128) name.resize(128);  // Names of files have at most 255 bytes.
  name += '-';
  for (int shift = 60; shift >= 0; shift -= 4) name += kDigits[(sum >> shift) & 15];
  return path_beside(folder / name);
}

// ---- Frames ------------------------------------------------------------------------------------

bool FrameIndex::is_key(std::uint64_t i) const {
  const FrameEntry& frame = frames_.at(i);
  const StartEntry& start = starts_[frame.start];
  return start.is_key != 0 && start.packet == frame.packet;
}

double FrameIndex::time(std::uint64_t i) const {
  const auto units = static_cast<double>(frames_.at(i).time - frames_.front().time);
  return units * stream_.time_base.numerator / stream_.time_base.denominator;
}

double FrameIndex::duration() const noexcept {
  const auto units = static_cast<double>(end_ - frames_.front().time);
  return units * stream_.time_base.numerator / stream_.time_base.denominator;
}

std::uint64_t FrameIndex::at(double seconds) const noexcept {
  const double units = seconds * stream_.time_base.denominator / stream_.time_base.numerator + 0.5;
  const std::int64_t first = frames_.front().time;
  const auto later = std::upper_bound(frames_.begin(), frames_.end(), units,
                                      [first](double time, const FrameEntry& frame) {
                                        return time < static_cast<double>(frame.time - first);
                                      });
  return later == frames_.begin() ? 0 : static_cast<std::uint64_t>(later - frames_.begin()) - 1;
}

double FrameIndex::file_time(std::uint64_t i) const {
  return static_cast<double>(frames_.at(i).time) * stream_.time_base.numerator /
         stream_.time_base.denominator;
}

}  // namespace penstock::video
