// SPDX-License-Identifier: Apache-2.0
#pragma once

// Options of ReadQueue, and what it tells of itself.

#include <cstddef>
#include <cstdint>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI {

/// How a ReadQueue reads what is not in the page cache.
enum class ReadMethod : std::uint8_t {
  automatic,  ///< io_uring, where it is there
  io_uring,   ///< an error where it is not there
  pread,      ///< the system is told of the reads ahead, and they are done one by one
};

/// Whether a ReadQueue reads past the page cache (O_DIRECT).
enum class DirectReads : std::uint8_t {
  /// Of data that are larger than the memory that this process may use, what is not in the page
  /// cache.
  automatic,
  never,  ///< always through the page cache
  /// Wherever the file system can, without a look into the page cache.
  always,
};

/// How a ReadQueue works.
struct ReadQueueOptions {
  std::size_t depth = 64;                       ///< most reads in flight; 1 to 4096
  ReadMethod method = ReadMethod::automatic;    ///< by which calls it reads
  DirectReads direct = DirectReads::automatic;  ///< whether it reads past the page cache
  /// Bytes around a read that is not in the page cache, of which the system is told to read them
  /// too; 0: none. Set it, such as to 256 KiB, where all of the data will be read in a shuffled
  /// order and fit into memory: large reads bring more bytes a second. Not for direct reads.
  std::size_t read_around = 0;
};

/// What a ReadQueue has done since it was made. A read serves one request or several neighbours.
struct ReadQueueStats {
  std::uint64_t requests = 0;  ///< that were asked for
  std::uint64_t bytes = 0;     ///< of the requests that were served
  std::uint64_t cached =
      0;  ///< reads that were done at once, by the page cache as far as it was asked
  std::uint64_t queued = 0;  ///< reads that were in flight, by io_uring or announced for pread
  std::uint64_t direct = 0;  ///< those of them that went past the page cache
  std::uint64_t opened = 0;  ///< files that were opened by the ring
  /// Requests that were read one by one: of files that are not of this machine, where a read had
  /// failed or brought fewer bytes, and those of more than 16 MiB without a target.
  std::uint64_t alone = 0;
  std::size_t most_in_flight = 0;  ///< reads
};

}  // namespace penstock
