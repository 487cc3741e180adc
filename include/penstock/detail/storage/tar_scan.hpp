// SPDX-License-Identifier: Apache-2.0
#pragma once

// TarScan: the members of a tar file, one after the other. Reads the headers and skips what is
// between them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <penstock/detail/storage/read_only_file.hpp>
#include <penstock/detail/storage/tar_format.hpp>
#include <penstock/store.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace penstock::detail {

class TarScan {
 public:
  /// A regular file with a base name and an extension.
  struct Member {
    TarName name;                // valid until the next call
    std::uint64_t offset, size;  // of its bytes in the tar
  };

  /// The file has to outlive this.
  TarScan(std::filesystem::path path, const ReadOnlyFile& file)
      : path_(std::move(path)), file_(file), bytes_(file.size()) {}

  /// nullopt: there is none any more. Throws StoreError, and std::system_error if the file cannot
  /// be read.
  std::optional<Member> next() {
    while (true) {
      const std::uint64_t at = at_;
      const TarHeader header(block(at));
      if (header.is_zero()) return std::nullopt;
      if (!header.has_right_checksum()) fail_checksum(at);
      const bool is_note = is_about_next(header.type());
      const std::optional<std::uint64_t> size = pax_size_ && !is_note ? pax_size_ : header.size();
      if (!size) fail("the header at byte " + std::to_string(at) + " has no size");
      if (is_note) {
        note(header.type(), at, *size);
        continue;
      }
      take_name(header);
      pax_size_.reset();
      at_ = at + kTarBlock;
      const std::optional<TarName> name = split_tar_name(current_);
      if (!is_file(header.type(), name.has_value())) continue;
      require_inside(*size);
      at_ += in_tar_blocks(*size);
      if (name) return Member{*name, at + kTarBlock, *size};
    }
  }

 private:
  static constexpr std::size_t kWindow = 8 * kTarBlock;

  [[noreturn]] void fail(const std::string& why) const {
    throw StoreError("TarShards", path_, why);
  }

  [[noreturn]] void fail_checksum(std::uint64_t at) {
    const auto* const magic = reinterpret_cast<const char*>(block(at).data());
    const std::string_view start(magic, 4);
    if (at == 0 && (start.starts_with("\x1F\x8B") || start == "\x28\xB5\x2F\xFD" ||
                    start == "\xFD"
                             "7zX" ||
                    start.starts_with("BZh")))
      fail("the tar is compressed: its samples cannot be read in any order. Decompress it");
    fail("at byte " + std::to_string(at) +
         " is no header of a member (its checksum is wrong): the file is damaged, or no tar");
  }

  /// Headers that say something about the member behind them, or about nothing that is of use.
  static bool is_about_next(char type) {
    return type == 'L' || type == 'K' || type == 'x' || type == 'g';
  }

  /// Does such a member have bytes behind its header?
  bool is_file(char type, bool has_name) const {
    switch (type) {
      case '\0':
      case '0':
      case '7':  // contiguous, where there was such a thing
        return true;
      case '1':
      case '2':
        if (has_name)
          fail("member " + current_ +
               " is a link, whose bytes lie elsewhere: make the tar with --dereference "
               "--hard-dereference");
        return false;
      case '3':
      case '4':
      case '5':
      case '6':
      case 'V':  // the name of the volume
        return false;
      case 'S':
        fail_sparse();
      default:
        fail("member " + current_ + " is of the unknown type '" + type + "'");
    }
  }
  [[noreturn]] void fail_sparse() const {
    fail("member " + current_ + " is sparse: make the tar without --sparse");
  }

  /// The block at this byte; valid until the next call.
  std::span<const std::byte> block(std::uint64_t at) {
    if (at < window_at_ || at + kTarBlock > window_at_ + window_bytes_) {
      window_at_ = at;
      window_bytes_ = file_.read(at, window_);
    }
    if (window_bytes_ < kTarBlock + (at - window_at_))
      fail("the file is cut: it ends at byte " + std::to_string(bytes_) +
           ", without the zeros that end a tar");
    return std::span(window_).subspan(static_cast<std::size_t>(at - window_at_), kTarBlock);
  }

  /// `size` bytes from at_ on lie in the file.
  void require_inside(std::uint64_t size) const {
    if (at_ <= bytes_ && size <= bytes_ - at_) return;
    fail("member " + current_ + ", " + std::to_string(size) + " bytes from byte " +
         std::to_string(at_) + " on, does not fit into the file's " + std::to_string(bytes_) +
         ": the file is cut");
  }

  void note(char type, std::uint64_t at, std::uint64_t size) {
    at_ = at + kTarBlock;
    current_ = type == 'L' || type == 'K' ? "(a long name)" : "(a header of pax)";
    require_inside(size);
    if (type == 'L' || type == 'x') {
      if (size > kLongestTarNote)
        fail("at byte " + std::to_string(at) + ": a name or header of " + std::to_string(size) +
             " bytes");
      note_.resize(static_cast<std::size_t>(size));
      if (file_.read(at_, std::as_writable_bytes(std::span(note_))) < note_.size())
        fail("the file has become shorter while it was read");
      if (type == 'L')
        name_ = note_.substr(0, note_.find('\0'));
      else
        note_pax(at);
    }
    at_ += in_tar_blocks(size);
  }

  void note_pax(std::uint64_t at) {
    const std::optional<PaxHeader> pax = parse_pax(note_);
    if (!pax) fail("at byte " + std::to_string(at) + ": a header of pax that is damaged");
    if (pax->path.find('\0') != std::string_view::npos)
      fail("at byte " + std::to_string(at) + ": a name with a character 0");
    current_ = pax->path;
    if (pax->sparse) fail_sparse();
    if (!pax->path.empty()) name_ = pax->path;
    pax_size_ = pax->size;
  }

  void take_name(const TarHeader& header) {
    current_.clear();
    std::swap(current_, name_);
    if (!current_.empty()) return;
    current_ = header.prefix();
    if (!current_.empty()) current_ += '/';
    current_ += header.name();
  }

  const std::filesystem::path path_;
  const ReadOnlyFile& file_;
  const std::uint64_t bytes_;
  std::uint64_t at_ = 0;  // of the next header
  std::array<std::byte, kWindow> window_;
  std::uint64_t window_at_ = 0;
  std::size_t window_bytes_ = 0;
  std::string note_;
  std::string name_;  // of the next member, if a header before it says so
  std::optional<std::uint64_t> pax_size_;
  std::string current_;  // of the member that is looked at
};

}  // namespace penstock::detail
