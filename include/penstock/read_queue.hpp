// SPDX-License-Identifier: Apache-2.0
#pragma once

// ReadQueue: many reads in flight at a time, for storage that serves many requests at once. A drive
// that could take 64 requests gets one from each worker that calls pread; from a queue it gets 64.
//
//   penstock::ReadQueue queue;                                        // one for each worker
//   records.read_many_into(ticket.samples, batch_bytes, queue);       // RecordFile
//   images.read_many(ticket.samples, queue, [&](std::size_t row, std::span<const std::byte> jpeg) {
//     decode(jpeg, row);                                              // PackedFile and others
//   });
//
// It works by io_uring, where the system has it and allows it, else by pread, with the same bytes
// and the same errors. docs/storage.md says which path is taken when.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <penstock/detail/function_ref.hpp>
#include <penstock/detail/inline.hpp>
#include <penstock/file.hpp>
#include <span>
#include <string>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {
class ReadEngine;
}

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
  never,
  /// Wherever the file system can, without a look into the page cache.
  always,
};

/// How a ReadQueue works.
struct ReadQueueOptions {
  std::size_t depth = 64;  ///< most reads in flight; 1 to 4096
  ReadMethod method = ReadMethod::automatic;
  DirectReads direct = DirectReads::automatic;
  /// Bytes around a read that is not in the page cache, of which the system is told to read them
  /// too; 0: none. Set it, such as to 256 KiB, where all of the data will be read in a shuffled
  /// order and fit into memory: large reads bring more bytes a second. Not for direct reads.
  std::size_t read_around = 0;
};

/// What a ReadQueue has done since it was made. A read serves one request or several neighbours.
struct ReadQueueStats {
  std::uint64_t requests = 0;  ///< that were asked for
  std::uint64_t bytes = 0;     ///< of the requests that were served
  std::uint64_t cached = 0;    ///< reads that the page cache served at once
  std::uint64_t queued = 0;    ///< reads that were in flight, by io_uring or announced for pread
  std::uint64_t direct = 0;    ///< those of them that went past the page cache
  std::uint64_t opened = 0;    ///< files that were opened by the ring
  /// Requests that were read one by one: of files that are not of this machine, where a read had
  /// failed or brought fewer bytes, and those of more than 16 MiB without a target.
  std::uint64_t alone = 0;
  std::size_t most_in_flight = 0;  ///< reads
};

/// A request of a ReadQueue.
struct ReadRequest {
  const File* file = nullptr;   ///< has to outlive the call
  std::uint64_t offset = 0;     ///< of the first byte
  std::span<std::byte> target;  ///< which the bytes fill
};

/// What became of a request.
struct ReadOutcome {
  std::size_t request = 0;   ///< its number among the requests
  std::size_t bytes = 0;     ///< fewer than asked for only where the file ends
  std::exception_ptr error;  ///< what File::read() throws; nullptr: there is none
};

/// Reads with many requests in flight. Belongs to one thread at a time, such as a worker, whose
/// state it is (per_worker); another thread, or a child of fork(), may use it later, and gets a
/// ring of its own. Allocates while its buffers grow: as many as its depth, each of the largest
/// sample (16 MiB at most). Move-only; a moved-from object can only be assigned to and destroyed.
class ReadQueue {
 public:
  /// Throws std::invalid_argument for a depth that is not from 1 to 4096, and std::system_error if
  /// io_uring is asked for and not there.
  explicit ReadQueue(const ReadQueueOptions& options = {});
  ReadQueue(ReadQueue&&) noexcept;
  ReadQueue& operator=(ReadQueue&&) noexcept;
  /// Nothing is in flight outside of a call.
  ~ReadQueue();

  /// Reads all requests, and calls `each(outcome)` once for each as it is done, on this thread, in
  /// any order. Blocks until all are done. Requests that lie together in a file, or at most 4 KiB
  /// apart, are one read. An error is one of its own request alone: it is in its outcome, and is
  /// what File::read() throws. Throws std::invalid_argument for a request without a file before
  /// anything is read, std::logic_error if it is called by `each`, and what `each` throws: then no
  /// read is in flight any more, and the targets of the requests that were not done have any bytes.
  void read(std::span<const ReadRequest> requests,
            detail::FunctionRef<void(const ReadOutcome&)> each);

  /// What was done so far.
  ReadQueueStats stats() const noexcept;
  /// Why it reads without io_uring, such as "io_uring_setup: Operation not permitted"; empty: it
  /// reads with it.
  const std::string& why_not_io_uring() const noexcept;

  /// For the stores.
  detail::ReadEngine& engine() noexcept { return *engine_; }

 private:
  std::unique_ptr<detail::ReadEngine> engine_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/storage/read_queue.hpp>
#endif
