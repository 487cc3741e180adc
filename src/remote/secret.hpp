// SPDX-License-Identifier: Apache-2.0
#pragma once

// Secret: a key or a token. It cannot be printed, core files do not have it, and its bytes are
// wiped when it goes.

#include <cstddef>
#include <iosfwd>
#include <penstock/version.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::remote {

/// Each one that is not empty has memory pages of its own, which the system leaves out of core
/// files. A copy is wiped like the first one.
class Secret {
 public:
  Secret() = default;
  /// Copies the text. Throws std::bad_alloc.
  explicit Secret(std::string_view text);
  Secret(const Secret& other) : Secret(other.reveal()) {}
  Secret(Secret&& other) noexcept
      : bytes_(std::exchange(other.bytes_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Secret& operator=(Secret other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Secret();

  bool empty() const noexcept { return size_ == 0; }
  /// The text; for what signs or sends it, and never for a message. Valid as long as the Secret is.
  std::string_view reveal() const noexcept { return {bytes_, size_}; }

 private:
  char* bytes_ = nullptr;
  std::size_t size_ = 0;
};

std::ostream& operator<<(std::ostream&, const Secret&) = delete;

/// Overwrites the text, and makes it empty. For copies of a secret that had to be made.
void wipe(std::string& text) noexcept;

/// Wipes a text at the end of a scope, however that ends.
class WipedAtEnd {
 public:
  explicit WipedAtEnd(std::string& text) : text_(text) {}
  WipedAtEnd(const WipedAtEnd&) = delete;
  WipedAtEnd& operator=(const WipedAtEnd&) = delete;
  ~WipedAtEnd() { wipe(text_); }

 private:
  std::string& text_;
};

}  // namespace penstock::remote
