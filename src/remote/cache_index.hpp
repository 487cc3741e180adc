// SPDX-License-Identifier: Apache-2.0
#pragma once

// CacheIndex: the file that says what each slot of a cache has. Records are appended to it by all
// processes of a node.

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <penstock/detail/open_file.hpp>
#include <penstock/version.hpp>
#include <vector>

#include "cache_record.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

/// One thread at a time. "Locked" members need the lock of the directory. Errors are thrown as
/// std::system_error or std::runtime_error.
class CacheIndex {
 public:
  CacheIndex(const std::filesystem::path& directory, const CacheHeader& header);

  /// Locked. Opens the index; false: there was none for this header, and now there is an empty one.
  bool open();

  /// The next record that there is; nullopt: there is no more for now. A damaged one is left out
  /// and counted in `damaged`, but for the last one when `locked` is false: it may not be whole
  /// yet.
  std::optional<CacheRecord> next(bool locked, std::uint64_t& damaged);
  /// Opens the index that another process has put in place of this one. True: what was read is to
  /// be forgotten, and next() begins anew.
  bool follow();

  /// Locked, and next() has given all. next() gives this record too.
  void append(const CacheRecord& record);
  /// Locked, and next() has given all. An index of these records takes the place of this one;
  /// next() does not give them. The old one stays when this throws.
  void replace(const std::vector<CacheRecord>& records);
  /// How many records next() has passed.
  std::uint64_t records() const noexcept { return next_ - 1; }

 private:
  void read_header();

  const CacheHeader header_;
  const std::filesystem::path path_, new_path_;
  penstock::detail::OpenFile file_;
  std::uint64_t next_ = 1;  // number of the cell
  std::array<CacheCell, 64> cells_;
  std::uint64_t first_ = 0;  // number of the first cell in cells_
  std::size_t count_ = 0;    // of cells that were read there
};

}  // namespace penstock::remote
