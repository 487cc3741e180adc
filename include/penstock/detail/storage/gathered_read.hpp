// SPDX-License-Identifier: Apache-2.0
#pragma once

// GatheredRead: reads a stretch of a file to several places in memory, and leaves out the gaps
// between them. Of a file of this machine, that is one system call.

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <penstock/file.hpp>
#include <span>
#include <stdexcept>

namespace penstock::inline PENSTOCK_ABI::detail {

class GatheredRead {
 public:
  /// A longer gap costs more time than another system call.
  static constexpr std::size_t kMostGap = 4096;

  /// So many fit, with a gap before each.
  static constexpr std::size_t kMostTargets = 512;

  explicit GatheredRead(std::uint64_t offset) : offset_(offset) {}

  /// Whether a gap and a target still fit.
  bool has_room() const { return count_ + 2 <= pieces_.size(); }

  /// The next `bytes` bytes of the file, at most kMostGap, are not wanted.
  void skip(std::size_t bytes) {
    if (bytes == 0) return;
    pieces_[count_++] = {gap_.data(), bytes};
    end_ = nullptr;
  }
  /// The next bytes of the file belong to `target`.
  void add(std::span<std::byte> target) {
    if (target.data() != end_) {
      begin_ = target.data();
      ++count_;
    }
    end_ = target.data() + target.size();
    pieces_[count_ - 1] = {begin_, static_cast<std::size_t>(end_ - begin_)};
  }

  /// Where the bytes go, one behind the other; valid as long as this is.
  std::span<const ::iovec> pieces() const { return std::span(pieces_).first(count_); }

  /// Returns whether all bytes came. If not, the targets have any bytes.
  bool read(const File& file) const {
    const int from = file.descriptor();
    if (from < 0) return read_pieces(file);
    ::ssize_t bytes = 0;
    for (const ::iovec& piece : pieces()) bytes += static_cast<::ssize_t>(piece.iov_len);
    const auto begin = static_cast<::off_t>(offset_);
    return bytes == (count_ == 1 ? ::pread(from, pieces_[0].iov_base, pieces_[0].iov_len, begin)
                                 : ::preadv(from, pieces_.data(), static_cast<int>(count_), begin));
  }

 private:
  bool read_pieces(const File& file) const try {
    std::uint64_t at = offset_;
    for (const ::iovec& piece : pieces()) {
      const std::span target(static_cast<std::byte*>(piece.iov_base), piece.iov_len);
      if (target.data() != gap_.data() && file.read(at, target) < target.size()) return false;
      at += target.size();
    }
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }

  const std::uint64_t offset_;
  std::size_t count_ = 0;
  std::byte *begin_ = nullptr, *end_ = nullptr;  // of the last piece; no end behind a gap
  std::array<::iovec, 1024> pieces_;  // as many as the system takes; only the first have values
  std::array<std::byte, kMostGap> gap_;
};

}  // namespace penstock::detail
