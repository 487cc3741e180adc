// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <penstock/detail/storage/needed_ranges.hpp>
#include <penstock/detail/storage/queued_samples.hpp>
#include <penstock/detail/storage/sample_names.hpp>
#include <penstock/detail/storage/store.hpp>
#include <penstock/detail/storage/store_file.hpp>
#include <penstock/detail/storage/tar_file.hpp>
#include <penstock/detail/storage/tar_format.hpp>
#include <penstock/detail/storage/tar_index.hpp>
#include <penstock/detail/storage/tar_samples.hpp>
#include <penstock/detail/storage/tar_scan.hpp>
#include <penstock/detail/whole_file.hpp>
#include <penstock/detail/words.hpp>
#include <penstock/tar_shards.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {

/// Where the index of a tar is; an empty path: it has none.
inline std::filesystem::path tar_index(const TarFile& tar, const std::filesystem::path& folder) {
  const std::filesystem::path beside = TarShards::index_path(tar.path());
  if (!folder.empty()) return folder / beside.filename();
  return tar.is_local() ? beside : std::filesystem::path();
}

/// One of the files of a TarShards.
struct TarShard : TarFile {
  TarShard(const File& open_file, std::uint64_t first_sample)
      : TarFile(open_file), first(first_sample) {}

  /// Adds the samples that the index names, or that the headers do.
  void list(const TarShardsOptions& options, TarSamples& samples) try {
    const std::filesystem::path index = tar_index(*this, options.index_folder);
    if (options.use_indexes && exists(index))
      list_by_index(index, options, samples);
    else
      list_by_headers(options, samples);
    if (samples.size() == first) fail("there is no sample in it");
  } catch (const StoreError&) {
    throw;
  } catch (const std::runtime_error& error) {
    fail(error.what());
  }

  std::uint64_t first;  // number of its first sample

 private:
  void list_by_index(const std::filesystem::path& index, const TarShardsOptions& options,
                     TarSamples& samples) try {
    where_readable([&] { look_at_start(); });
    TarIndexReader(index, *this, samples).read();
    check_places(index, samples);
    where_readable([&] { check_end(index, options, samples); });
  } catch (const std::system_error& error) {
    throw StoreError("TarShards", index, error.what());
  }

  /// Where bytes of the tar cannot be read, `check` is left out: reading a sample tells, and
  /// a few bad sectors do not take all samples of the shard away.
  template <class Check>
  static void where_readable(const Check& check) {
    try {
      check();
    } catch (const StoreError&) {
      throw;
    } catch (const std::runtime_error&) {
    }
  }

  /// Throws for what is no tar, so that its index is not blamed. Takes a global header of pax
  /// there.
  void look_at_start() {
    std::array<std::byte, kTarBlock> block;
    const std::optional<TarHeader> header = header_at(0, block);
    if (!header || header->type() == 'g') TarScan(*this, {.skip_links = true}).next();
  }

  struct Listed {
    std::uint64_t sample;
    const TarMember* member;
  };

  /// Compares the headers of some members with the index: of 64 that are spread through it, and of
  /// 64 of those that are beside a gap, where an index is wrong that counts other headers as bytes.
  void check_places(const std::filesystem::path& index, const TarSamples& samples) const {
    std::vector<Listed> all, beside_gaps;
    for (std::uint64_t i = first; i < samples.size(); ++i)
      for (const TarMember& member : samples.members(i)) {
        const std::uint64_t end = all.empty() ? 0 : all.back().member->end();
        if (member.offset() != end + kTarBlock) {
          if (!all.empty()) beside_gaps.push_back(all.back());
          beside_gaps.push_back({i, &member});
        }
        all.push_back({i, &member});
      }
    std::vector<Listed> checked;
    for (const std::vector<Listed>* some : {&all, &beside_gaps}) {
      const std::size_t chosen = std::min<std::size_t>(some->size(), 64);
      for (std::size_t i = 0; i < chosen; ++i)
        checked.push_back((*some)[i * (some->size() - 1) / std::max<std::size_t>(1, chosen - 1)]);
    }
    if (!is_local()) ask_for_headers(checked);
    for (const Listed& listed : checked)
      where_readable([&] { check_place(index, samples, listed); });
  }

  /// So that a server is not waited for once for each of them.
  void ask_for_headers(std::span<const Listed> members) const {
    std::vector<FileRange> headers;
    for (const Listed& listed : members)
      headers.push_back({listed.member->offset() - kTarBlock, kTarBlock});
    file.will_need(headers, std::chrono::steady_clock::now());
  }

  void check_place(const std::filesystem::path& index, const TarSamples& samples,
                   const Listed& listed) const {
    const TarMember& member = *listed.member;
    const TarName name = samples.name(listed.sample, member);
    const std::uint64_t at = member.offset() - kTarBlock;
    std::array<std::byte, kTarBlock> block;
    const std::optional<TarHeader> header = header_at(at, block);
    if (header && is_header_of(block, at, name, member.size())) return;
    const bool is_note = header && is_tar_note(header->type());
    fail_tar_index(
        index,
        "member " + name.text() + ", " + std::to_string(member.size()) + " bytes, is not at byte " +
            std::to_string(member.offset()) + " of the tar" +
            (is_note ? ", where a header of pax or GNU tar lies: the program that made the index "
                       "did not know such headers"
                     : ": it is the index of another tar, or the tar has changed"));
  }

  /// Behind the last member of the index the tar is at its end. If the index is not older than the
  /// tar, it may leave samples out.
  void check_end(const std::filesystem::path& index, const TarShardsOptions& options,
                 const TarSamples& samples) {
    std::uint64_t end = 0;
    for (std::uint64_t i = first; i < samples.size(); ++i)
      for (const TarMember& member : samples.members(i)) end = std::max(end, member.end());
    TarScan scan(*this,
                 {.allow_missing_end = options.allow_missing_end, .skip_links = true, .from = end});
    const std::optional<TarScan::Member> more = scan.next();
    if (more && is_local() && last_write_time(index) < last_write_time(path()))
      fail_tar_index(index, "the index is older than its tar, and does not have member " +
                                more->name.text() + ", whose bytes begin at byte " +
                                std::to_string(more->offset) +
                                ". Touch the index if it leaves samples out on purpose");
  }

  void list_by_headers(const TarShardsOptions& options, TarSamples& samples) {
    TarScan scan(*this, {.allow_missing_end = options.allow_missing_end});
    while (const std::optional<TarScan::Member> member = scan.next()) {
      const bool is_first = samples.size() == first;
      if (is_first || samples.base(samples.size() - 1) != member->name.base)
        samples.begin_sample(member->name.base);
      if (const char* why =
              samples.add_member(member->name.extension, member->offset, member->size))
        fail("member " + member->name.text() + ": " + why);
    }
    samples.ignored += scan.left_by_tools();
  }
};

struct TarSet {
  TarShardsOptions options;
  std::vector<TarShard> shards;
  TarSamples samples;
  std::uint64_t bytes = 0;  // of all shards
};

/// Throws StoreError for a shard without a place for its index, and for two shards with one, such
/// as s.000 and s.001.
inline void require_own_indexes(const TarSet& set) {
  std::map<std::filesystem::path, std::string> shard_of;
  for (const TarShard& shard : set.shards) {
    const std::filesystem::path index = tar_index(shard, set.options.index_folder);
    if (index.empty())
      shard.fail(
          "the shard is not of this machine: set TarShardsOptions::index_folder, where its index "
          "is to be");
    const std::string& name = shard.file.name();
    const auto [other, is_new] = shard_of.emplace(index, name);
    if (!is_new && other->second != name)
      throw StoreError("TarShards", other->first,
                       "it would be the index of both " + other->second + " and " + name +
                           ": rename one of them");
  }
}

/// `shards`: Files or paths.
template <class AnyFile>
std::shared_ptr<const TarSet> tar_set(std::span<const AnyFile> shards,
                                      const TarShardsOptions& options) {
  if (shards.empty()) throw std::invalid_argument("TarShards: the list of files is empty");
  auto set = std::make_shared<TarSet>();
  set->options = options;
  set->shards.reserve(shards.size());
  for (const AnyFile& shard : shards)
    set->shards.emplace_back(opened("TarShards", shard), set->samples.size())
        .list(options, set->samples);
  for (const TarShard& shard : set->shards) set->bytes += shard.bytes;
  set->samples.shrink_to_fit();
  return set;
}

}  // namespace detail

/// A sample, and the shard that it is in.
struct TarShards::Place {
  detail::TarName name(const detail::TarMember& member) const {
    return samples.name(index, member);
  }
  [[noreturn]] void fail(const detail::TarMember& member, const std::string& why) const {
    shard.fail("member " + name(member).text() + " (of sample " + std::to_string(index) +
                   ") is lost: " + why,
               index);
  }

  /// The member's bytes. `room`, called with a number of bytes, returns memory for them.
  template <class Room>
  std::span<const std::byte> read(const detail::TarMember& member, const Room& room) const try {
    const std::uint64_t at = member.offset() - detail::kTarBlock;
    const std::span<const std::byte> all = shard.read(at, room(detail::kTarBlock + member.size()));
    if (begins_with_header(member, all)) return all.subspan(detail::kTarBlock);
    throw std::runtime_error(
        "its header is not before its bytes: the file has changed, or the index is that of another "
        "one");
  } catch (const std::runtime_error& error) {
    fail(member, error.what());
  }

  /// Whether `all`, which begins at the member's header, does begin with that.
  bool begins_with_header(const detail::TarMember& member, std::span<const std::byte> all) const {
    return shard.is_header_of(all.first(detail::kTarBlock), member.offset() - detail::kTarBlock,
                              name(member), member.size());
  }

  /// Its line in an index file.
  std::string index_line() const {
    std::string line;
    for (const detail::TarMember& member : samples.members(index)) {
      if (!line.empty()) line += ' ';
      line += samples.extension(member).text + ' ' + std::to_string(member.offset()) + ' ' +
              std::to_string(member.size()) + ' ';
      const std::string member_name = name(member).text();
      if (member_name.find_first_of(" \r\n") != std::string::npos)
        shard.fail("member " + member_name +
                   ": a name with a space or a line break does not fit into an index");
      line += member_name;
    }
    return line += '\n';
  }

  /// nullptr: there is none. `extension` may begin with its dot.
  const detail::TarMember* find(std::string_view extension) const {
    if (extension.starts_with('.')) extension.remove_prefix(1);
    return samples.member(index, detail::lower_case(extension));
  }
  /// Throws StoreError if there is none.
  const detail::TarMember& member(std::string_view extension) const {
    const detail::TarMember* const found = find(extension);
    if (found != nullptr) return *found;
    shard.fail("sample " + std::to_string(index) + ", " + std::string(samples.base(index)) +
                   ", has no member " + (extension.starts_with('.') ? "" : ".") +
                   std::string(extension),
               index);
  }

  const detail::TarShard& shard;
  const detail::TarSamples& samples;
  std::uint64_t index;
};

PENSTOCK_INLINE TarShards::TarShards(const std::vector<std::filesystem::path>& shards,
                                     const TarShardsOptions& options)
    : set_(detail::tar_set(std::span(shards), options)) {}

PENSTOCK_INLINE TarShards::TarShards(const File* shards, std::size_t count,
                                     const TarShardsOptions& options)
    : set_(detail::tar_set(std::span(shards, count), options)) {}

PENSTOCK_INLINE TarShards::Place TarShards::place_of(std::uint64_t index) const {
  detail::require_index(index, size(), "TarShards: there is no sample ");
  const auto after = std::ranges::upper_bound(set_->shards, index, {}, &detail::TarShard::first);
  return {*(after - 1), set_->samples, index};
}

PENSTOCK_INLINE std::uint64_t TarShards::size() const noexcept {
  return set_->samples.size();
}

PENSTOCK_INLINE std::uint64_t TarShards::ignored() const noexcept {
  return set_->samples.ignored;
}

PENSTOCK_INLINE std::string TarShards::name(std::uint64_t index) const {
  const Place place = place_of(index);
  return place.shard.path().filename().string() + "/" +
         place.name(place.samples.main_member(index)).text();
}

PENSTOCK_INLINE std::span<const std::byte> TarShards::read(std::uint64_t index,
                                                           std::vector<std::byte>& scratch) const {
  const Place place = place_of(index);
  const detail::TarMember& member = place.samples.main_member(index);
  if (member.size() == 0 && !set_->options.allow_empty)
    place.fail(member, "it is empty. If samples may be empty, set TarShardsOptions::allow_empty");
  return place.read(member, [&](std::uint64_t bytes) { return detail::room_in(scratch, bytes); });
}

PENSTOCK_INLINE void TarShards::read_many(std::span<const std::uint64_t> indices, ReadQueue& queue,
                                          EachSample each) const {
  const auto member_at = [&](std::size_t k) -> detail::SamplePlace {
    const Place place = place_of(indices[k]);
    const detail::TarMember& member = place.samples.main_member(indices[k]);
    return {place.shard.file, member.offset() - detail::kTarBlock,
            detail::kTarBlock + member.size()};
  };
  const auto alone = [&](std::size_t k) { each(k, read(indices[k], queue.engine().scratch())); };
  const auto arrived = [&](std::size_t k, std::span<const std::byte> all) {
    const Place place = place_of(indices[k]);
    const bool is_whole = all.size() > detail::kTarBlock &&
                          place.begins_with_header(place.samples.main_member(indices[k]), all);
    is_whole ? each(k, all.subspan(detail::kTarBlock)) : alone(k);
  };
  detail::read_queued(queue, set_->bytes, indices.size(), member_at, arrived, alone);
}

PENSTOCK_INLINE std::span<const std::byte> TarShards::read(std::uint64_t index,
                                                           std::string_view extension,
                                                           std::vector<std::byte>& scratch) const {
  const Place place = place_of(index);
  return place.read(place.member(extension),
                    [&](std::uint64_t bytes) { return detail::room_in(scratch, bytes); });
}

PENSTOCK_INLINE bool TarShards::has(std::uint64_t index, std::string_view extension) const {
  return place_of(index).find(extension) != nullptr;
}

PENSTOCK_INLINE std::int32_t TarShards::label(std::uint64_t index) const {
  const Place place = place_of(index);
  const detail::TarMember& member = place.member("cls");
  std::array<std::byte, detail::kTarBlock + 32> memory;
  if (member.size() > memory.size() - detail::kTarBlock) place.fail(member, "it is no number");
  const std::span<const std::byte> bytes =
      place.read(member, [&](std::uint64_t count) { return std::span(memory).first(count); });
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  constexpr std::string_view kSpace(" \t\r\n\0", 5);
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  text = text.substr(0, text.find_last_not_of(kSpace) + 1);
  const auto label = detail::read_number<std::int32_t>(text);
  if (!label) place.fail(member, "\"" + std::string(text) + "\" is no number");
  return *label;
}

PENSTOCK_INLINE void TarShards::will_need(
    std::span<const std::uint64_t> indices,
    std::chrono::steady_clock::time_point due) const noexcept {
  const auto add_place = [this](std::uint64_t index, detail::NeededRanges& ranges) {
    const Place place = place_of(index);
    const auto members = place.samples.members(index);
    for (const auto& member : members)
      ranges.add(place.shard.file,
                 {member.offset() - detail::kTarBlock, detail::kTarBlock + member.size()});
  };
  detail::NeededRanges::ask(indices, size(), due, add_place);
}

PENSTOCK_INLINE std::filesystem::path TarShards::index_path(std::filesystem::path shard) {
  return shard.replace_extension(".idx");
}

PENSTOCK_INLINE void TarShards::save_indexes() const {
  detail::require_own_indexes(*set_);
  for (std::uint64_t i = 0, shard = 0; shard < set_->shards.size(); ++shard) {
    const bool is_last = shard + 1 == set_->shards.size();
    const std::uint64_t end = is_last ? size() : set_->shards[shard + 1].first;
    const std::filesystem::path path =
        detail::tar_index(set_->shards[shard], set_->options.index_folder);
    try {
      detail::WholeFile out(path);
      out.write(std::string(detail::kTarIndexVersion) + " " + std::to_string(end - i) + "\n");
      for (; i < end; ++i) out.write(place_of(i).index_line());
      out.commit();
    } catch (const std::system_error& error) {
      throw StoreError("TarShards", path, error.what());
    }
  }
}

}  // namespace penstock
