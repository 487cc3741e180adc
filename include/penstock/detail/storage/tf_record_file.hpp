// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <penstock/detail/storage/needed_ranges.hpp>
#include <penstock/detail/storage/store.hpp>
#include <penstock/detail/storage/store_file.hpp>
#include <penstock/detail/storage/tf_record_shard.hpp>
#include <penstock/detail/whole_file.hpp>
#include <penstock/tf_record_file.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {

struct TfRecordSet {
  /// Where the index of a file is; an empty path: it has none.
  std::filesystem::path index_of(const TfRecordShard& shard) const {
    const std::filesystem::path beside = TfRecordFile::index_path(shard.path());
    if (!options.index_folder.empty()) return options.index_folder / beside.filename();
    return shard.is_local() ? beside : std::filesystem::path();
  }

  TfRecordOptions options;
  std::vector<TfRecordShard> shards;
  std::vector<std::uint64_t> ends;  // of all records, each in its file
};

/// `files`: Files or paths.
template <class AnyFile>
std::shared_ptr<const TfRecordSet> tf_record_set(std::span<const AnyFile> files,
                                                 const TfRecordOptions& options) {
  if (files.empty()) throw std::invalid_argument("TfRecordFile: the list of files is empty");
  auto set = std::make_shared<TfRecordSet>();
  set->options = options;
  set->shards.reserve(files.size());
  for (const AnyFile& file : files) {
    const TfRecordShard& shard =
        set->shards.emplace_back(opened("TfRecordFile", file), set->ends.size());
    const std::filesystem::path index = set->index_of(shard);
    if (options.use_indexes && !index.empty() && exists(index))
      shard.read_index(index, set->ends);
    else
      shard.scan(set->ends);
  }
  set->ends.shrink_to_fit();
  return set;
}

}  // namespace detail

/// Where a record lies, with its frame.
struct TfRecordFile::Place {
  [[noreturn]] void fail(std::uint64_t index, const std::string& why) const {
    shard.fail("record " + std::to_string(index - shard.first) + ", at byte " +
                   std::to_string(begin) + " (of all files: " + std::to_string(index) +
                   ") is lost: " + why,
               index);
  }

  const detail::TfRecordShard& shard;
  std::uint64_t begin, bytes;
};

PENSTOCK_INLINE TfRecordFile::TfRecordFile(const std::vector<std::filesystem::path>& files,
                                           const TfRecordOptions& options)
    : set_(detail::tf_record_set(std::span(files), options)) {}

PENSTOCK_INLINE TfRecordFile::TfRecordFile(const File* files, std::size_t count,
                                           const TfRecordOptions& options)
    : set_(detail::tf_record_set(std::span(files, count), options)) {}

PENSTOCK_INLINE TfRecordFile::Place TfRecordFile::place_of(std::uint64_t index) const {
  detail::require_index(index, size(), "TfRecordFile: there is no record ");
  const auto after =
      std::ranges::upper_bound(set_->shards, index, {}, &detail::TfRecordShard::first);
  const detail::TfRecordShard& shard = *(after - 1);
  const std::uint64_t begin = index == shard.first ? 0 : set_->ends[index - 1];
  return {shard, begin, set_->ends[index] - begin};
}

PENSTOCK_INLINE std::uint64_t TfRecordFile::size() const noexcept {
  return set_->ends.size();
}

PENSTOCK_INLINE std::uint64_t TfRecordFile::bytes(std::uint64_t index) const {
  return place_of(index).bytes - detail::kTfRecordFrame;
}

PENSTOCK_INLINE std::string TfRecordFile::name(std::uint64_t index) const {
  const Place place = place_of(index);
  return place.shard.file.name() + ", record " + std::to_string(index - place.shard.first);
}

PENSTOCK_INLINE std::span<const std::byte> TfRecordFile::read(
    std::uint64_t index, std::vector<std::byte>& scratch) const {
  const Place place = place_of(index);
  try {
    const std::span<const std::byte> all =
        place.shard.read(place.begin, detail::room_in(scratch, place.bytes));
    const auto bytes = all.subspan(detail::kTfRecordHead, all.size() - detail::kTfRecordFrame);
    if (!detail::is_tf_record_head(all) || detail::number_at<std::uint64_t>(all, 0) != bytes.size())
      throw std::runtime_error(
          "its length is another: the file has changed, or the index is that of another one");
    if (!set_->options.verify ||
        detail::masked_crc32c(bytes) == detail::number_at<std::uint32_t>(all, all.size() - 4))
      return bytes;
    throw std::runtime_error(
        "its bytes have another checksum than when they were written. Copy or make the file again");
  } catch (const std::runtime_error& error) {
    place.fail(index, error.what());
  }
}

PENSTOCK_INLINE void TfRecordFile::will_need(
    std::span<const std::uint64_t> indices,
    std::chrono::steady_clock::time_point due) const noexcept {
  const auto add_place = [this](std::uint64_t index, detail::NeededRanges& ranges) {
    const Place place = place_of(index);
    ranges.add(place.shard.file, {place.begin, place.bytes});
  };
  detail::NeededRanges::ask(indices, size(), due, add_place);
}

PENSTOCK_INLINE std::filesystem::path TfRecordFile::index_path(std::filesystem::path file) {
  return file += ".idx";
}

PENSTOCK_INLINE void TfRecordFile::save_indexes() const {
  std::map<std::filesystem::path, std::string> file_of;
  for (const detail::TfRecordShard& shard : set_->shards) {
    const std::filesystem::path path = set_->index_of(shard);
    if (path.empty())
      shard.fail(
          "the file is not of this machine: set TfRecordOptions::index_folder, where its index is "
          "to be");
    const auto [other, is_new] = file_of.emplace(path, shard.file.name());
    if (!is_new && other->second != shard.file.name())
      throw StoreError("TfRecordFile", path,
                       "it would be the index of both " + other->second + " and " +
                           shard.file.name() + ": rename one of them");
    try {
      detail::WholeFile out(path);
      std::uint64_t begin = 0;
      for (std::uint64_t i = shard.first; begin < shard.bytes; begin = set_->ends[i++])
        out.write(std::to_string(begin) + " " + std::to_string(set_->ends[i] - begin) + "\n");
      out.commit();
    } catch (const std::system_error& error) {
      throw StoreError("TfRecordFile", path, error.what());
    }
  }
}

}  // namespace penstock
