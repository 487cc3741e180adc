// SPDX-License-Identifier: Apache-2.0
#pragma once

// known_bytes(): what a file is that is not what its reader wants. Downloads, checkouts and copies
// put other bytes under the name of a data set, and the first bytes tell which.

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <penstock/detail/escaped.hpp>
#include <penstock/detail/words.hpp>
#include <penstock/version.hpp>
#include <span>
#include <string>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::detail {

/// How many bytes of a file known_bytes() looks at.
inline constexpr std::size_t kKnownBytes = 512;

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // of UTF-8
inline constexpr std::string_view kTarBytes = "a tar";

struct KnownBytes {
  std::string_view what;    // "compressed with gzip"
  std::string_view remedy;  // "decompress it (gunzip)"
  bool is_compressed = false, is_text = false;

  std::string text() const { return std::string(what) + ": " + std::string(remedy); }
};

/// A Git-LFS pointer, which is a text of a few lines.
inline bool is_lfs_pointer(std::string_view start) {
  return start.starts_with("version https://git-lfs.github.com/spec/");
}

/// Text that begins like a page of a browser or a message of a server.
inline bool is_markup(std::string_view start) {
  if (start.starts_with(kByteOrderMark)) start.remove_prefix(3);
  start.remove_prefix(std::min(start.find_first_not_of(" \t\r\n"), start.size()));
  const std::string lower = lower_case(start.substr(0, 9));
  return lower == "<!doctype" || lower.starts_with("<html") || lower.starts_with("<?xml");
}

/// `bytes`: the first kKnownBytes of the file, or all. nullopt: they tell nothing.
inline std::optional<KnownBytes> known_bytes(std::span<const std::byte> bytes) {
  using namespace std::string_view_literals;
  struct Entry {
    std::string_view magic;
    KnownBytes known;
  };
  static constexpr std::array<Entry, 12> kEntries = {{
      {"\x1F\x8B"sv, {"compressed with gzip", "decompress it (gunzip)", true}},
      {"\x1F\x9D"sv, {"compressed with compress", "decompress it (uncompress)", true}},
      {"\x28\xB5\x2F\xFD"sv, {"compressed with zstd", "decompress it (unzstd)", true}},
      {"\xFD\x37zXZ\0"sv, {"compressed with xz", "decompress it (unxz)", true}},
      {"\x04\x22\x4D\x18"sv, {"compressed with lz4", "decompress it (unlz4)", true}},
      {"LZIP\x01"sv, {"compressed with lzip", "decompress it (lzip -d)", true}},
      {"PK\x03\x04"sv, {"a zip archive", "unpack it (unzip)"}},
      {"PK\x05\x06"sv, {"a zip archive without files", "make it again"}},
      {"7z\xBC\xAF\x27\x1C"sv, {"a 7z archive", "unpack it (7z x)"}},
      {"Rar!\x1A\x07"sv, {"a rar archive", "unpack it (unrar x)"}},
      {"PNSTPACK"sv, {"a pack of penstock", "open it with PackedFile"}},
      {"/annex/objects/"sv,
       {"a git-annex pointer in place of the file", "fetch it (git annex get)", false, true}},
  }};
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                               std::min(bytes.size(), kKnownBytes));
  for (const Entry& entry : kEntries)
    if (start.starts_with(entry.magic)) return entry.known;
  if (start.starts_with("BZh") && start.size() >= 10 &&
      (start.substr(4, 6) == "1AY&SY" || start.substr(4, 6) == "\x17\x72\x45\x38\x50\x90"))
    return KnownBytes{"compressed with bzip2", "decompress it (bunzip2)", true};
  if (is_lfs_pointer(start))
    return KnownBytes{"a Git-LFS pointer in place of the file", "fetch the file (git lfs pull)",
                      false, true};
  if (is_markup(start))
    return KnownBytes{"a page in HTML or XML, such as a server sends in place of a file",
                      "download the file again, and look at what the server says", false, true};
  if ((start.starts_with("\xFF\xFE") || start.starts_with("\xFE\xFF")) &&
      start.find('\0') != std::string_view::npos)
    return KnownBytes{"text in UTF-16", "save it in UTF-8"};
  if (start.size() >= 262 && start.substr(257, 5) == "ustar")
    return KnownBytes{kTarBytes, "open it with TarShards"};
  return std::nullopt;
}

/// For a message: how a file begins. `bytes` as for known_bytes().
inline std::string how_they_begin(std::span<const std::byte> bytes) {
  if (bytes.empty()) return "it is empty";
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return "it begins with \"" + escaped(start.substr(0, 32)) + "\"";
}

/// The same, and what the bytes are if they tell.
inline std::string what_they_are(std::span<const std::byte> bytes) {
  const std::optional<KnownBytes> known = known_bytes(bytes);
  if (!known) return how_they_begin(bytes);
  return "it is " + std::string(known->what) +
         (known->is_text ? " (" + how_they_begin(bytes) + ")" : "") + ": " +
         std::string(known->remedy);
}

}  // namespace penstock::detail
