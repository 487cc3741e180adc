// SPDX-License-Identifier: Apache-2.0
#pragma once

// TfRecordFile: records of any sizes in TFRecord files, numbered through, with their checksums.
//
//   const penstock::TfRecordFile records({"train-00000-of-00002", "train-00001-of-00002"});
//   std::vector<std::byte> scratch;                                   // one for each thread
//   const penstock::TfExample example(records.read(i, scratch));      // see tf_example.hpp
//
// The format has no index: where the records lie is found by one pass over the lengths, or told by
// index files, as DALI's tfrecord2idx and save_indexes() write them.

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
struct TfRecordSet;
}

/// How a TfRecordFile opens and reads its files.
struct TfRecordOptions {
  /// Compares the checksum of each record that is read; false: bytes that a disk or a network has
  /// changed are delivered as they are. Lengths are compared in any case.
  bool verify = true;
  bool use_indexes = true;  ///< false: index files are ignored, and all lengths are read
  /// Where the index files are, and save_indexes() writes them; empty: each is beside its file, and
  /// a file that is not of this machine has none.
  std::filesystem::path index_folder = {};
};

/// Records of any sizes in TFRecord files. Any number of threads may use one object. Copies share
/// the files, which stay open while one exists, and the index, which takes 8 bytes a record.
class TfRecordFile {
 public:
  /// Opens all files; record 0 is the first of the first file. If the index of a file exists, it
  /// says where the records are; else the length of each is read. Throws StoreError that names the
  /// file and the byte for a file that is missing, unreadable, empty, compressed, of another
  /// format, cut, or damaged in a length, and for an index that does not fit its file;
  /// std::invalid_argument for no files.
  explicit TfRecordFile(const std::vector<std::filesystem::path>& files,
                        const TfRecordOptions& options = {});
  /// The same for Files, wherever their bytes are. (A list in braces is one of paths.) Without an
  /// index, a file is read some KiB at a time, one after the other.
  template <std::same_as<File> AnyFile>
  explicit TfRecordFile(const std::vector<AnyFile>& files, const TfRecordOptions& options = {})
      : TfRecordFile(files.data(), files.size(), options) {}

  /// Number of records.
  std::uint64_t size() const noexcept;

  /// Bytes of a record. Throws std::out_of_range.
  std::uint64_t bytes(std::uint64_t index) const;

  /// For messages, such as "train-00001-of-00002, record 12", where 12 is the number in that file.
  /// Throws std::out_of_range.
  std::string name(std::uint64_t index) const;

  /// Reads a record into `scratch`, which grows if it is too small, and returns its bytes; valid
  /// until `scratch` changes. `scratch` takes 16 bytes more than the record. Does not allocate if
  /// it is large enough. Throws std::out_of_range, and StoreError for a record whose length or
  /// checksum is another, a file that has become too short, and a read that fails.
  std::span<const std::byte> read(std::uint64_t index, std::vector<std::byte>& scratch) const;

  /// Asks for these records ahead, without waiting; they will be read at about `due`, or nobody
  /// knows when. Of up to 1,024 indices at a time, records that lie together are one range. On this
  /// machine each 128 KiB of a range cost a system call. Ignores errors, and indices that are not
  /// below size().
  void will_need(std::span<const std::uint64_t> indices,
                 std::chrono::steady_clock::time_point due) const noexcept;
  /// The same; nobody knows when they will be read.
  void will_need(std::span<const std::uint64_t> indices) const noexcept { will_need(indices, {}); }

  /// Returns where the index of a file is without TfRecordOptions::index_folder: train.tfrecord.idx
  /// beside train.tfrecord.
  static std::filesystem::path index_path(std::filesystem::path file);

  /// Writes the index of each file, in the format of DALI's tfrecord2idx, each whole or not at all.
  /// Throws StoreError, also for a file that has no place for an index.
  void save_indexes() const;

 private:
  TfRecordFile(const File* files, std::size_t count, const TfRecordOptions& options);

  struct Place;
  Place place_of(std::uint64_t index) const;

  std::shared_ptr<const detail::TfRecordSet> set_;
};

static_assert(Store<TfRecordFile>);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/storage/tf_record_file.hpp>
#endif
