// SPDX-License-Identifier: Apache-2.0
#pragma once

// LineReader: the lines of a text file, one after the other, without a copy of each.

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <penstock/detail/open_file.hpp>
#include <penstock/detail/storage/known_bytes.hpp>
#include <penstock/version.hpp>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// All members throw std::system_error.
class LineReader {
 public:
  explicit LineReader(const std::filesystem::path& path) : file_(path), buffer_(kBuffer) {}

  /// The next line, without \n or \r\n, the first one without the byte order mark of UTF-8; valid
  /// until the next call. nullopt: there is none.
  std::optional<std::string_view> next() {
    while (true) {
      char* const begin = buffer_.data() + begin_;
      if (const void* const end = std::memchr(begin, '\n', end_ - begin_); end != nullptr)
        return take(static_cast<std::size_t>(static_cast<const char*>(end) - begin), 1);
      if (at_end_ && begin_ == end_) return std::nullopt;
      if (at_end_) return take(end_ - begin_, 0);
      fill();
    }
  }

  /// Of the line that next() has returned; the first one is 1.
  std::uint64_t number() const noexcept { return number_; }

 private:
  static constexpr std::size_t kBuffer = std::size_t{1} << 20, kLongestLine = std::size_t{1} << 24;

  std::string_view take(std::size_t length, std::size_t end) {
    std::string_view line(buffer_.data() + begin_, length);
    begin_ += length + end;
    ++number_;
    if (number_ == 1 && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    return line;
  }

  void fill() {
    if (begin_ == 0 && end_ == buffer_.size()) {
      if (end_ >= kLongestLine)
        throw std::system_error(EOVERFLOW, std::generic_category(),
                                "a line of more than 16 MiB: not a text file");
      buffer_.resize(2 * end_);
    }
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    const auto room = std::as_writable_bytes(std::span(buffer_)).subspan(end_);
    const std::size_t count = file_.read(offset_, room);
    at_end_ = count < room.size();
    offset_ += count;
    end_ += count;
  }

  ReadOnlyFile file_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // of what is read and not taken, in buffer_
  std::uint64_t offset_ = 0, number_ = 0;
  bool at_end_ = false;
};

}  // namespace penstock::detail
