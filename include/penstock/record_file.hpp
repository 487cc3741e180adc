// SPDX-License-Identifier: Apache-2.0
#pragma once

// RecordFile: fixed-size records, numbered through one or more files.
//
//   penstock::RecordFile records{{"data_batch_1.bin", "data_batch_2.bin"}, 3073};
//   std::vector<std::byte> scratch;                                     // one for each thread
//   std::span<const std::byte> image = records.read(ticket.samples[i], scratch);
//
// Each read of a record is a system call. Rows of some bytes are read many at a time, by
// read_many(), or from a mapping of the files (mapped_records.hpp).

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <penstock/detail/inline.hpp>
#include <penstock/file.hpp>
#include <penstock/store.hpp>
#include <span>
#include <string>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {
struct RecordPart;
struct WantedRecord;
}  // namespace detail
class MappedRecords;  // mapped_records.hpp
class ReadQueue;      // read_queue.hpp

/// Records of fixed size, numbered through one or more files. Any number of threads may use one
/// object. The files stay open while it or a copy of it exists. A file that is renamed, removed or
/// replaced during that time is still read. If a file is overwritten in place, reads may return old
/// or new bytes.
class RecordFile {
 public:
  /// Opens all files; record 0 is the first of the first file. Throws StoreError for a file
  /// that is missing, unreadable, no regular file, empty, or not a whole number of records, and
  /// std::invalid_argument for no files or records of 0 bytes.
  RecordFile(const std::vector<std::filesystem::path>& files, std::size_t record_bytes);
  /// The same for Files, wherever their bytes are. (A list in braces is one of paths.)
  template <std::same_as<File> AnyFile>
  RecordFile(const std::vector<AnyFile>& files, std::size_t record_bytes)
      : RecordFile(files.data(), files.size(), record_bytes) {}
  /// The records in a part of a File, such as what is behind its header. Throws StoreError for a
  /// part that the file does not have, or that is empty or not a whole number of records, and
  /// std::invalid_argument for records of 0 bytes.
  RecordFile(const File& file, FileRange part, std::size_t record_bytes);
  RecordFile(const RecordFile&) = default;  // A move copies: a RecordFile always has its files.
  RecordFile& operator=(const RecordFile&) = default;

  /// Number of records.
  std::uint64_t size() const noexcept { return size_; }

  /// Size of a record in bytes.
  std::size_t record_bytes() const noexcept { return record_bytes_; }

  /// Reads a record into `target`, which has record_bytes() bytes, for example in a batch. Throws
  /// std::out_of_range for index >= size(), std::invalid_argument for a target of another size, and
  /// StoreError if the file has become too short or the system cannot read it.
  void read_into(std::uint64_t index, std::span<std::byte> target) const;

  /// Reads records into `target`, one behind the other in the order of `indices`, in which an index
  /// may occur more than once. `target` has indices.size() x record_bytes() bytes, for example a
  /// field of a batch. Of up to 1,024 indices at a time, those whose records lie together in a
  /// file, or at most 4 KiB apart, are one system call, in whatever order they stand. A file that
  /// is not of this machine is told of all of them first, and read record by record. Does not
  /// allocate. Throws like read_into(), std::out_of_range before anything is read. After another
  /// exception `target` has any bytes.
  void read_many(std::span<const std::uint64_t> indices, std::span<std::byte> target) const;

  /// Reads records with many reads in flight, and calls `each(k, bytes)` as they arrive, in any
  /// order, on this thread; k is the place in `indices`, in which an index may occur more than
  /// once. The bytes are valid during the call. Blocks until all are done. Throws like read_into(),
  /// std::out_of_range before anything is read; and what `each` throws. After an exception nothing
  /// is in flight.
  void read_many(std::span<const std::uint64_t> indices, ReadQueue& queue, EachSample each) const;
  /// The same to `target`, one behind the other in the order of `indices`: indices.size() x
  /// record_bytes() bytes, for example a field of a batch. Without a copy, but for direct reads of
  /// records that are not aligned as the device wants it. After an exception `target` has any
  /// bytes.
  void read_many_into(std::span<const std::uint64_t> indices, std::span<std::byte> target,
                      ReadQueue& queue) const;

  /// Reads a record into `scratch`, which is resized, and returns it; valid until `scratch`
  /// changes. Allocates only if the capacity of `scratch` is too small. Throws like read_into().
  std::span<const std::byte> read(std::uint64_t index, std::vector<std::byte>& scratch) const;

  /// A copy of a record. Each call allocates: use read(), read_into() or read_many() in a loop.
  /// Throws like read_into().
  [[nodiscard]] std::vector<std::byte> operator[](std::uint64_t index) const;

  /// For messages, such as "data_batch_2.bin, record 12", where 12 is the number in that file.
  /// Throws std::out_of_range.
  std::string name(std::uint64_t index) const;

  /// Where the record is, for readers of your own. Throws std::out_of_range.
  FilePlace place(std::uint64_t index) const;

  /// Asks for these records ahead, without waiting; they will be read at about `due`, or nobody
  /// knows when. Helps at the start of a batch, if the files are larger than the page cache. Of up
  /// to 1,024 indices at a time, records that lie together, or at most 4 KiB apart, are one range.
  /// On this machine each 128 KiB of a range cost a system call. Ignores errors, and indices that
  /// are not below size().
  void will_need(std::span<const std::uint64_t> indices,
                 std::chrono::steady_clock::time_point due) const noexcept;
  /// The same; nobody knows when they will be read.
  void will_need(std::span<const std::uint64_t> indices) const noexcept { will_need(indices, {}); }

 private:
  friend MappedRecords;

  RecordFile(const File* files, std::size_t count, std::size_t record_bytes);
  RecordFile(std::size_t record_bytes, std::vector<detail::RecordPart>&& parts);

  /// Reads records that are sorted by their index, to where each belongs.
  void read_sorted(std::span<const detail::WantedRecord> wanted) const;
  /// Throws std::invalid_argument for a target of another size, and std::out_of_range.
  void check_many(const char* function, std::span<const std::uint64_t> indices,
                  std::span<const std::byte> target) const;
  // These throw std::out_of_range.
  const detail::RecordPart& part_of(std::uint64_t index) const;
  void require_index(std::uint64_t index) const;

  std::size_t record_bytes_;
  std::uint64_t size_;
  bool is_local_;  // All files are of this machine.
  std::shared_ptr<const std::vector<detail::RecordPart>> parts_;
};

static_assert(Store<RecordFile>);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/storage/record_file.hpp>
#endif
