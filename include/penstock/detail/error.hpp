// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <penstock/error.hpp>
#include <utility>

extern "C" [[gnu::weak]] void penstock_runtime_emulated();  // defined only in penstock::emulated

namespace penstock::inline PENSTOCK_ABI {

namespace detail {

/// Nests the exception that is being handled. If there is none, nests one with the text `why`,
/// since std::rethrow_if_nested ends the program if nothing is nested.
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

inline std::string cuda_version_text(int version) {
  return "CUDA " + std::to_string(version / 1000) + '.' + std::to_string(version % 1000 / 10);
}

PENSTOCK_INLINE std::string remedy_without_device(const CudaFacts& facts) {
  if (facts.devices > 0) return "";
  if (facts.emulated)
    return "the emulated machine has no device: PENSTOCK_EMULATION=devices=1, or Machine::devices, "
           "gives it one";
  const std::string without =
      "to run without a GPU, link penstock::emulated in place of penstock::penstock";
  if (facts.driver == 0) return "there is no NVIDIA driver: install it; " + without;
  if (facts.driver < facts.runtime)
    return "the driver is for " + cuda_version_text(facts.driver) + " and the program for " +
           cuda_version_text(facts.runtime) +
           ": install a newer driver, or build with an older toolkit; " + without;
  if (facts.visible != nullptr)
    return std::string("CUDA_VISIBLE_DEVICES is \"") + facts.visible +
           "\": set it to a GPU that `nvidia-smi -L` lists; " + without;
  return "the driver finds no GPU that this process may use: see `nvidia-smi -L`; " + without;
}

inline CudaFacts cuda_facts() {
  CudaFacts facts;
  if (cudaGetDeviceCount(&facts.devices) != cudaSuccess) facts.devices = 0;
  if (cudaDriverGetVersion(&facts.driver) != cudaSuccess) facts.driver = 0;
  if (cudaRuntimeGetVersion(&facts.runtime) != cudaSuccess) facts.runtime = 0;
  facts.emulated = penstock_runtime_emulated != nullptr;
  facts.visible = std::getenv("CUDA_VISIBLE_DEVICES");  // NOLINT(concurrency-mt-unsafe)
  return facts;
}

PENSTOCK_INLINE void throw_cuda_error(cudaError_t status, const Call& call,
                                      std::initializer_list<Number> numbers) {
  std::string text = call.name;
  if (text.find(' ') == std::string::npos) {  // it is the name of a function, not a description
    const char* separator = "(";
    for (const Number& number : numbers) text += std::exchange(separator, ", ") + number.text();
    text += numbers.size() == 0 ? "()" : ")";
  }
  text += std::string(" failed: ") + cudaGetErrorName(status) + ", " + cudaGetErrorString(status);
  if (status == cudaErrorInvalidResourceHandle)
    text += " (has a stream been destroyed before the end of a lease that it is used for?)";
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) {
    const std::string remedy = remedy_without_device(cuda_facts());
    if (!remedy.empty()) text += " (" + remedy + ')';
  }
  text += std::string(" [") + call.file + ':' + std::to_string(call.line) + ']';
  cudaGetLastError();  // The error is reported here, so a later check by the user must not find it
                       // again.
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
