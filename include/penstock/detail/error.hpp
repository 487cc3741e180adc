// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <penstock/error.hpp>
#include <utility>

namespace penstock {

namespace detail {

/// The exception that is being handled; else one that says `why`: where nothing is nested,
/// std::rethrow_if_nested ends the program.
inline std::nested_exception nested_or(const std::string& why) {
  std::nested_exception handled;
  if (handled.nested_ptr()) return handled;
  try {
    throw std::runtime_error(why);
  } catch (const std::runtime_error&) {
    return {};
  }
}

}  // namespace detail

PENSTOCK_INLINE CudaError::CudaError(cudaError_t code, const std::string& what)
    : std::runtime_error(what), code_(code) {}

PENSTOCK_INLINE SourceError::SourceError(std::uint64_t epoch, std::uint64_t batch,
                                         const std::string& why, const std::string& what_failed)
    : std::runtime_error(what_failed + " failed at epoch " + std::to_string(epoch) + ", batch " +
                         std::to_string(batch) + ": " + why),
      std::nested_exception(detail::nested_or(why)),
      epoch_(epoch),
      batch_(batch) {}

PENSTOCK_INLINE WorkerError::WorkerError(int worker, const std::string& why)
    : std::runtime_error("worker " + std::to_string(worker) + " could not make its source: " + why),
      std::nested_exception(detail::nested_or(why)),
      worker_(worker) {}

PENSTOCK_INLINE PoolExhausted::PoolExhausted(const std::string& why, std::size_t asked,
                                             std::size_t in_use, std::size_t cap)
    : std::runtime_error(why + " (bytes asked: " + std::to_string(asked) + ", in use: " +
                         std::to_string(in_use) + ", cap: " + std::to_string(cap) + ")"),
      asked_(asked),
      in_use_(in_use),
      cap_(cap) {}

PENSTOCK_INLINE MemoryError::MemoryError(const std::string& why, std::size_t asked)
    : std::runtime_error("upstream: " + why),
      std::nested_exception(detail::nested_or(why)),
      asked_(asked) {}

PENSTOCK_INLINE StallError::StallError(const std::string& stage, std::uint64_t epoch,
                                       std::uint64_t batch, std::chrono::milliseconds waited,
                                       const std::string& why)
    : std::runtime_error("stalled for " + std::to_string(waited.count()) + " ms at epoch " +
                         std::to_string(epoch) + ", batch " + std::to_string(batch) + ", stage " +
                         stage + ": " + why),
      stage_(stage),
      epoch_(epoch),
      batch_(batch),
      waited_(waited) {}

namespace detail {

PENSTOCK_INLINE std::string Number::text() const {
  return is_signed_ ? std::to_string(static_cast<std::int64_t>(bits_)) : std::to_string(bits_);
}

PENSTOCK_INLINE void throw_cuda_error(cudaError_t status, const Call& call,
                                      std::initializer_list<Number> numbers) {
  std::string text = call.name;
  if (text.find(' ') == std::string::npos) {  // the name of a function, not a description
    const char* separator = "(";
    for (const Number& number : numbers) text += std::exchange(separator, ", ") + number.text();
    text += numbers.size() == 0 ? "()" : ")";
  }
  text += std::string(" failed: ") + cudaGetErrorName(status) + ", " + cudaGetErrorString(status);
  if (status == cudaErrorInvalidResourceHandle)
    text += " (has a stream been destroyed before the end of a lease that it is used for?)";
  text += std::string(" [") + call.file + ':' + std::to_string(call.line) + ']';
  cudaGetLastError();  // Reported here: a later check by the user must not find it again.
  throw CudaError(status, text);
}

PENSTOCK_INLINE std::string what_is_handled() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

PENSTOCK_INLINE SavedError SavedError::current() {
  try {
    throw;
  } catch (const CudaError& error) {
    return {error.code(), error.what()};
  } catch (...) {
    return {};
  }
}

}  // namespace detail
}  // namespace penstock
