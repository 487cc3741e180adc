// SPDX-License-Identifier: Apache-2.0
#pragma once

// Two files of a command line must not be the same, lest one is written over the other:
//
//   examples::require_different({"--save", save}, {"--json", json});

#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace examples {

/// Two names of one file, or of one that is not there yet.
inline bool same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code none;
  if (std::filesystem::equivalent(a, b, none)) return true;
  const auto whole = [&](const std::filesystem::path& path) {
    std::error_code unknown;
    const std::filesystem::path found =
        std::filesystem::weakly_canonical(std::filesystem::absolute(path, unknown), unknown);
    return unknown ? path.lexically_normal() : found;
  };
  return whole(a) == whole(b);
}

/// An option's name, and the file that it names; empty: none.
using NamedFile = std::pair<std::string, std::filesystem::path>;

/// Throws std::invalid_argument where both name the same file. What is no regular file (/dev/null,
/// a terminal) may take both.
inline void require_different(const NamedFile& one, const NamedFile& other) {
  if (one.second.empty() || other.second.empty() || !same_file(one.second, other.second)) return;
  std::error_code none;
  if (std::filesystem::exists(one.second, none) &&
      !std::filesystem::is_regular_file(one.second, none))
    return;
  throw std::invalid_argument(one.first + " and " + other.first + " are the same file, " +
                              other.second.string() + ": name another for " + other.first);
}

}  // namespace examples
