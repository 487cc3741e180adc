// SPDX-License-Identifier: Apache-2.0

#include "demuxer.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <penstock/error.hpp>
#include <penstock/video/video_error.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::video {

/// What libavformat reads: a File and a position in it.
struct Demuxer::Input {
  explicit Input(const File& of) : file(of) {
    constexpr int kBytes = 1 << 16;
    auto* const buffer = static_cast<unsigned char*>(allocated(av_malloc(kBytes)));
    context = avio_alloc_context(buffer, kBytes, 0, this, &Input::read, nullptr, &Input::seek);
    if (context != nullptr) return;
    av_free(buffer);
    throw std::bad_alloc();
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;
  ~Input() {
    av_freep(static_cast<void*>(&context->buffer));  // libavformat may have replaced the first one.
    avio_context_free(&context);
  }

  static int read(void* opaque, std::uint8_t* target, int bytes) {
    auto& input = *static_cast<Input*>(opaque);
    try {
      const std::size_t count = input.file.read(
          input.at, {reinterpret_cast<std::byte*>(target), static_cast<std::size_t>(bytes)});
      input.at += count;
      return count == 0 ? AVERROR_EOF : static_cast<int>(count);
    } catch (...) {
      input.error = std::current_exception();
      return AVERROR(EIO);
    }
  }

  static std::int64_t seek(void* opaque, std::int64_t offset, int from) {
    auto& input = *static_cast<Input*>(opaque);
    const auto size = static_cast<std::int64_t>(input.file.size());
    if (from == AVSEEK_SIZE) return size;
    const int kind = from & ~AVSEEK_FORCE;
    if (kind == SEEK_CUR) offset += static_cast<std::int64_t>(input.at);
    if (kind == SEEK_END) offset += size;
    if (offset < 0) return AVERROR(EINVAL);
    input.at = static_cast<std::uint64_t>(offset);
    return offset;
  }

  File file;
  std::uint64_t at = 0;
  std::exception_ptr error;
  AVIOContext* context = nullptr;
};

Demuxer::Demuxer(const File& file, std::optional<std::uint32_t> number)
    : input_(std::make_unique<Input>(file)) {
  open();
  choose_stream(number);
}

Demuxer::~Demuxer() = default;

void Demuxer::fail(const std::string& why) const {
  throw VideoError(input_->file.name() + ": " + why);
}

void Demuxer::rethrow_input() {
  if (input_->error == nullptr) return;
  try {
    std::rethrow_exception(std::exchange(input_->error, nullptr));
  } catch (...) {
    std::throw_with_nested(
        VideoError(input_->file.name() + ": " + penstock::detail::what_is_handled()));
  }
}

void Demuxer::open() {
  const MessageScope scope;
  forget_messages();
  AVFormatContext* format = allocated(avformat_alloc_context());
  format->pb = input_->context;
  AVDictionary* options = nullptr;
  // Other demuxers follow names of files and URLs in the file, or are for devices.
  av_dict_set(&options, "format_whitelist", "mov,mp4,matroska,webm", 0);
  const int status = avformat_open_input(&format, nullptr, nullptr, &options);
  av_dict_free(&options);
  rethrow_input();
  if (status < 0)  // avformat_open_input has freed it.
    fail("is no MP4 or Matroska file that libavformat can open: " + error_text(status));
  format_.reset(format);
}

void Demuxer::choose_stream(std::optional<std::uint32_t> number) {
  if (!number) {
    const MessageScope scope;
    const int status = avformat_find_stream_info(format_.get(), nullptr);
    rethrow_input();
    if (status < 0) fail("its streams cannot be described: " + error_text(status));
    const int best = av_find_best_stream(format_.get(), AVMEDIA_TYPE_VIDEO, -1, -1, nullptr, 0);
    if (best < 0) fail("has no video stream");
    number = static_cast<std::uint32_t>(best);
  }
  if (*number >= format_->nb_streams ||
      format_->streams[*number]->codecpar->codec_type != AVMEDIA_TYPE_VIDEO)
    fail("its stream " + std::to_string(*number) +
         " is no video: the file has changed, so delete its saved index");
  stream_ = format_->streams[*number];
  for (unsigned i = 0; i < format_->nb_streams; ++i)
    if (i != *number) format_->streams[i]->discard = AVDISCARD_ALL;
}

bool Demuxer::read(AVPacket& packet) {
  const MessageScope scope;
  is_at_begin_ = false;
  for (;;) {
    av_packet_unref(&packet);
    const int status = av_read_frame(format_.get(), &packet);
    rethrow_input();
    if (status == AVERROR(ENOMEM))
      fail("a packet does not fit into memory: the file is damaged, or memory is short");
    if (status < 0) return false;
    if (packet.stream_index == stream_->index) return true;
  }
}

/// The index of a Matroska file has the times of display, that of an MP4 file those of decoding.
bool Demuxer::seeks_by_display() const noexcept {
  return std::string_view(format_->iformat->name).starts_with("matroska");
}

bool Demuxer::seek(std::int64_t time) {
  const MessageScope scope;
  forget_messages();
  is_at_begin_ = false;
  const int status = av_seek_frame(format_.get(), stream_->index, time, AVSEEK_FLAG_BACKWARD);
  rethrow_input();
  return status >= 0;
}

}  // namespace penstock::video
