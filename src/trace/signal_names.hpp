// SPDX-License-Identifier: Apache-2.0
#pragma once

// Signals that may ask for a dump, by name.

#include <string>

namespace penstock::trace::detail {

/// "SIGUSR2", "SIGRTMIN+3".
std::string name_of_signal(int signal);

/// Of "USR2", "SIGUSR2" or "SIGRTMIN+3". 0: no signal that may ask for a dump: those that end a
/// program or stop it may not, unless nothing else sends them.
int signal_of_name(const std::string& name);

}  // namespace penstock::trace::detail
