// SPDX-License-Identifier: Apache-2.0
#pragma once

// StreamRef: how functions of penstock take a stream. Whatever names a CUDA stream converts to it:
// a cudaStream_t, 0, cuda::stream_ref, a penstock::Stream, and types of other libraries that
// convert to cudaStream_t or have a get() that returns one.
//
//   const penstock::Stream compute;
//   auto batch = prefetcher.next(compute);
//
// Functions of yours that penstock calls get a cudaStream_t.

#include <concepts>
#include <penstock/version.hpp>

typedef struct CUstream_st* cudaStream_t;  // as in CUDA's <driver_types.h>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {

template <class T>
concept ConvertsToStream = std::convertible_to<const T&, cudaStream_t>;

template <class T>
concept HoldsStream = requires(const T& holder) {
  { holder.get() } -> std::same_as<cudaStream_t>;
};

}  // namespace detail

/// A stream of somebody else's, by its handle: nothing is owned, created or resolved. Stream 0
/// stays 0. No call into CUDA.
class StreamRef {
 public:
  constexpr StreamRef() noexcept = default;  ///< stream 0
  // NOLINTBEGIN(google-explicit-constructor): each of them is a stream.
  /// `stream` itself.
  constexpr StreamRef(cudaStream_t stream) noexcept : stream_(stream) {}
  /// The stream that `stream` converts to, or that its get() returns.
  template <class T>
  requires detail::ConvertsToStream<T> || detail::HoldsStream<T>
  constexpr StreamRef(const T& stream) : stream_(handle_of(stream)) {}

  /// The handle, to be passed to CUDA.
  constexpr operator cudaStream_t() const noexcept { return stream_; }
  // NOLINTEND(google-explicit-constructor)

 private:
  template <class T>
  static constexpr cudaStream_t handle_of(const T& stream) {
    if constexpr (detail::ConvertsToStream<T>)
      return stream;
    else
      return stream.get();
  }

  cudaStream_t stream_ = nullptr;
};

}  // namespace penstock
