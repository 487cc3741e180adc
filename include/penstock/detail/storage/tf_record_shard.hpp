// SPDX-License-Identifier: Apache-2.0
#pragma once

// TfRecordShard: one of the files of a TfRecordFile. A record is
//
//   u64 length, u32 checksum of the length, the bytes, u32 checksum of the bytes
//
// and a checksum is a CRC-32C that is rotated and added to, so that the checksum of bytes that hold
// checksums stays good (TensorFlow: "TFRecord and tf.train.Example").

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <penstock/detail/storage/crc32c.hpp>
#include <penstock/detail/storage/known_bytes.hpp>
#include <penstock/detail/storage/line_reader.hpp>
#include <penstock/detail/storage/number_at.hpp>
#include <penstock/detail/storage/store_file.hpp>
#include <penstock/detail/words.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

inline constexpr std::uint64_t kTfRecordHead = 12, kTfRecordFrame = 16;  // bytes

inline std::uint32_t masked_crc32c(std::span<const std::byte> bytes) {
  const std::uint32_t sum = crc32c(bytes);
  return ((sum >> 15) | (sum << 17)) + 0xa282ead8u;
}

/// Whether the head, 12 bytes, has the checksum of its length.
inline bool is_tf_record_head(std::span<const std::byte> head) {
  return masked_crc32c(head.first(8)) == number_at<std::uint32_t>(head, 8);
}

struct TfRecordShard : StoreFile {
  TfRecordShard(const File& open_file, std::uint64_t first_record)
      : StoreFile("TfRecordFile", open_file), first(first_record) {
    if (bytes == 0) fail("the file is empty");
  }

  std::uint64_t first;  // number of its first record

  /// Appends where each record ends, by reading all lengths. Throws StoreError.
  void scan(std::vector<std::uint64_t>& ends) const {
    std::vector<std::byte> window(kWindow);
    std::uint64_t begin = 0, end = 0;  // of the window
    for (std::uint64_t at = 0; at < bytes;) {
      const auto fail_here = [&](const std::string& why) {
        fail("record " + std::to_string(ends.size() - first) + ", at byte " + std::to_string(at) +
             ", is " + why);
      };
      if (bytes - at < kTfRecordFrame)
        fail_here("cut: the file ends behind " + std::to_string(bytes - at) + " bytes of it");
      if (at < begin || at + kTfRecordHead > end) {
        // Of large records the lengths alone are read.
        const std::uint64_t mean = ends.size() == first ? 0 : at / (ends.size() - first);
        const std::uint64_t some = mean > kWindow / 4 ? kTfRecordHead : kWindow;
        begin = at;
        end = at + std::min(some, bytes - at);
        read_or_fail(at, std::span(window).first(static_cast<std::size_t>(end - at)));
      }
      const auto head = std::span<const std::byte>(window).subspan(
          static_cast<std::size_t>(at - begin), kTfRecordHead);
      if (!is_tf_record_head(head)) {
        if (at > 0) fail_here("damaged: the checksum of its length is another");
        fail("it is no TFRecord file, or damaged: the checksum of the first length is another; " +
             what_they_are(std::span(window).first(static_cast<std::size_t>(end - begin))));
      }
      const auto length = number_at<std::uint64_t>(head, 0);
      if (length > bytes - at - kTfRecordFrame)
        fail_here("cut: it has " + std::to_string(length) + " bytes, and the file " +
                  std::to_string(bytes));
      at += kTfRecordFrame + length;
      ends.push_back(at);
    }
  }

  /// The same by an index, whose lines are "OFFSET SIZE" of the records with their frames. Throws
  /// StoreError.
  void read_index(const std::filesystem::path& index, std::vector<std::uint64_t>& ends) const try {
    LineReader lines(index);
    std::uint64_t at = 0;
    const auto fail_line = [&](const std::string& why) {
      throw StoreError("TfRecordFile", index,
                       "line " + std::to_string(lines.number()) + ": " + why +
                           ". Remove the index, make it again, or set "
                           "TfRecordOptions::use_indexes to false");
    };
    while (std::optional<std::string_view> line = lines.next()) {
      if (line->empty()) continue;
      const auto offset = read_number<std::uint64_t>(take_word(*line));
      const auto size = read_number<std::uint64_t>(*line);
      if (!offset || !size) fail_line("it is not \"offset size\" of a record");
      if (*offset != at || *size < kTfRecordFrame || *size > bytes - at)
        fail_line("a record of " + std::to_string(*size) + " bytes from byte " +
                  std::to_string(*offset) + " on is not what follows at byte " +
                  std::to_string(at) + " of the file's " + std::to_string(bytes) +
                  ": it is the index of another file");
      ends.push_back(at += *size);
    }
    if (at != bytes)
      fail_line("the records end at byte " + std::to_string(at) + " of " + std::to_string(bytes) +
                ": it is the index of another file, or the file has grown");
  } catch (const std::system_error& error) {
    throw StoreError("TfRecordFile", index, error.what());
  }

 private:
  static constexpr std::size_t kWindow = std::size_t{64} << 10;
};

}  // namespace penstock::detail
