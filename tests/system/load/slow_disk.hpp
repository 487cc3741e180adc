// SPDX-License-Identifier: Apache-2.0
#pragma once

// A bad disk: slow_disk.cpp puts its own open, read, pread, preadv and preadv2 in place of the
// system's. For
// the files that it is told of they are slow now and then, read less than was asked for, are
// interrupted (EINTR), and fail where the disk is damaged (EIO). Linked into a program, or as a
// library that LD_PRELOAD names, it serves all that the program uses, std::ifstream included, but
// not std::fread, whose reads are calls within the C library. Its choices follow from a seed; where
// the disk is damaged follows from the seed and the file's name alone.
//
// As a library it is told by the environment: PENSTOCK_SLOW_DISK="match=.bin,seed=7,short=0.3,
// interrupted=0.2,slow=0.01,delay_us=300,damaged=0.001", and writes what it did to the file that
// PENSTOCK_SLOW_DISK_REPORT names.

#include <cstdint>
#include <string>

namespace penstock::test::slow_disk {

struct Plan {
  std::string match;  // files whose path contains this; empty: none
  std::uint64_t seed = 1;
  double shortened = 0;    // part of the reads that bring fewer bytes
  double interrupted = 0;  // part of the reads and opens that fail with EINTR
  double slow = 0;         // part of the calls that take `delay_us`
  int delay_us = 0;
  double damaged = 0;  // part of the file's sectors, of 4096 bytes
};

struct Counts {
  std::uint64_t reads = 0, shortened = 0, interrupted = 0, slow = 0, failed = 0;
};

/// No thread may read meanwhile.
void set(const Plan& plan);
Counts counts();

/// Do these bytes of the file lie on a damaged part of the disk?
bool is_damaged(const std::string& path, std::uint64_t offset, std::uint64_t bytes);

}  // namespace penstock::test::slow_disk
