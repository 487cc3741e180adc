// SPDX-License-Identifier: Apache-2.0
#pragma once

// The names of files that are being written, stored where a signal handler can remove the files.
// OutputFile registers its partial file here; interrupt.hpp calls remove_partial_files() at a
// second Ctrl-C.

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

/// The memory is static, because a signal handler may not allocate. If a program writes more files
/// at a time, OutputFile removes the other ones at its next write.
inline constinit std::array<PartialFile, 16> partial_files;
/// When this is true, the process waits for its end: no name is registered or changed any more.
inline std::atomic<bool> removing_partial_files{false};

[[noreturn]] inline void wait_for_the_end() {
  for (;;) pause();
}

}  // namespace detail

/// Registers a name while the object exists. Any thread may use it.
class PartialName {
 public:
  /// Register the name before making the file, and call look() afterwards. A signal then finds
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

  /// If a signal is ending the process, this removes the file and does not return.
  void look() const {
    if (!detail::removing_partial_files) return;
    if (place_ != nullptr) unlink(place_->path.data());
    detail::wait_for_the_end();
  }

 private:
  detail::PartialFile* place_ = nullptr;
};

/// For signal handlers: removes every registered file. The process must end afterwards.
inline void remove_partial_files() {
  detail::removing_partial_files = true;
  for (const detail::PartialFile& place : detail::partial_files)
    if (place.state == detail::PartialFile::named) unlink(place.path.data());
}

}  // namespace penstock::programs
