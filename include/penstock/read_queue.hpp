// SPDX-License-Identifier: Apache-2.0
#pragma once

// ReadQueue: many reads in flight at a time, for storage that serves many requests at once. A drive
// that could take 64 requests gets one from each worker that calls pread; from a queue it gets 64.
//
//   const penstock::PackedFile jpegs("imagenet-train.pack");
//   const auto source = penstock::per_worker(
//       [] { return penstock::ReadQueue(); },  // one for each worker
//       [&](penstock::ReadQueue& queue, const penstock::Ticket& ticket, Images& batch) {
//         jpegs.read_many(ticket.samples, queue,
//                         [&](std::size_t row, std::span<const std::byte> jpeg) {
//                           decode(jpeg, batch, row);  // as they arrive, in any order
//                         });
//       });
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
#include <penstock/read_queue_options.hpp>
#include <span>
#include <string>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {
class ReadEngine;
}

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
