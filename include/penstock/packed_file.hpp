// SPDX-License-Identifier: Apache-2.0
#pragma once

// PackedFile: one file of records of any sizes, with labels, names and checksums. PackedFileWriter
// and the program penstock-pack make it.
//
//   const penstock::PackedFile images("imagenet-train.pack");
//   std::vector<std::byte> scratch;                                      // one for each thread
//   std::span<const std::byte> jpeg = images.read(i, scratch);
//   std::int32_t label = images.label(i);
//
// The records lie one behind the other in the order of their numbers, so that neighbours are read
// together (SamplerOptions::block); the index is behind them. docs/packed-file.md has the format.

#include <chrono>
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
struct Pack;
}
class ReadQueue;  // read_queue.hpp

/// How a PackedFile reads.
struct PackedFileOptions {
  /// Compares the checksum (CRC-32C) of each record that is read. Without it, bytes that a disk or
  /// a network has changed are delivered as they are. docs/packed-file.md has what it costs.
  bool verify = true;
};

/// What a packed file says about itself.
struct PackedFileInfo {
  std::uint32_t version = 0;       ///< version of the format
  std::uint64_t records = 0;       ///< number of records
  std::uint64_t record_bytes = 0;  ///< size of all records, without frames and index
  std::uint64_t file_bytes = 0;    ///< size of the file
  std::string note;                ///< what the writer was given to say about the records
};

/// Records of any sizes in one file, with labels, names and checksums. Any number of threads may
/// use one object. Copies share the file and its index, which takes 32 bytes for each record and
/// its name. The file stays open, and is read even if it is renamed or removed meanwhile.
class PackedFile {
 public:
  /// Reads and verifies header and index, not the records. Throws StoreError for a file that is
  /// missing, unreadable, cut, damaged, not finished, of a newer version or of another format.
  explicit PackedFile(const std::filesystem::path& file, PackedFileOptions options = {});
  /// The same of a File, wherever its bytes are.
  explicit PackedFile(const File& file, PackedFileOptions options = {});
  PackedFile(const PackedFile&) = default;  // A move copies: a PackedFile always has its file.
  PackedFile& operator=(const PackedFile&) = default;

  /// Number of records.
  std::uint64_t size() const noexcept;

  /// Reads a record into `scratch`, which grows if it is too small, and returns its bytes; valid
  /// until `scratch` changes. Does not allocate if `scratch` is large enough. Throws
  /// std::out_of_range, and StoreError for a record whose checksum is another, a file that has
  /// become too short, and a read that fails.
  std::span<const std::byte> read(std::uint64_t index, std::vector<std::byte>& scratch) const;

  /// Reads records with many reads in flight, and calls `each(k, bytes)` as they arrive, in any
  /// order, on this thread; k is the place in `indices`, in which an index may occur more than
  /// once. The bytes are valid during the call. Blocks until all are done. Throws like read(),
  /// std::out_of_range before anything is read; and what `each` throws. After an exception nothing
  /// is in flight.
  void read_many(std::span<const std::uint64_t> indices, ReadQueue& queue, EachSample each) const;
  /// The same to `targets`: record indices[k] fills targets[k], which has as many bytes, for
  /// example in a row of a batch. Without a copy, but for direct reads. Also throws
  /// std::invalid_argument for another number of targets, and for one of another size, before
  /// anything is read. After another exception the targets have any bytes.
  void read_many_into(std::span<const std::uint64_t> indices,
                      std::span<const std::span<std::byte>> targets, ReadQueue& queue) const;

  /// Bytes of a record. Throws std::out_of_range.
  std::uint64_t bytes(std::uint64_t index) const;

  /// What the writer was given for a record; -1 if that was nothing. Throws std::out_of_range.
  std::int32_t label(std::uint64_t index) const;

  /// What the writer was given for a record, such as "train/n01440764/x.JPEG"; if that was nothing,
  /// "<file>, record 12". Throws std::out_of_range.
  std::string name(std::uint64_t index) const;

  /// Where the record is, for readers of your own, which do not compare its checksum. Throws
  /// std::out_of_range.
  FilePlace place(std::uint64_t index) const;

  /// Asks for these records ahead, without waiting; they will be read at about `due`, or nobody
  /// knows when. Of up to 1,024 indices at a time, records that lie together are one range. On this
  /// machine each 128 KiB of a range cost a system call. Ignores errors, and indices that are not
  /// below size().
  void will_need(std::span<const std::uint64_t> indices,
                 std::chrono::steady_clock::time_point due) const noexcept;
  /// The same; nobody knows when they will be read.
  void will_need(std::span<const std::uint64_t> indices) const noexcept { will_need(indices, {}); }

  /// What the file says about itself. Takes time proportional to the number of records.
  PackedFileInfo info() const;

 private:
  const detail::Pack& pack_with(std::uint64_t index) const;
  bool is_right(std::uint64_t index, std::span<const std::byte> bytes) const;

  bool verify_;
  std::shared_ptr<const detail::Pack> pack_;
};

static_assert(Store<PackedFile>);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/storage/packed_file.hpp>
#endif
