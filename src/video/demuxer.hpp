// SPDX-License-Identifier: Apache-2.0
#pragma once

// Demuxer: the packets of the video stream of a File, by libavformat.

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <penstock/file.hpp>
#include <stop_token>

#include "ffmpeg.hpp"

namespace penstock::inline PENSTOCK_ABI::video {

/// Use an object on one thread at a time. All members throw VideoError that names the file; if the
/// File could not be read, with its error nested.
class Demuxer {
 public:
  /// Opens the file, which is MP4 or Matroska. With `number`, takes this stream, and reads nothing
  /// but the headers; without, the best one, and looks into its first packets to describe it.
  explicit Demuxer(const File& file, std::optional<std::uint32_t> number = {});
  Demuxer(const Demuxer&) = delete;
  Demuxer& operator=(const Demuxer&) = delete;
  ~Demuxer();

  const AVStream& stream() const noexcept { return *stream_; }
  /// Fills `packet` with the next packet of the stream. Returns false at the end of the file, and
  /// where it is cut or damaged so that nothing more can be read.
  bool read(AVPacket& packet);
  /// Makes read() go on at the key frame at or before this time, which is of display if
  /// seeks_by_display(), else of decoding. Returns false if libavformat cannot find it.
  bool seek(std::int64_t time);
  bool seeks_by_display() const noexcept;
  /// Whether nothing was read or sought since the file was opened.
  bool is_at_begin() const noexcept { return is_at_begin_; }

 private:
  struct Input;
  struct Close {
    void operator()(AVFormatContext* format) const {
      const MessageScope scope;
      avformat_close_input(&format);
    }
  };
  void open();
  void choose_stream(std::optional<std::uint32_t> number);
  void rethrow_input();
  [[noreturn]] void fail(const std::string& why) const;

  std::unique_ptr<Input> input_;
  std::unique_ptr<AVFormatContext, Close> format_;
  AVStream* stream_ = nullptr;
  bool is_at_begin_ = true;
};

}  // namespace penstock::video
