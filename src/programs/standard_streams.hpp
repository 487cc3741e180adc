// SPDX-License-Identifier: Apache-2.0
#pragma once

// What standard_streams.cpp does in each program that it is linked into (CMake's
// penstock_standard_streams), before main and behind it:
//
// - Descriptors 0, 1 and 2 that are closed are opened, so that no file of the program's gets their
// numbers:
//   reading and writing them fails, as before.
// - A write beyond the limit on file sizes (ulimit -f) is an error, and does not end the program by
// SIGXFSZ.
// - At exit, a standard output that could not be written is told. A program that would end with
// status 0
//   ends with 1.

namespace penstock::programs {

/// In a child, before it becomes another program: SIGXFSZ is what it was.
void restore_file_size_signal();

}  // namespace penstock::programs
