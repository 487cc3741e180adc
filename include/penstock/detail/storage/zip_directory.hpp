// SPDX-License-Identifier: Apache-2.0
#pragma once

// ZipDirectory: where the members of a zip archive lie that are stored, not compressed (PKWARE's
// APPNOTE.TXT 6.3, with the 64-bit sizes of its section 4.5.3).

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/escaped.hpp>
#include <penstock/detail/storage/number_at.hpp>
#include <penstock/detail/storage/store_file.hpp>
#include <penstock/file.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// All members throw StoreError.
class ZipDirectory {
 public:
  struct Entry {
    std::string_view name;
    std::uint16_t flags = 0, method = 0;
    std::uint64_t packed = 0, bytes = 0;
    std::uint64_t header = 0;  // where its own header begins
  };

  /// `file` has to outlive this.
  explicit ZipDirectory(const StoreFile& file) : file_(file) {
    find_directory();
    if (place_.bytes > 0) file_.read_or_fail(place_.offset, room());
    for (std::span<const std::byte> rest = directory_; !rest.empty();) take_entry(rest);
    if ((entries_.size() & kNone16) != (count_ & kNone16))
      fail_end("its directory has " + std::to_string(entries_.size()) +
               " members, and should have " + std::to_string(count_));
  }

  std::span<const Entry> entries() const noexcept { return entries_; }

  /// Where the bytes of a member are.
  FileRange bytes_of(const Entry& entry) const {
    constexpr std::size_t kHeader = 30;
    constexpr std::uint16_t kEncrypted = 1;
    if ((entry.flags & kEncrypted) != 0) fail(entry, "is encrypted");
    if (entry.method != 0 || entry.packed != entry.bytes)
      fail(entry, "is compressed (method " + std::to_string(entry.method) +
                      "): save the arrays by numpy.savez");
    if (entry.header > place_.offset || place_.offset - entry.header < kHeader)
      fail(entry, "begins behind the directory");
    std::vector<std::byte> room(kHeader + entry.name.size());
    file_.read_or_fail(entry.header, std::span(room).first(kHeader));
    const std::uint64_t names = number_at<std::uint16_t>(room, 26);
    const std::uint64_t extra = number_at<std::uint16_t>(room, 28);
    const std::uint64_t begin = entry.header + kHeader + names + extra;
    const bool is_header = number_at<std::uint32_t>(room, 0) == 0x04034b50 &&
                           number_at<std::uint16_t>(room, 8) == 0 && names == entry.name.size();
    if (!is_header || begin > place_.offset || entry.bytes > place_.offset - begin)
      fail(entry, "has no header at byte " + std::to_string(entry.header) +
                      ", or does not fit into the archive");
    file_.read_or_fail(entry.header + kHeader, std::span(room).subspan(kHeader));
    if (text(std::span(room).subspan(kHeader)) != entry.name)
      fail(entry, "has another name at byte " + std::to_string(entry.header));
    return {begin, entry.bytes};
  }

 private:
  static constexpr std::uint64_t kNone32 = 0xffff'ffff, kNone16 = 0xffff;

  [[noreturn]] void fail(const Entry& entry, const std::string& why) const {
    file_.fail("member " + escaped(entry.name.substr(0, 200)) + " " + why);
  }
  [[noreturn]] void fail_end(const std::string& why) const {
    file_.fail("the zip archive is damaged or cut: " + why);
  }
  static std::string_view text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::span<std::byte> room() try {
    directory_.resize(0);
    return room_in(directory_, place_.bytes);
  } catch (const std::runtime_error& error) {
    fail_end(std::string("its directory: ") + error.what());
  }

  void find_directory() {
    constexpr std::size_t kEnd = 22, kLocator = 20, kMostComment = 0xffff;
    std::vector<std::byte> room(static_cast<std::size_t>(
        std::min<std::uint64_t>(file_.bytes, kLocator + kEnd + kMostComment)));
    const std::uint64_t begin = file_.bytes - room.size();
    file_.read_or_fail(begin, room);
    std::size_t at = room.size();
    for (std::size_t i = 0; at == room.size() && i + kEnd <= room.size(); ++i) {
      const std::size_t place = room.size() - kEnd - i;
      if (number_at<std::uint32_t>(room, place) == 0x06054b50 &&
          number_at<std::uint16_t>(room, place + 20) == i)
        at = place;
    }
    if (at == room.size()) fail_end("its end has no directory");
    const std::uint64_t end = begin + at;
    count_ = number_at<std::uint16_t>(room, at + 10);
    place_.bytes = number_at<std::uint32_t>(room, at + 12);
    place_.offset = number_at<std::uint32_t>(room, at + 16);
    const bool is_large = count_ == kNone16 || place_.bytes == kNone32 || place_.offset == kNone32;
    if (is_large && at >= kLocator && number_at<std::uint32_t>(room, at - kLocator) == 0x07064b50)
      read_large_end(number_at<std::uint64_t>(room, at - kLocator + 8), end - kLocator);
    if (place_.offset > end || place_.bytes > end - place_.offset)
      fail_end("its directory does not fit into it");
  }

  void read_large_end(std::uint64_t at, std::uint64_t end) {
    std::array<std::byte, 56> record;
    if (at > end || end - at < record.size()) fail_end("its end is not where it says");
    file_.read_or_fail(at, record);
    if (number_at<std::uint32_t>(record, 0) != 0x06064b50) fail_end("its end is not where it says");
    count_ = number_at<std::uint64_t>(record, 32);
    place_.bytes = number_at<std::uint64_t>(record, 40);
    place_.offset = number_at<std::uint64_t>(record, 48);
  }

  /// Takes the entry at the beginning of `rest` away from it.
  void take_entry(std::span<const std::byte>& rest) {
    constexpr std::size_t kEntry = 46;
    if (rest.size() < kEntry || number_at<std::uint32_t>(rest, 0) != 0x02014b50)
      fail_end("entry " + std::to_string(entries_.size()) + " of its directory");
    const std::size_t name = number_at<std::uint16_t>(rest, 28);
    const std::size_t extra = number_at<std::uint16_t>(rest, 30);
    const std::size_t size = kEntry + name + extra + number_at<std::uint16_t>(rest, 32);
    if (rest.size() < size) fail_end("the name of entry " + std::to_string(entries_.size()));
    Entry entry{.name = text(rest.subspan(kEntry, name)),
                .flags = number_at<std::uint16_t>(rest, 8),
                .method = number_at<std::uint16_t>(rest, 10),
                .packed = number_at<std::uint32_t>(rest, 20),
                .bytes = number_at<std::uint32_t>(rest, 24),
                .header = number_at<std::uint32_t>(rest, 42)};
    take_large_numbers(rest.subspan(kEntry + name, extra), entry);
    entries_.push_back(entry);
    rest = rest.subspan(size);
  }

  /// The numbers of 64 bits that stand for those that do not fit into the entry.
  void take_large_numbers(std::span<const std::byte> extra, Entry& entry) const {
    while (extra.size() >= 4) {
      const auto id = number_at<std::uint16_t>(extra, 0);
      const std::size_t size = number_at<std::uint16_t>(extra, 2);
      if (size > extra.size() - 4) fail(entry, "has an extra field that is cut");
      if (id == 1) {
        std::span<const std::byte> field = extra.subspan(4, size);
        for (std::uint64_t* number : {&entry.bytes, &entry.packed, &entry.header}) {
          if (*number != kNone32) continue;
          if (field.size() < 8) fail(entry, "has an extra field that is cut");
          *number = number_at<std::uint64_t>(field, 0);
          field = field.subspan(8);
        }
      }
      extra = extra.subspan(4 + size);
    }
  }

  const StoreFile& file_;
  FileRange place_;  // of the directory
  std::uint64_t count_ = 0;
  std::vector<std::byte> directory_;
  std::vector<Entry> entries_;
};

}  // namespace penstock::detail
