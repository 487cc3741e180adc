// SPDX-License-Identifier: Apache-2.0
#pragma once

// GdsReader: reads GdsFiles to device memory with many reads in flight.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <penstock/detail/function_ref.hpp>
#include <penstock/gds/gds_file.hpp>
#include <span>
#include <string>

namespace penstock::inline PENSTOCK_ABI::gds {

/// A request of a GdsReader.
struct GdsRequest {
  const GdsFile* file = nullptr;  ///< has to outlive the call
  std::uint64_t offset = 0;       ///< of the first byte
  void* target = nullptr;         ///< device memory, which the bytes fill
  std::size_t bytes = 0;          ///< how many
};

/// What became of a request.
struct GdsOutcome {
  std::size_t request = 0;   ///< its number among the requests
  std::size_t bytes = 0;     ///< fewer than asked for only where the file ends
  std::exception_ptr error;  ///< the GdsError that GdsFile::read() throws; nullptr: there is none
};

/// How a GdsReader reads.
struct GdsReaderOptions {
  /// Most reads in flight, 1 to 4096; cuFile's own limit (io_batchsize, usually 128) also holds.
  std::size_t depth = 128;
  /// By cuFile's batches; false, and in the compatibility mode: one read after the other, with one
  /// in flight.
  bool use_batches = true;
};

/// What a GdsReader has done since it was made.
struct GdsReaderStats {
  std::uint64_t requests = 0;    ///< that were asked for
  std::uint64_t bytes = 0;       ///< that were read
  std::uint64_t batches = 0;     ///< of cuFile
  std::uint64_t alone = 0;       ///< requests that were read one by one
  std::uint64_t compatible = 0;  ///< requests of files in the compatibility mode
};

/// Reads with many requests in flight. Belongs to one thread at a time, such as a worker, and to
/// the device that was current at its first read. Move-only; a moved-from object can only be
/// assigned to and destroyed.
class GdsReader {
 public:
  /// Throws std::invalid_argument for a depth that is not from 1 to 4096.
  explicit GdsReader(const GdsReaderOptions& options = {});
  GdsReader(GdsReader&&) noexcept;
  GdsReader& operator=(GdsReader&&) noexcept;
  /// Nothing is in flight outside of a call.
  ~GdsReader();

  /// Reads all requests, as GdsFile::read() does, and calls `each(outcome)` once for each as it is
  /// done, on this thread, in any order. Blocks until all are done; it waits for no stream. What a
  /// batch does not bring whole is read once more alone, so an error is one of its own request.
  /// Where cuFile refuses batches, all are read alone (why_no_batches()). Throws
  /// std::invalid_argument for a request without a file before anything is read, and what `each`
  /// throws: then no read is in flight any more.
  void read(std::span<const GdsRequest> requests,
            penstock::detail::FunctionRef<void(const GdsOutcome&)> each);

  /// What was done so far.
  GdsReaderStats stats() const noexcept;
  /// Why it reads without batches; empty: it reads with them, or has not read yet.
  const std::string& why_no_batches() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock::gds
