// SPDX-License-Identifier: Apache-2.0
#pragma once

// TarScan: the members of a tar file, one after the other. Reads the headers and skips what is
// between them.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <penstock/detail/storage/known_bytes.hpp>
#include <penstock/detail/storage/sample_names.hpp>
#include <penstock/detail/storage/tar_file.hpp>
#include <penstock/detail/storage/tar_format.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

struct TarScanOptions {
  bool allow_missing_end = false;  // the tar may end behind any member
  bool skip_links = false;         // else one that has the name of a sample is an error
  std::uint64_t from = 0;          // byte of the first header
};

class TarScan {
 public:
  /// A regular file with a base name and an extension.
  struct Member {
    TarName name;                // valid until the next call
    std::uint64_t offset, size;  // of its bytes in the tar
  };

  /// `tar` gets what its global headers say. It has to outlive this.
  TarScan(TarFile& tar, const TarScanOptions& options)
      : tar_(tar), options_(options), at_(options.from) {}

  /// nullopt: there is none any more. Throws StoreError, and std::runtime_error if the file cannot
  /// be read.
  std::optional<Member> next() {
    while (!at_end()) {
      const std::uint64_t at = at_;
      const TarHeader header(block(at));
      if (header.is_zero()) {
        require_nothing_behind(at);
        return std::nullopt;
      }
      if (!header.has_right_checksum())
        fail_no_header(at, block(at),
                       "at byte " + std::to_string(at) +
                           " is no header of a member (its checksum is wrong): the file is "
                           "damaged, or no tar");
      const bool is_note = is_tar_note(header.type());
      const TarGlobal& global = tar_.global_at(at);
      const std::optional<std::uint64_t> size =
          is_note ? header.size() : notes_.size_of(header, global);
      if (!size) fail("the header at byte " + std::to_string(at) + " has no size");
      if (is_note) {
        note(header.type(), at, *size);
        continue;
      }
      std::array<char, TarHeader::kLongestName> room;
      current_ = notes_.name_of(header, global, room);
      at_ = at + kTarBlock;
      const std::optional<TarName> name = split_tar_name(current_);
      if (std::exchange(notes_, {}).sparse && name) fail_sparse();
      if (!is_file(header.type(), name.has_value())) continue;
      require_inside(*size);
      at_ += in_tar_blocks(*size);
      if (name) return Member{*name, at + kTarBlock, *size};
      if (is_left_by_tools(current_)) ++left_by_tools_;
    }
    return std::nullopt;
  }

  /// Members so far that Jupyter or macOS have left.
  std::uint64_t left_by_tools() const noexcept { return left_by_tools_; }

 private:
  static constexpr std::size_t kWindow = 8 * kTarBlock;

  [[noreturn]] void fail(const std::string& why) const { tar_.fail(why); }

  /// Whether the tar ends here without the zeros that end it, and may.
  bool at_end() const {
    if (at_ == 0 || at_ < tar_.bytes) return false;
    if (notes_.found) fail_cut("behind a header that says something about the next member");
    if (options_.allow_missing_end) return true;
    if (at_ > tar_.bytes) fail_cut("within the zeros that fill the last block of a member");
    fail("the tar has no end: behind its last member, at byte " + std::to_string(at_) +
         ", the file is over, without the zeros that end a tar. Members may be missing, if it was "
         "not copied or written to its end. If it was made like this, set "
         "TarShardsOptions::allow_missing_end (penstock-pack: --allow-missing-end)");
  }
  [[noreturn]] void fail_cut(const std::string& where) const {
    fail("the file is cut: it ends at byte " + std::to_string(tar_.bytes) + ", " + where);
  }

  /// Behind the zeros at this byte there are only zeros.
  void require_nothing_behind(std::uint64_t zeros) {
    std::vector<std::byte> some(std::size_t{1} << 16);
    for (std::uint64_t at = zeros + kTarBlock; at < tar_.bytes; at += some.size()) {
      const std::span<std::byte> read = std::span(some).first(tar_.file.read(at, some));
      const auto found = std::find_if(read.begin(), read.end(),
                                      [](std::byte byte) { return byte != std::byte{0}; });
      if (found == read.end()) continue;
      if (zeros == 0)
        fail("the file begins with zeros, and is no tar: it may not be copied or downloaded whole");
      const std::uint64_t place =
          (at + static_cast<std::uint64_t>(found - read.begin())) / kTarBlock * kTarBlock;
      std::array<std::byte, kTarBlock> header;
      fail("the tar ends at byte " + std::to_string(zeros) + ", and there is more behind it: " +
           (tar_.header_at(place, header)
                ? "members from byte " + std::to_string(place) +
                      " on, as cat of two tars leaves them. Join tars with tar --concatenate, "
                      "or give them as two"
                : "other bytes from byte " + std::to_string(place) +
                      " on. If they are of no use, cut them off (truncate --size=" +
                      std::to_string(zeros + 2 * kTarBlock) + "); else make the tar again"));
    }
  }

  /// For the bytes at byte `at`, which are no header; `why` says so. At the start of the file they
  /// may tell what it is.
  [[noreturn]] void fail_no_header(std::uint64_t at, std::span<const std::byte> bytes,
                                   const std::string& why) const {
    if (at != 0) fail(why);
    if (bytes.empty()) fail("the file is empty");
    const std::optional<KnownBytes> known = known_bytes(bytes);
    if (known && known->is_compressed)
      fail("the tar is compressed: " + std::string(known->remedy) +
           ". The samples of a compressed tar cannot be read in any order");
    if (known && known->what != kTarBytes) fail("the file is no tar: " + what_they_are(bytes));
    std::string how = how_they_begin(bytes);
    how.front() = 'I';
    fail(why + ". " + how);
  }

  /// Does such a member have bytes behind its header?
  bool is_file(char type, bool has_name) const {
    const auto is_one_of = [type](std::string_view types) {
      return types.find(type) != std::string_view::npos;
    };
    // 7 is contiguous, where there was such a thing; V is the name of the volume.
    if (type == '\0' || is_one_of("07")) return true;
    if (is_one_of("3456V")) return false;
    if (type == 'S') fail_sparse();
    if (!is_one_of("12")) fail("member " + current_ + " is of the unknown type '" + type + "'");
    if (has_name && !options_.skip_links)
      fail("member " + current_ +
           " is a link, whose bytes lie elsewhere: make the tar with --dereference "
           "--hard-dereference");
    return false;
  }
  [[noreturn]] void fail_sparse() const {
    fail("member " + current_ + " is sparse: make the tar without --sparse");
  }

  /// The block at this byte; valid until the next call.
  std::span<const std::byte> block(std::uint64_t at) {
    if (at < window_at_ || at + kTarBlock > window_at_ + window_bytes_) {
      window_at_ = at;
      window_bytes_ = tar_.file.read(at, window_);
    }
    const auto rest = std::span<const std::byte>(window_)
                          .first(window_bytes_)
                          .subspan(static_cast<std::size_t>(at - window_at_));
    if (rest.size() >= kTarBlock) return rest.first(kTarBlock);
    if (at == 0)
      fail_no_header(at, rest,
                     "the file is cut, or no tar: it has " + std::to_string(rest.size()) +
                         " bytes, fewer than the header of a member");
    fail_cut("within a header, or the zeros that end a tar");
  }

  /// `size` bytes from at_ on lie in the file.
  void require_inside(std::uint64_t size) const {
    if (at_ <= tar_.bytes && size <= tar_.bytes - at_) return;
    fail("member " + current_ + ", " + std::to_string(size) + " bytes from byte " +
         std::to_string(at_) + " on, does not fit into the file's " + std::to_string(tar_.bytes) +
         ": the file is cut");
  }

  void note(char type, std::uint64_t at, std::uint64_t size) {
    at_ = at + kTarBlock;
    current_ = type == 'L' || type == 'K' ? "(a long name)" : "(a header of pax)";
    require_inside(size);
    TarNotes all;
    TarNotes& about = type == 'g' ? all : notes_;
    const char* why = about.take(type == 'g' ? 'x' : type, text_of_note(type, at, size));
    if (why != nullptr) fail("at byte " + std::to_string(at) + ": " + why);
    if (type == 'g') tar_.add_global(at, all);
    if (notes_.name) notes_.name = name_.assign(*notes_.name);  // The text is there no longer.
    at_ += in_tar_blocks(size);
  }

  /// The text of the note at byte `at`, valid until the next call. Empty for the name that a link
  /// leads to, which does not matter.
  std::string_view text_of_note(char type, std::uint64_t at, std::uint64_t size) {
    if (type == 'K') return {};
    if (size > kLongestTarNote)
      fail("at byte " + std::to_string(at) + ": a name or header of " + std::to_string(size) +
           " bytes");
    note_.resize(static_cast<std::size_t>(size));
    if (tar_.file.read(at_, std::as_writable_bytes(std::span(note_))) < note_.size())
      fail("the file has become shorter while it was read");
    return note_;
  }

  TarFile& tar_;
  const TarScanOptions options_;
  std::uint64_t at_;  // of the next header
  std::array<std::byte, kWindow> window_;
  std::uint64_t window_at_ = 0;
  std::size_t window_bytes_ = 0;
  std::string note_, name_;  // texts that notes_ is of
  TarNotes notes_;           // of the next member
  std::string current_;      // of the member that is looked at
  std::uint64_t left_by_tools_ = 0;
};

}  // namespace penstock::detail
