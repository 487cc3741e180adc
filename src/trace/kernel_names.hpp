// SPDX-License-Identifier: Apache-2.0
#pragma once

// Converts names of kernels to a readable form.

#include <cstddef>
#include <penstock/version.hpp>
#include <string>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// Returns "ns::scale<float, 4>" for "_ZN2ns5scaleIfLi4EEEvPT_": demangled, without return type and
/// parameters. A name that is not mangled does not change. It is for names of this process.
std::string readable(const std::string& name);

/// Does the same for names of a recording, which may come from anywhere: time and memory are linear
/// in the name's length. Names that would need more stay mangled (demangling.hpp).
std::string readable_within_bounds(const std::string& name);

/// Demangles a name such as "_ZN2ns5scaleIfLi4EEEvPT_". A name that is not mangled does not change.
std::string demangled(const std::string& name);

/// Returns valid UTF-8 for a terminal: line breaks and other control characters become spaces, and
/// invalid bytes become U+FFFD.
std::string on_one_line(std::string_view text);

/// Returns one line of at most `width` UTF-8 characters. Template arguments become "..", the
/// deepest first; a text that is still too long ends in "..".
std::string shortened(std::string_view whole, std::size_t width);

/// Returns the text, or its first `width` - 2 characters and ".."; at most 4 * `width` bytes of it.
/// O(width).
std::string limited(std::string_view text, std::size_t width);

/// Counts the characters of UTF-8 text.
std::size_t width_of(std::string_view text);

}  // namespace penstock::trace::detail
