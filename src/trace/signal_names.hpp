// SPDX-License-Identifier: Apache-2.0
#pragma once

// The names of signals that may request a dump.

#include <penstock/version.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// Returns "SIGUSR2" or "SIGRTMIN+3", for example.
std::string name_of_signal(int signal);

/// Parses "USR2", "SIGUSR2" or "SIGRTMIN+3". Returns 0 for a signal that may not request a dump:
/// one that ends or stops a program, unless nothing else sends it.
int signal_of_name(const std::string& name);

}  // namespace penstock::trace::detail
