// SPDX-License-Identifier: Apache-2.0
#pragma once

// MdsShards: samples in the shards of MosaicML Streaming (MDS), as its MDSWriter writes them
// without compression.
//
//   const penstock::MdsShards shards("c4/train");                   // which has an index.json
//   const std::size_t text = shards.column("text");
//   std::vector<std::byte> scratch;                                 // one for each thread
//   std::span<const std::byte> bytes = shards.field(shards.read(i, scratch), text);

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
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
struct MdsSet;
}

/// One of the fields that all samples have.
struct MdsColumn {
  std::string name;         ///< such as "image"
  std::string encoding;     ///< Streaming's name of how the bytes were made: "jpeg", "int", "str"
  std::uint64_t bytes = 0;  ///< of the field in each sample; 0: any, also 0
};

/// Samples in MDS shards, numbered through. A sample is one field for each column, as bytes:
/// numbers are little-endian, and text is UTF-8. Any number of threads may use one object. Copies
/// share the files, which stay open while one exists, and where the samples lie, which takes 4
/// bytes each.
class MdsShards {
 public:
  /// Opens the shards that index.json in `folder` names. Throws StoreError that names the file for
  /// one that is missing, unreadable, cut, of another size or number of samples than index.json
  /// says, of another version or format, compressed where the raw shard is not there too, or whose
  /// columns are not those of the first shard.
  explicit MdsShards(const std::filesystem::path& folder);
  /// The same for Files, wherever their bytes are: `index` is the text of index.json, and `open` is
  /// called once for each shard, with the name that index.json has for it. Throws also what `open`
  /// throws, and std::invalid_argument for an empty function.
  MdsShards(std::string_view index, const std::function<File(const std::string&)>& open);

  /// Number of samples.
  std::uint64_t size() const noexcept;

  /// The columns, in their order in each sample.
  std::span<const MdsColumn> columns() const noexcept;
  /// The number of the column of this name. Throws std::invalid_argument, which names all columns,
  /// if there is none.
  std::size_t column(std::string_view name) const;

  /// Reads all fields of a sample into `scratch`, which grows if it is too small, and returns them
  /// as they lie in the shard; valid until `scratch` changes. Does not allocate if it is large
  /// enough. Throws std::out_of_range, and StoreError if the sizes of the fields are not those of
  /// the sample, the file has become too short, or a read fails.
  std::span<const std::byte> read(std::uint64_t index, std::vector<std::byte>& scratch) const;
  /// The bytes of one field of what read() returned. Throws std::out_of_range for a column that is
  /// not there. `sample` has to be from read() of this object or of a copy of it.
  std::span<const std::byte> field(std::span<const std::byte> sample, std::size_t column) const;

  /// For messages, such as "c4/train/shard.00002.mds, sample 12", where 12 is the number in that
  /// shard. Throws std::out_of_range.
  std::string name(std::uint64_t index) const;

  /// Asks for these samples ahead, without waiting; they will be read at about `due`, or nobody
  /// knows when. Of up to 1,024 indices at a time, samples that lie together are one range. On this
  /// machine each 128 KiB of a range cost a system call. Ignores errors, and indices that are not
  /// below size().
  void will_need(std::span<const std::uint64_t> indices,
                 std::chrono::steady_clock::time_point due) const noexcept;
  /// The same; nobody knows when they will be read.
  void will_need(std::span<const std::uint64_t> indices) const noexcept { will_need(indices, {}); }

 private:
  struct Place;
  Place place_of(std::uint64_t index) const;

  std::shared_ptr<const detail::MdsSet> set_;
};

static_assert(Store<MdsShards>);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/storage/mds_shards.hpp>
#endif
