// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a function of this process is called, by its address, from the symbol tables of the program
// and its libraries: what a kernel's name is to CUPTI, a host function's is to the emulated
// runtime.

#include <string>

namespace penstock::trace::detail {

/// "Normalise" for penstock::for_each(stream, n, Normalise{...}); else the demangled name without
/// its arguments. Empty where there are no symbols (a stripped program). Reads the file of the
/// program or library: milliseconds.
std::string function_name(void (*function)());

/// The same from the demangled name, as for_each and lambdas make it.
std::string shown_name(std::string demangled);

}  // namespace penstock::trace::detail
