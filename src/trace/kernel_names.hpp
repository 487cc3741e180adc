// SPDX-License-Identifier: Apache-2.0
#pragma once

// Names of kernels as people read them.

#include <cstddef>
#include <string>
#include <string_view>

namespace penstock::trace::detail {

/// "ns::scale<float, 4>" of "_ZN2ns5scaleIfLi4EEEvPT_": demangled, without return type and
/// parameters. A name that is not mangled stays. For names of this process.
std::string readable(const std::string& name);

/// The same for names of a recording, which may come from anywhere: time and memory are linear in
/// the name's length. Names that would take more stay mangled (demangling.hpp).
std::string readable_within_bounds(const std::string& name);

/// As compilers mangle it: "_ZN2ns5scaleIfLi4EEEvPT_". A name that is not stays.
std::string demangled(const std::string& name);

/// Valid UTF-8 without line breaks and other control characters, which become spaces: fit for a
/// terminal. What is no UTF-8 becomes U+FFFD.
std::string on_one_line(std::string_view text);

/// On one line, at most `width` characters of UTF-8: template arguments become "..", the deepest
/// ones first; what is still too long ends in "..".
std::string shortened(std::string_view whole, std::size_t width);

/// The text, or its first `width` - 2 characters and ".."; at most 4 * `width` bytes of it.
/// O(width).
std::string limited(std::string_view text, std::size_t width);

/// Characters of UTF-8 text.
std::size_t width_of(std::string_view text);

}  // namespace penstock::trace::detail
