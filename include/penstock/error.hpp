// SPDX-License-Identifier: Apache-2.0
#pragma once

// The exceptions of penstock. They derive from std::runtime_error. A message says what was called,
// with which numbers, and where.

#include <cuda_runtime_api.h>
#include <penstock/version.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <penstock/detail/inline.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace penstock::inline PENSTOCK_ABI {

/// A CUDA call failed. `what()` names the call, its numbers, the error, the file and the line.
class CudaError : public std::runtime_error {
 public:
  /// With the status that the call returned, and the message.
  CudaError(cudaError_t code, const std::string& what);
  /// The status that the call returned.
  cudaError_t code() const noexcept { return code_; }

 private:
  cudaError_t code_;
};

/// The source or the DeviceTransform failed for one batch: it threw (the original exception is
/// nested: std::rethrow_if_nested), or it left a batch that cannot be copied (a std::runtime_error
/// that says why is nested). Later batches are still delivered.
class SourceError : public std::runtime_error, public std::nested_exception {
 public:
  /// Nests the exception that is being handled, else one that says `why`. what() begins with
  /// `what_failed`.
  SourceError(std::uint64_t epoch, std::uint64_t batch, const std::string& why,
              const std::string& what_failed = "source");
  /// Epoch of the batch that failed.
  std::uint64_t epoch() const noexcept { return epoch_; }
  /// Number of the batch that failed, within the epoch.
  std::uint64_t batch() const noexcept { return batch_; }

 private:
  std::uint64_t epoch_;
  std::uint64_t batch_;
};

/// A worker could not make its source (see per_worker). The original exception is nested. The other
/// workers continue.
class WorkerError : public std::runtime_error, public std::nested_exception {
 public:
  /// Nests the exception that is being handled, else one that says `why`. `worker` counts from 0.
  WorkerError(int worker, const std::string& why);
  /// The worker, counted from 0.
  int worker() const noexcept { return worker_; }

 private:
  int worker_;
};

/// A pool cannot provide memory: its cap or a limit of the system is reached.
class PoolExhausted : public std::runtime_error {
 public:
  /// The three numbers, in bytes, are added to the message.
  PoolExhausted(const std::string& why, std::size_t asked, std::size_t in_use, std::size_t cap);
  /// Bytes that were asked for.
  std::size_t asked() const noexcept { return asked_; }
  /// Bytes of the pool that were in use.
  std::size_t in_use() const noexcept { return in_use_; }
  /// The limit in bytes.
  std::size_t cap() const noexcept { return cap_; }

 private:
  std::size_t asked_, in_use_, cap_;
};

/// The upstream of a pool or an arena (see Upstream) gave no memory, or memory of another kind.
/// The exception that it threw, if any, is nested; std::rethrow_if_nested always throws.
class MemoryError : public std::runtime_error, public std::nested_exception {
 public:
  /// Nests the exception that is being handled, else one that says `why`.
  MemoryError(const std::string& why, std::size_t asked);
  /// Bytes that were asked for.
  std::size_t asked() const noexcept { return asked_; }

 private:
  std::size_t asked_;
};

/// No progress for longer than the stall time-out. `stage()` is the stage that the others wait for.
class StallError : public std::runtime_error {
 public:
  /// `stage`, the batch and the time that was waited are added to the message.
  StallError(const std::string& stage, std::uint64_t epoch, std::uint64_t batch,
             std::chrono::milliseconds waited, const std::string& why);
  /// The stage that the others wait for: "source", "device source", "read ahead", "copy" or
  /// "consumer".
  const std::string& stage() const noexcept { return stage_; }
  /// Epoch of the batch that did not come.
  std::uint64_t epoch() const noexcept { return epoch_; }
  /// Number of the batch that did not come, within the epoch.
  std::uint64_t batch() const noexcept { return batch_; }
  /// How long `next` waited.
  std::chrono::milliseconds waited() const noexcept { return waited_; }

 private:
  std::string stage_;
  std::uint64_t epoch_, batch_;
  std::chrono::milliseconds waited_;
};

namespace detail {

/// The name of a CUDA function and where it was called. (clang 14 has no std::source_location.)
struct Call {
  // NOLINTNEXTLINE(google-explicit-constructor): a name stands for a call in check("cudaMalloc").
  Call(const char* function, const char* in_file = __builtin_FILE(), int at_line = __builtin_LINE())
      : name(function), file(in_file), line(at_line) {}
  const char* name;
  const char* file;
  int line;
};

/// An argument of a call, for the message of its failure.
class Number {
 public:
  template <std::integral T>
  Number(T value)  // NOLINT(google-explicit-constructor): a number is a Number.
      : bits_(static_cast<std::uint64_t>(value)), is_signed_(std::is_signed_v<T>) {}
  std::string text() const;

 private:
  std::uint64_t bits_;
  bool is_signed_;
};

/// What a process has of CUDA. Versions are 1000 x major + 10 x minor.
struct CudaFacts {
  int devices = 0;                ///< that the runtime finds
  int driver = 0;                 ///< version that the driver is for; 0: there is no driver
  int runtime = 0;                ///< version of the runtime
  bool emulated = false;          ///< the runtime is penstock::emulated
  const char* visible = nullptr;  ///< CUDA_VISIBLE_DEVICES; nullptr: it is not set
};

/// Why there is no device, and what to do; empty if there is one.
std::string remedy_without_device(const CudaFacts& facts);

[[noreturn]] void throw_cuda_error(cudaError_t status, const Call& call,
                                   std::initializer_list<Number> numbers);

/// Throws CudaError unless `status` is cudaSuccess. `numbers` are arguments of the call for the
/// message.
template <class... Numbers>
void check(cudaError_t status, Call call, const Numbers&... numbers) {
  if (status != cudaSuccess) [[unlikely]]
    throw_cuda_error(status, call, {numbers...});
}

/// The message of the exception that is being handled.
std::string what_is_handled();

/// The contents of a CudaError, to be thrown several times: threads must not share an exception.
struct SavedError {
  cudaError_t code = cudaErrorUnknown;
  std::string what = "an error that is no CudaError";

  /// From the exception that is being handled.
  static SavedError current();
  [[noreturn]] void raise() const { throw CudaError(code, what); }
};

}  // namespace detail
}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/error.hpp>
#endif
