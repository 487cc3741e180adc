// SPDX-License-Identifier: Apache-2.0
#pragma once

// Names of files that are being written, where a signal handler can remove them. OutputFile enters
// its partial file here; interrupt.hpp calls remove_partial_files() at a second Ctrl-C.

#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstring>
#include <string>

namespace penstock::programs {

namespace detail {

struct PartialFile {
  enum State { unused, being_named, named };
  std::atomic<State> state{unused};
  std::array<char, PATH_MAX> path{};
};
static_assert(std::atomic<PartialFile::State>::is_always_lock_free);

/// Memory that is there from the start: a signal handler may not allocate. A program that writes
/// more files at a time leaves the others to OutputFile, which removes them at its next write.
inline constinit std::array<PartialFile, 16> partial_files;
/// From now on the process only waits for its end: no name is entered or changed any more.
inline std::atomic<bool> removing_partial_files{false};

[[noreturn]] inline void wait_for_the_end() {
  for (;;) pause();
}

}  // namespace detail

/// Enters a name while it lives. Any thread.
class PartialName {
 public:
  /// Enter the name before the file is made, and call look() behind that: then a signal finds
  /// either the file or nothing.
  explicit PartialName(const std::string& path) {
    if (path.size() >= PATH_MAX) return;
    for (detail::PartialFile& place : detail::partial_files) {
      auto expected = detail::PartialFile::unused;
      if (!place.state.compare_exchange_strong(expected, detail::PartialFile::being_named))
        continue;
      if (detail::removing_partial_files) detail::wait_for_the_end();
      std::memcpy(place.path.data(), path.c_str(), path.size() + 1);
      place.state = detail::PartialFile::named;
      place_ = &place;
      return;
    }
  }
  ~PartialName() {
    if (place_ != nullptr) place_->state = detail::PartialFile::unused;
  }
  PartialName(const PartialName&) = delete;
  PartialName& operator=(const PartialName&) = delete;

  /// Removes the file and does not return where a signal is ending the process.
  void look() const {
    if (!detail::removing_partial_files) return;
    if (place_ != nullptr) unlink(place_->path.data());
    detail::wait_for_the_end();
  }

 private:
  detail::PartialFile* place_ = nullptr;
};

/// For signal handlers: removes every file whose name is entered. The process has to end then.
inline void remove_partial_files() {
  detail::removing_partial_files = true;
  for (const detail::PartialFile& place : detail::partial_files)
    if (place.state == detail::PartialFile::named) unlink(place.path.data());
}

}  // namespace penstock::programs
