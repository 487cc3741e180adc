// SPDX-License-Identifier: Apache-2.0
#pragma once

// Finds the name of a function of this process by its address, in the symbol tables of the program
// and its libraries. Over the emulated runtime, the name of a host function takes the place of the
// kernel's name from CUPTI.

#include <penstock/version.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// Returns "Normalise" for penstock::for_each(stream, n, Normalise{...}), and else the demangled
/// name without its arguments. Returns an empty string if there are no symbols (a stripped
/// program). It reads the file of the program or library, which takes milliseconds.
std::string function_name(void (*function)());

/// Converts the demangled name, in the forms that for_each and lambdas produce.
std::string shown_name(std::string demangled);

}  // namespace penstock::trace::detail
