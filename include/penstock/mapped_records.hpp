// SPDX-License-Identifier: Apache-2.0
#pragma once

// MappedRecords: the records of a RecordFile, mapped into memory. A record is a view of the file's
// pages: reading it is no system call. For tables, whose rows have some bytes, and are shuffled.
//
//   const penstock::RecordFile records{{"data_batch_1.bin", "data_batch_2.bin"}, 3073};
//   const penstock::MappedRecords rows(records);
//   std::span<const std::byte> row = rows[ticket.samples[i]];           // valid as long as `rows`
//
// A mapping has no errors. Where another process cuts a file, or its disk or network fails, the
// process ends with SIGBUS at the next access, wherever the stores of store.hpp throw a StoreError.
// Choose it for files that nobody changes while they are read.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/record_file.hpp>
#include <span>
#include <string>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

/// The records of a RecordFile, with the same numbers, mapped read-only. Any number of threads may
/// use one object. Copies share the mappings, which end with the last copy. They stay when a file
/// is renamed, removed or replaced. A file that is overwritten in place shows its new bytes. The
/// address space holds all files; memory holds the pages that the system keeps of them.
///
/// If a file is cut, or cannot be read, an access to its lost records ends the process with SIGBUS.
class MappedRecords {
 public:
  /// Maps all files of `records`. Throws StoreError if a file is not of this machine, has become
  /// shorter since it was opened, or cannot be mapped.
  explicit MappedRecords(const RecordFile& records);
  MappedRecords(const MappedRecords&) = default;  // A move copies: it always has its mappings.
  MappedRecords& operator=(const MappedRecords&) = default;

  /// Number of records.
  std::uint64_t size() const noexcept { return records_.size(); }

  /// Size of a record in bytes.
  std::size_t record_bytes() const noexcept { return records_.record_bytes(); }

  /// The bytes of a record in the mapping, not copied; valid as long as this object or a copy of
  /// it. They may have any alignment. Throws std::out_of_range for index >= size().
  std::span<const std::byte> operator[](std::uint64_t index) const;

  /// The same, by the name that a Store has. Does not use `scratch`.
  std::span<const std::byte> read(std::uint64_t index, std::vector<std::byte>& scratch) const;

  /// Copies records into `target`, like RecordFile::read_many(): one behind the other in the order
  /// of `indices`; `target` has indices.size() x record_bytes() bytes. Faster than a loop over
  /// operator[], since it has the processor fetch the next records ahead. Throws
  /// std::out_of_range before anything is copied, and std::invalid_argument for a target of another
  /// size.
  void read_many(std::span<const std::uint64_t> indices, std::span<std::byte> target) const;

  /// For messages; see RecordFile::name().
  std::string name(std::uint64_t index) const;

  /// Asks the system to read these records ahead, without waiting; see RecordFile::will_need().
  void will_need(std::span<const std::uint64_t> indices,
                 std::chrono::steady_clock::time_point due) const noexcept;
  /// The same; nobody knows when they will be read.
  void will_need(std::span<const std::uint64_t> indices) const noexcept { will_need(indices, {}); }

 private:
  const std::byte* address_of(std::uint64_t index) const;

  RecordFile records_;
  // One for each file.
  std::shared_ptr<const std::vector<std::shared_ptr<const std::byte>>> mappings_;
};

static_assert(Store<MappedRecords>);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/storage/mapped_records.hpp>
#endif
