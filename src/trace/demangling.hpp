// SPDX-License-Identifier: Apache-2.0
#pragma once

// Demangles names that come from a file. A mangled name refers back to its own parts, so 1 KB of it
// may expand to gigabytes, and the C++ library's demangler bounds neither output nor time. Here
// both are linear in the name's length.

#include <optional>
#include <penstock/version.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// Returns the text for a mangled name ("_ZN2ns5scaleIfLi4EEEvPT_"), at most most_text(its length)
/// characters. References of parameters to template parameters are not resolved, so the text may
/// contain bytes below 0x20. Returns nothing for a name that is not mangled, for a name of more
/// than 1,024 characters, for a longer text, and for names with casts, conversion operators or
/// expanded expressions, which make the demangler try again and again.
std::optional<std::string> demangled_within_bounds(const std::string& name);

/// Removes the inline namespace of penstock's ABI from a demangled name: "penstock::v1_0::Sampler"
/// becomes "penstock::Sampler", whichever version it is of.
std::string without_abi(std::string name);

/// The bound is generous: the text of a long kernel name is about 4 times as long as the name.
constexpr std::size_t most_text(std::size_t name_length) {
  return 1024 + 16 * name_length;
}

}  // namespace penstock::trace::detail
