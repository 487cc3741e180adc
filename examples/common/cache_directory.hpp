// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where programs keep what they can make again: a folder of the user's own, that nobody else can
// write, whatever was there before.
//
//   const fs::path cache = examples::cache_directory();       // ~/.cache/penstock

#include <filesystem>
#include <stdexcept>

namespace examples {

/// A cache that cannot be used as it is. what() names the folder and says what to change.
class CacheError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// $XDG_CACHE_HOME/penstock, or ~/.cache/penstock where that is not set to an absolute path. Makes
/// it, with mode 0700, the first time. Throws CacheError: where there is no home, and unless the
/// folder is the user's own, no link, and closed to everybody else.
std::filesystem::path cache_directory();

/// A folder within a cache, made when it is missing. Throws CacheError unless it is the user's own,
/// no link, and not open to everybody: others could put links to the user's files into it.
void make_own_directory(const std::filesystem::path& directory);

}  // namespace examples
