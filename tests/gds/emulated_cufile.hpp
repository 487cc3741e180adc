// SPDX-License-Identifier: Apache-2.0
#pragma once

// A libcufile for tests: it reads by pread, and copies to the emulated device memory. A test
// program links it to say what goes wrong; penstock::gds loads it by its path.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace penstock::test {

/// What a test asks for.
struct CufileSettings {
  bool has_module = true;  ///< nvidia-fs is loaded
  bool has_p2p = false;    ///< PCI P2PDMA is there
  bool forces_compatibility = false;
  unsigned file_systems = ~0u;  ///< bits
  unsigned most_in_batch = 128;
  // Errors of the calls.
  int open_error = 0, properties_error = 0, register_error = 0;
  int batch_error = 0, submit_error = 0, status_error = 0;
  std::size_t most_bytes = SIZE_MAX;    ///< that a call reads
  std::uint64_t bad_byte = UINT64_MAX;  ///< a read of it fails...
  int read_error = 5;                   ///< ...with this errno, or with this error of cuFile
  int interruptions = 0;                ///< reads that a signal interrupts first
  bool lies = false;                    ///< a read says that it brought more than asked for
  bool is_slow = false;                 ///< each read of a batch takes some milliseconds
};

/// What it has seen. The counts of what is there now are zero at the end of a test.
struct CufileCounts {
  std::atomic<int> open{0}, registered{0}, batches{0}, in_flight{0};  ///< now
  std::atomic<int> opened{0}, reads{0}, submitted{0}, cancelled{0};   ///< calls
};

// Of this process. Settings may be changed while nothing is in flight.
CufileSettings& cufile_settings();
CufileCounts& cufile_counts();

}  // namespace penstock::test
