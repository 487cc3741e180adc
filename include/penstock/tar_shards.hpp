// SPDX-License-Identifier: Apache-2.0
#pragma once

// TarShards: samples in tar files, by WebDataset's rules: members that follow each other and have
// the same name up to its first dot are a sample.
//
//   const penstock::TarShards shards({"train-0000.tar", "train-0001.tar"});
//   std::vector<std::byte> scratch;                                      // one for each thread
//   for (std::uint64_t i = 0; i < shards.size(); ++i) {
//     std::span<const std::byte> jpeg = shards.read(i, scratch);         // 000017.jpg
//     std::int32_t label = shards.label(i);                              // 000017.cls, which is text
//     std::span<const std::byte> json = shards.read(i, ".json", scratch);  // in place of the JPEG
//   }

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
#include <string_view>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {
struct TarSet;
struct TarMember;
}  // namespace detail

class ReadQueue;  // read_queue.hpp

/// How TarShards opens its files.
struct TarShardsOptions {
  bool use_indexes = true;  ///< false: index files are ignored, and all headers are read
  /// A main member of 0 bytes is a sample of 0 bytes; false: reading it throws StoreError.
  bool allow_empty = false;
  /// A tar may end behind any member, without the blocks of zeros that end a tar. It may then be
  /// cut between two members without an error.
  bool allow_missing_end = false;
  /// Where the index files are, and save_indexes() writes them; empty: each is beside its shard,
  /// and a shard that is not of this machine has none.
  std::filesystem::path index_folder = {};
};

/// Samples in tar files: members with the same name up to the first dot. Any number of threads may
/// use one object. Copies share the files, which stay open while one exists, and the index, which
/// takes 40 bytes and the base name for each sample of two members.
///
/// Formats: ustar, GNU (long names, sizes in base 256) and pax (path, size; also in global
/// headers), not compressed. Members without an extension or that begin with a dot, directories,
/// devices and pipes are skipped. So is what Jupyter and macOS leave behind, as by FileFolder: see
/// ignored(). Sparse members and links are errors, as their bytes lie elsewhere. Behind the zeros
/// that end a tar, only zeros may follow.
class TarShards {
 public:
  /// Opens all files; sample 0 is the first of the first file. If the index of a shard exists, it
  /// says where the members are; else the header of each member is read. Throws StoreError that
  /// names file and member for a file that is missing, unreadable, no tar (it says what the bytes
  /// are, such as a Git-LFS pointer or compressed data), cut or damaged, for a tar without its end
  /// or with more behind it, for one without samples and for a sample that has two members with one
  /// extension. Throws std::invalid_argument for no files.
  ///
  /// Indexes are those of DALI's wds2idx, v1.2, or v1.1, for which the headers of its members are
  /// read. Of a v1.2 index, the headers of at most 128 members are compared with it: of 64 that are
  /// spread through the shard, and of 64 beside gaps, where an index is wrong that ignores pax. The
  /// others are compared when they are read. An index that does not fit its shard is an error that
  /// names it, as is one that is older than its shard, if that is a file of this machine, and does
  /// not have the samples at its end.
  explicit TarShards(const std::vector<std::filesystem::path>& shards,
                     const TarShardsOptions& options = {});
  /// The same for Files, wherever their bytes are. (A list in braces is one of paths.) Without an
  /// index, a shard is read a few blocks at a time, one after the other.
  template <std::same_as<File> AnyFile>
  explicit TarShards(const std::vector<AnyFile>& shards, const TarShardsOptions& options = {})
      : TarShards(shards.data(), shards.size(), options) {}

  /// Number of samples.
  std::uint64_t size() const noexcept;

  /// Number of members that are no samples, though they have the names of some: ._x.jpg of macOS,
  /// and what lies in a directory .ipynb_checkpoints or __MACOSX. An index may not list them.
  std::uint64_t ignored() const noexcept;

  /// The shard's name and that of the sample's main member in it, such as
  /// "train-0001.tar/000017.jpg". Throws std::out_of_range.
  std::string name(std::uint64_t index) const;

  /// Reads the main member into `scratch`, which grows if it is too small, and returns its bytes;
  /// valid until `scratch` changes. The main member is the first one whose extension is that of an
  /// image (see FileFolder), else the first one. Does not allocate if `scratch` is large enough: it
  /// takes 512 bytes more than the member, for the header, which is checked. (More than 7 KiB
  /// of pax headers before it, which say its name, take memory too.) Throws std::out_of_range, and
  /// StoreError if the shard has changed, cannot be read, or if the member is larger than half of
  /// the memory, or empty without TarShardsOptions::allow_empty.
  std::span<const std::byte> read(std::uint64_t index, std::vector<std::byte>& scratch) const;

  /// Reads the main members of samples with many reads in flight, and calls `each(k, bytes)` as
  /// they arrive, in any order, on this thread; k is the place in `indices`, in which an index may
  /// occur more than once. The bytes are valid during the call. Blocks until all are done. Throws
  /// like read(), std::out_of_range before anything is read; and what `each` throws. After an
  /// exception nothing is in flight.
  void read_many(std::span<const std::uint64_t> indices, ReadQueue& queue, EachSample each) const;

  /// Reads the member with this extension: all that is behind the first dot of its name, such as
  /// ".cls" or ".seg.png", in letters of either case, with or without the dot. It may be empty.
  /// Throws like read(), and StoreError if the sample has none.
  std::span<const std::byte> read(std::uint64_t index, std::string_view extension,
                                  std::vector<std::byte>& scratch) const;

  /// Whether the sample has a member with this extension, as read() takes it. Reads nothing. Throws
  /// std::out_of_range.
  bool has(std::uint64_t index, std::string_view extension) const;

  /// The number in the member ".cls", which is text. Reads it at each call, and allocates nothing.
  /// Throws like read(), and StoreError if there is no such member or no such number in it.
  std::int32_t label(std::uint64_t index) const;

  /// Asks for all members of these samples ahead, without waiting; they will be read at about
  /// `due`, or nobody knows when. Of up to 1,024 indices at a time, samples that lie together in a
  /// shard are one range. On this machine each 128 KiB of a range cost a system call. Ignores
  /// errors, and indices that are not below size().
  void will_need(std::span<const std::uint64_t> indices,
                 std::chrono::steady_clock::time_point due) const noexcept;
  /// The same; nobody knows when they will be read.
  void will_need(std::span<const std::uint64_t> indices) const noexcept { will_need(indices, {}); }

  /// Returns where the index of a shard is without TarShardsOptions::index_folder: train-0000.idx
  /// beside train-0000.tar.
  static std::filesystem::path index_path(std::filesystem::path shard);

  /// Writes the index of each shard, in the format of DALI's wds2idx (v1.2), each whole or not at
  /// all. Throws StoreError, also for a name with a space, which the format cannot have, for a
  /// shard that has no place for an index, and for two that would have one: s.000 and s.001.
  void save_indexes() const;

 private:
  TarShards(const File* shards, std::size_t count, const TarShardsOptions& options);

  struct Place;
  Place place_of(std::uint64_t index) const;

  std::shared_ptr<const detail::TarSet> set_;
};

static_assert(Store<TarShards>);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/storage/tar_shards.hpp>
#endif
