// SPDX-License-Identifier: Apache-2.0
#pragma once

// AnswerHead: what the head of an answer says about the bytes behind it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <penstock/version.hpp>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::remote {

class AnswerHead {
 public:
  /// Takes a line, with or without its line end. A status line begins another head. Nothing
  /// allocates.
  void take(std::string_view line) noexcept;

  /// Whether there was a status line, and an empty line behind it.
  bool complete() const noexcept { return complete_; }
  int status() const noexcept { return status_; }
  /// With its quotes; empty where there is none, or one of more than 255 bytes.
  std::string_view etag() const noexcept { return {etag_.data(), etag_bytes_}; }
  /// Content-Length.
  std::optional<std::uint64_t> length() const noexcept { return length_; }
  /// Of the whole object, as Google (x-goog-hash) and S3 (x-amz-checksum-crc32c) say it. nullopt:
  /// there is none, or one of the checksums of its parts.
  std::optional<std::uint32_t> crc32c() const noexcept { return crc32c_; }

  /// Content-Range: bytes first-last/total. Of bytes */total there is the total alone.
  struct Range {
    bool has_bytes = false;
    std::uint64_t first = 0, last = 0;
    std::optional<std::uint64_t> total;
  };
  /// nullopt where there is none, or none that can be read.
  const std::optional<Range>& range() const noexcept { return range_; }

 private:
  bool complete_ = false;
  int status_ = 0;
  std::array<char, 255> etag_;
  std::size_t etag_bytes_ = 0;
  std::optional<std::uint64_t> length_;
  std::optional<std::uint32_t> crc32c_;
  std::optional<Range> range_;
};

}  // namespace penstock::remote
