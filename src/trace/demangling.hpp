// SPDX-License-Identifier: Apache-2.0
#pragma once

// Demangling of names that come from a file. A mangled name refers back to its own parts, so that
// the text of 1 KB of it may have gigabytes, and the C++ library's demangler has no bound of output
// or of time. Here both are linear in the name's length.

#include <optional>
#include <string>

namespace penstock::trace::detail {

/// The text for a mangled name ("_ZN2ns5scaleIfLi4EEEvPT_"), at most most_text(its length)
/// characters. What the parameters say of template parameters is not resolved: it may hold bytes
/// below 0x20. Nothing for what is no mangled name, for a name of more than 1,024 characters, for
/// a longer text, and for names with casts, conversion operators or expanded expressions: they make
/// the demangler try again and again.
std::optional<std::string> demangled_within_bounds(const std::string& name);

/// Generous: that of a long kernel name is about 4 times as long as the name.
constexpr std::size_t most_text(std::size_t name_length) {
  return 1024 + 16 * name_length;
}

}  // namespace penstock::trace::detail
