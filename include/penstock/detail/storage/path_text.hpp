// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/limits.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <penstock/version.hpp>
#include <string_view>
#include <system_error>

namespace penstock::inline PENSTOCK_ABI::detail {

/// A path for the system, without an allocation.
class PathText {
 public:
  /// Throws std::system_error for a path that is too long for the system.
  void append(std::string_view text) {
    if (length_ + text.size() >= text_.size())
      throw std::system_error(ENAMETOOLONG, std::generic_category(), "cannot open");
    length_ += text.copy(text_.data() + length_, text.size());
    text_[length_] = '\0';
  }
  void clear() noexcept { length_ = 0; }
  const char* c_str() const noexcept { return text_.data(); }
  std::string_view text() const noexcept { return {text_.data(), length_}; }

 private:
  std::array<char, PATH_MAX> text_;
  std::size_t length_ = 0;
};

}  // namespace penstock::detail
