// SPDX-License-Identifier: Apache-2.0
#pragma once

// Readback<T>: the way back. Small results (a loss, counts, predictions) come to the host while the
// stream that made them goes on; nobody waits for them.
//
//   penstock::Readback<float> losses{64};                        // at most 64 under way
//   while (auto batch = prefetcher.next(stream)) {
//     train_step<<<132, 256, 0, stream>>>(*batch, loss);
//     losses.push(loss, stream, [](float value) { std::cout << value << '\n'; });
//   }
//   losses.drain();
//
// The route: `stream` copies the value aside, on the device, so that the next step may overwrite
// it; a stream of the readback's own takes it to pinned memory; a thread of its own calls back, in
// the order of the pushes. Readback<T[]> has arrays, each push with its own length:
//
//   penstock::Readback<float[]> logits{8, 128 * classes};        // of at most so many values
//   logits.push(device, images * classes, stream, [](std::span<const float> values) { ... });

#include <cuda_runtime_api.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <penstock/cuda.hpp>
#include <penstock/detail/inline.hpp>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock {
namespace detail {

/// The callbacks of a Readback, one for each slot, their type erased.
struct CallbackTable {
  void* callbacks;
  void (*keep)(void* callbacks, std::size_t slot, void* callback);
  /// Calls the callback of `slot`, and drops it; `values` nullptr: only drops it.
  void (*call)(void* callbacks, std::size_t slot, const std::byte* values, std::size_t count);
};

/// What a Readback is made of: the same calls, whatever the type of the values.
class AnyReadback {
 public:
  virtual ~AnyReadback() = default;
  virtual void push(const void* device, std::size_t count, cudaStream_t stream, void* callback) = 0;
  virtual void drain() = 0;
  /// Calls back for everything that was pushed, and ends the thread. False: this is a forked child,
  /// and all that the thread uses has to stay.
  virtual bool close() noexcept = 0;
};

std::unique_ptr<AnyReadback> make_readback(std::size_t slots, std::size_t largest,
                                           std::size_t value_bytes, CallbackTable table);

}  // namespace detail

/// `push` and `drain` may be called from any thread but the one that calls back. A process forked
/// from the one that made it may do nothing with it but destroy it, which leaves everything as it
/// is.
template <class T>
class Readback {
  static constexpr bool kArrays = std::is_unbounded_array_v<T>;

 public:
  using Value = std::conditional_t<kArrays, std::remove_extent_t<T>, T>;
  /// A span is good until the callback returns.
  using Callback = std::conditional_t<kArrays, std::function<void(std::span<const Value>)>,
                                      std::function<void(T)>>;
  static_assert(std::is_trivially_copyable_v<Value>, "values are copied to the host as bytes");

  /// Allocates pinned and device memory for `slots` values, on the current device, and starts the
  /// thread. Throws std::invalid_argument for 0 slots, PoolExhausted or CudaError.
  explicit Readback(std::size_t slots) requires(!kArrays) : Readback(slots, 1, Callbacks()) {}
  /// The same for `slots` arrays of at most `largest` values, which is not 0 either.
  Readback(std::size_t slots, std::size_t largest) requires(kArrays)
      : Readback(slots, largest, Callbacks()) {}
  Readback(Readback&&) noexcept = default;
  Readback& operator=(Readback&& other) noexcept {
    Readback taken(std::move(other));
    std::swap(callbacks_, taken.callbacks_);
    std::swap(line_, taken.line_);
    return *this;
  }
  /// Calls back for everything that was pushed. Errors that nobody asked for are lost: drain()
  /// first.
  ~Readback() {
    if (line_ == nullptr || line_->close()) return;
    static_cast<void>(line_.release());
    static_cast<void>(callbacks_.release());
  }

  /// Queues: `callback` gets the value that *device has at this point of `stream`. Calls into CUDA
  /// do not block; waits for a callback while `slots` values are under way. Throws, and pushes
  /// nothing: what a callback threw or CUDA said since the last call, once; CudaError;
  /// std::invalid_argument for a stream that is not of the readback's device; std::logic_error for
  /// one that is being captured (push after the graph's launch), and on the thread that calls back.
  [[gnu::always_inline]] void push(const Value* device, cudaStream_t stream,
                                   Callback callback) requires(!kArrays) {
    push_values(device, 1, detail::named(stream), callback);
  }
  /// The same for `count` values from `device` on: no more cross the bus. 0 is an array too. Throws
  /// std::invalid_argument for more than the largest array has.
  [[gnu::always_inline]] void push(const Value* device, std::size_t count, cudaStream_t stream,
                                   Callback callback) requires(kArrays) {
    push_values(device, count, detail::named(stream), callback);
  }

  /// Waits until all that was pushed is called back. Throws the first of the errors since the last
  /// call of push or drain: a CudaError for values that the device could not deliver, whose
  /// callbacks are not called, or what a callback threw.
  void drain() { line_->drain(); }

 private:
  using Callbacks = std::vector<Callback>;  // by slot

  Readback(std::size_t slots, std::size_t largest, Callbacks callbacks)
      : callbacks_(std::make_unique<Callbacks>(std::move(callbacks))) {
    callbacks_->resize(slots);
    line_ = detail::make_readback(slots, largest, sizeof(Value), {callbacks_.get(), &keep, &call});
  }

  void push_values(const Value* device, std::size_t count, cudaStream_t stream,
                   Callback& callback) {
    if (!callback) throw std::invalid_argument("Readback::push: the callback is empty");
    line_->push(device, count, stream, &callback);
  }

  static void keep(void* callbacks, std::size_t slot, void* callback) {
    (*static_cast<Callbacks*>(callbacks))[slot] = std::move(*static_cast<Callback*>(callback));
  }
  /// On the thread that calls back. What the callback holds ends here, also where there is nothing
  /// to call it with.
  static void call(void* callbacks, std::size_t slot, const std::byte* values, std::size_t count) {
    const auto callback = std::exchange((*static_cast<Callbacks*>(callbacks))[slot], nullptr);
    if (values == nullptr) return;
    if constexpr (kArrays) {
      callback({reinterpret_cast<const Value*>(values), count});
    } else {
      std::array<std::byte, sizeof(T)> bytes;
      std::memcpy(bytes.data(), values, sizeof(T));
      callback(std::bit_cast<T>(bytes));
    }
  }

  std::unique_ptr<Callbacks> callbacks_;
  std::unique_ptr<detail::AnyReadback> line_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/pipeline/readback.hpp>
#endif
