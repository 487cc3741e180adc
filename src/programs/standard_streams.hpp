// SPDX-License-Identifier: Apache-2.0
#pragma once

// standard_streams.cpp adds this behaviour to each program that links it (CMake's
// penstock_standard_streams), before main and after it:
//
// - If descriptor 0, 1 or 2 is closed, it is opened, so that no file of the program gets its
// number. Reading and writing it fails, as before.
// - A write beyond the limit on file sizes (ulimit -f) is an error, and does not end the program by
// SIGXFSZ.
// - If standard output could not be written, a message says so at exit, and status 0 becomes 1.

namespace penstock::programs {

/// Restores the handling of SIGXFSZ. Call it in a child before it executes another program.
void restore_file_size_signal();

}  // namespace penstock::programs
