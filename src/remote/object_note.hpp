// SPDX-License-Identifier: Apache-2.0
#pragma once

// ObjectNote: what a cache has in front of an object of a folder, so that a later run can ask the
// server whether the object is still the same.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <penstock/version.hpp>
#include <span>
#include <string>
#include <string_view>

#include "cache_record.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

struct ObjectNote {
  static constexpr std::size_t note_bytes = 256;
  static constexpr std::size_t most_etag =
      note_bytes - sizeof(ObjectVersion) - sizeof(std::uint64_t) - 1;

  ObjectVersion version{};
  std::uint64_t size = 0;  ///< of the object, without the note
  std::string etag;        ///< 1 to most_etag bytes
};

/// `to` has at least note_bytes bytes.
inline void write_note(const ObjectVersion& version, std::uint64_t size, std::string_view etag,
                       std::span<std::byte> to) noexcept {
  std::memset(to.data(), 0, ObjectNote::note_bytes);
  std::memcpy(to.data(), &version, sizeof version);
  std::memcpy(to.data() + sizeof version, &size, sizeof size);
  to[sizeof version + sizeof size] = static_cast<std::byte>(etag.size());
  std::memcpy(to.data() + ObjectNote::note_bytes - ObjectNote::most_etag, etag.data(), etag.size());
}

/// nullopt: these bytes begin with no note.
inline std::optional<ObjectNote> read_note(std::span<const std::byte> from) {
  if (from.size() < ObjectNote::note_bytes) return std::nullopt;
  ObjectNote note;
  std::memcpy(&note.version, from.data(), sizeof note.version);
  std::memcpy(&note.size, from.data() + sizeof note.version, sizeof note.size);
  const auto etag_bytes =
      std::to_integer<std::size_t>(from[sizeof note.version + sizeof note.size]);
  if (etag_bytes == 0 || etag_bytes > ObjectNote::most_etag) return std::nullopt;
  const auto etag = from.subspan(ObjectNote::note_bytes - ObjectNote::most_etag, etag_bytes);
  note.etag.assign(reinterpret_cast<const char*>(etag.data()), etag.size());
  return note;
}

}  // namespace penstock::remote
