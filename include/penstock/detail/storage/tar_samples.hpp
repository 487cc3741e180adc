// SPDX-License-Identifier: Apache-2.0
#pragma once

// TarSamples: which members of which samples lie where in tar files. In memory, a sample takes 16
// bytes and its base name, and each of its members 12.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <penstock/detail/storage/name_arena.hpp>
#include <penstock/detail/storage/sample_names.hpp>
#include <penstock/detail/storage/tar_format.hpp>
#include <penstock/version.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

struct TarMember {
  std::uint64_t offset() const { return std::uint64_t{block} * kTarBlock; }
  std::uint64_t size() const { return std::uint64_t{size_high} << 32 | size_low; }
  /// Where the next header begins.
  std::uint64_t end() const { return offset() + in_tar_blocks(size()); }

  std::uint32_t block;  // where its bytes begin
  std::uint32_t size_low;
  std::uint16_t extension;
  std::uint8_t size_high;
};

class TarSamples {
 public:
  struct Extension {
    std::string text, lower;
    bool is_image;
  };

  std::uint64_t ignored = 0;  // members that Jupyter or macOS have left

  std::uint64_t size() const noexcept { return ends_.size(); }
  std::string_view base(std::uint64_t i) const { return bases_[i]; }
  std::span<const TarMember> members(std::uint64_t i) const {
    const std::uint64_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::span(members_).subspan(begin, ends_[i] - begin);
  }
  const Extension& extension(const TarMember& member) const {
    return extensions_[member.extension];
  }
  /// Of a member of sample `i`.
  TarName name(std::uint64_t i, const TarMember& member) const {
    return {base(i), extension(member).text};
  }

  /// The first whose extension is an image's, or the first.
  const TarMember& main_member(std::uint64_t i) const {
    const auto all = members(i);
    const auto image = std::find_if(all.begin(), all.end(), [&](const TarMember& member) {
      return extension(member).is_image;
    });
    return image == all.end() ? all.front() : *image;
  }
  /// `lower`: in lower case, without its dot. nullptr: there is none.
  const TarMember* member(std::uint64_t i, std::string_view lower) const {
    for (const TarMember& member : members(i))
      if (extension(member).lower == lower) return &member;
    return nullptr;
  }

  // ---- To fill it -----------------------------------------------------------------------------

  /// The members that are added next belong to a new sample.
  void begin_sample(std::string_view base) {
    bases_.add(base);
    ends_.push_back(members_.size());
  }
  /// nullptr, or why the member cannot be added.
  const char* add_member(std::string_view extension, std::uint64_t offset, std::uint64_t size) {
    if (offset / kTarBlock > std::numeric_limits<std::uint32_t>::max() || size >> 40 != 0)
      return "tar files of more than 2 TiB and members of 1 TiB are not supported";
    const std::optional<std::uint16_t> number = number_of(extension);
    if (!number)
      return "more than 65535 extensions: what is behind the first dot of a name should say what "
             "the member is";
    if (member(this->size() - 1, extensions_[*number].lower) != nullptr)
      return "the sample has another member with this extension";
    members_.push_back({static_cast<std::uint32_t>(offset / kTarBlock),
                        static_cast<std::uint32_t>(size), *number,
                        static_cast<std::uint8_t>(size >> 32)});
    ends_.back() = members_.size();
    return nullptr;
  }
  void shrink_to_fit() {
    bases_.shrink_to_fit();
    ends_.shrink_to_fit();
    members_.shrink_to_fit();
    numbers_ = {};
  }

 private:
  /// nullopt: there are too many.
  std::optional<std::uint16_t> number_of(std::string_view text) {
    if (const auto known = numbers_.find(text); known != numbers_.end()) return known->second;
    if (extensions_.size() == std::numeric_limits<std::uint16_t>::max()) return std::nullopt;
    const auto number = static_cast<std::uint16_t>(extensions_.size());
    const std::string lower = lower_case(text);
    const auto image = std::ranges::find(kImageExtensions, "." + lower);
    extensions_.push_back({std::string(text), lower, image != kImageExtensions.end()});
    numbers_.emplace(text, number);
    return number;
  }

  NameArena bases_;
  std::vector<std::uint64_t> ends_;  // of each sample's members in members_
  std::vector<TarMember> members_;
  std::vector<Extension> extensions_;
  std::map<std::string, std::uint16_t, std::less<>> numbers_;  // of the extensions
};

static_assert(sizeof(TarMember) == 12);

}  // namespace penstock::detail
