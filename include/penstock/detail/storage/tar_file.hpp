// SPDX-License-Identifier: Apache-2.0
#pragma once

// TarFile: a tar that is open, and what its global headers of pax say about the members behind
// them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <penstock/detail/storage/store_file.hpp>
#include <penstock/detail/storage/tar_format.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace penstock::detail {

struct TarGlobal {
  std::uint64_t from = 0;  // what is behind this byte of the tar
  std::string path;        // empty: nothing
  std::optional<std::uint64_t> size;
};

class TarGlobals {
 public:
  /// A header at byte `at`, which is behind those before. What it does not say stays as it was.
  void add(std::uint64_t at, const PaxHeader& pax) {
    if (!pax.path && !pax.size) return;
    TarGlobal next = all_.empty() ? TarGlobal{} : all_.back();
    next.from = at;
    if (pax.path) next.path = *pax.path;
    if (pax.size) next.size = pax.size;
    all_.push_back(std::move(next));
  }

  /// What counts for a member whose header is at byte `at`. Does not allocate.
  const TarGlobal& at(std::uint64_t at) const {
    static const TarGlobal nothing;
    const auto after = std::ranges::upper_bound(all_, at, {}, &TarGlobal::from);
    return after == all_.begin() ? nothing : *(after - 1);
  }

 private:
  std::vector<TarGlobal> all_;  // in the order of their places
};

struct TarFile : StoreFile {
  explicit TarFile(const std::filesystem::path& name) : StoreFile("TarShards", name) {}

  /// The header of a member or a note at byte `at`, in `room`. nullopt: there is none. Throws
  /// std::system_error.
  std::optional<TarHeader> header_at(std::uint64_t at, std::span<std::byte, kTarBlock> room) const {
    if (file.read(at, room) < room.size()) return std::nullopt;
    const TarHeader header(room);
    return header.has_right_checksum() ? std::optional(header) : std::nullopt;
  }

  TarGlobals globals;
};

}  // namespace penstock::detail
