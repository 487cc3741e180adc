// SPDX-License-Identifier: Apache-2.0
#pragma once

// Stores: where the bytes of the samples are. A store gives the bytes of sample i, from any thread.
//
// - RecordFile: fixed-size records in one or more files (record_file.hpp)
// - FileFolder: a file for each sample (file_folder.hpp)
// - TarShards: tar files, some members of which are a sample (tar_shards.hpp)
// - PackedFile: one file with an index and checksums (packed_file.hpp)
// - NpyFile: the rows of an array of NumPy (npy_file.hpp)
// - TfRecordFile: TFRecord files (tf_record_file.hpp)
// - MdsShards: shards of MosaicML Streaming (mds_shards.hpp)
//
// They read files of this machine, with pread: one that another process cuts is an error, not a
// SIGBUS. Who prefers a mapping, for a table of small rows, has MappedRecords (mapped_records.hpp).
// They also read what is elsewhere, by a File (file.hpp), or a FolderReader.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <penstock/detail/function_ref.hpp>
#include <penstock/detail/inline.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

/// A store cannot be opened, or a sample cannot be read. `what()` has the kind of store, the name
/// of the file, and the reason.
class StoreError : public std::runtime_error {
 public:
  /// `store`: the kind of store, such as "TarShards".
  StoreError(std::string_view store, const std::filesystem::path& file, const std::string& why,
             std::optional<std::uint64_t> sample = {});
  /// The file that cannot be opened or read.
  const std::filesystem::path& file() const noexcept { return file_; }
  /// The number of the sample that cannot be read; nullopt if the whole file is wrong.
  std::optional<std::uint64_t> sample() const noexcept { return sample_; }

 private:
  std::filesystem::path file_;
  std::optional<std::uint64_t> sample_;
};

/// What read_many() of a store calls for each sample: `each(k, bytes)`, where k is the sample's
/// place in the list that was asked for. Any function or lambda, which has to live during the call.
using EachSample = detail::FunctionRef<void(std::size_t k, std::span<const std::byte> bytes)>;

/// A type that gives the bytes of samples. Samples are numbered 0 to size() - 1. Any number of
/// threads may call a store.
///
/// `read(i, scratch)` returns the bytes of sample i. They may lie in `scratch`, which grows if it
/// is too small, and are valid until `scratch` changes: use one for each thread. Throws StoreError,
/// and std::out_of_range for i >= size().
/// `name(i)` is for messages, such as "images/n01440764/x.JPEG".
/// `will_need(indices)` asks the system to have these samples in memory soon. A hint: it does not
/// wait, and ignores errors and indices that are not below size(). A store may have
/// `will_need(indices, due)`, too, which gets the time of std::chrono::steady_clock at which the
/// samples will be read; its epoch: nobody knows when; its last time: much later, in this order, so
/// that nothing is fetched now (penstock::remote::later is for its cache). Write it as a function
/// of its own: with a default argument the call without one is not noexcept.
template <class T>
concept Store = requires(const T& store, std::uint64_t i, std::vector<std::byte>& scratch,
                         std::span<const std::uint64_t> indices) {
  { store.size() } -> std::convertible_to<std::uint64_t>;
  { store.read(i, scratch) } -> std::same_as<std::span<const std::byte>>;
  { store.name(i) } -> std::convertible_to<std::string>;
  { store.will_need(indices) }
  noexcept;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/storage/store.hpp>
#endif
