// SPDX-License-Identifier: Apache-2.0
#pragma once

// Readback<T>: copies small results (a loss, counts, predictions) to the host and passes them to
// callbacks. Neither the stream nor the thread that queues the work waits for them.
//
//   penstock::Readback<float> losses{64};                        // at most 64 under way
//   while (auto batch = prefetcher.next(stream)) {
//     train_step<<<132, 256, 0, stream>>>(*batch, loss);
//     losses.push(loss, stream, [](float value) { std::cout << value << '\n'; });
//   }
//   losses.drain();
//
// `stream` copies the value to device memory of the readback, so that the next step may overwrite
// it. A stream of the readback copies it to pinned memory. A thread of the readback calls back, in
// the order of the pushes. Readback<T[]> copies arrays, whose lengths may differ:
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
#include <penstock/placement.hpp>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {
namespace detail {

/// The type-erased callbacks of a Readback, one for each slot.
struct CallbackTable {
  void* callbacks;
  void (*keep)(void* callbacks, std::size_t slot, void* callback);
  /// Calls the callback of `slot` and destroys it; if `values` is nullptr, only destroys it.
  void (*call)(void* callbacks, std::size_t slot, const std::byte* values, std::size_t count);
};

/// The implementation of Readback, independent of the type of the values.
class AnyReadback {
 public:
  virtual ~AnyReadback() = default;
  virtual void push(const void* device, std::size_t count, cudaStream_t stream, void* callback) = 0;
  virtual void drain() = 0;
  /// Whether this may be destroyed, which waits until everything is called back; else it has to be
  /// leaked. A forked child has no thread that calls back, and what that thread uses stays. On that
  /// thread itself, whose callback returns into this, it calls back for everything first.
  virtual bool close() noexcept = 0;
};

/// Throws std::invalid_argument for 0 slots or values, and for more than fits any memory.
std::unique_ptr<AnyReadback> make_readback(std::size_t slots, std::size_t largest,
                                           std::size_t value_bytes, CallbackTable table,
                                           const Placement& placement);

}  // namespace detail

/// Copies small results to the host and passes them to callbacks. Any thread except the one that
/// calls back may call `push` and `drain`. A forked child process may only destroy a Readback,
/// which does nothing there.
template <class T>
class Readback {
  static constexpr bool kArrays = std::is_unbounded_array_v<T>;

 public:
  /// The type of a value: `T`, or the element of an array.
  using Value = std::conditional_t<kArrays, std::remove_extent_t<T>, T>;
  /// The span is valid until the callback returns.
  using Callback = std::conditional_t<kArrays, std::function<void(std::span<const Value>)>,
                                      std::function<void(T)>>;
  static_assert(std::is_trivially_copyable_v<Value>, "values are copied to the host as bytes");

  /// Allocates pinned and device memory for `slots` values, on the current device, and starts the
  /// thread. `placement` is that of the thread and of the pinned memory. Throws
  /// std::invalid_argument for 0 slots and cores that the thread may not run on, PoolExhausted or
  /// CudaError.
  explicit Readback(std::size_t slots,
                    const Placement& placement = Placement::automatic()) requires(!kArrays)
      : Readback(slots, 1, Callbacks(), placement) {}
  /// The same for `slots` arrays of at most `largest` values, at least 1.
  Readback(std::size_t slots, std::size_t largest,
           const Placement& placement = Placement::automatic()) requires(kArrays)
      : Readback(slots, largest, Callbacks(), placement) {}
  Readback(Readback&&) noexcept = default;
  Readback& operator=(Readback&& other) noexcept {
    Readback taken(std::move(other));
    std::swap(callbacks_, taken.callbacks_);
    std::swap(line_, taken.line_);
    return *this;
  }
  /// Waits, and calls back for everything that was pushed. Errors are lost; call drain() first to
  /// get them. No thread may be inside a member. If a callback destroys its own Readback, it
  /// returns into it: its memory and thread are leaked, and a line on stderr says so. If it calls
  /// std::exit while the Readback is static, the process ends with that status.
  ~Readback() {
    if (line_ == nullptr || line_->close()) return;
    static_cast<void>(line_.release());
    static_cast<void>(callbacks_.release());
  }

  /// Passes to `callback` the value that *device has at this point of `stream`. Waits only while
  /// `slots` values are on their way; never blocks inside CUDA. Throws, and pushes nothing: an
  /// error of an earlier push or callback, once; CudaError; std::invalid_argument for a stream of
  /// another device; std::logic_error for a stream that is being captured (push after launching the
  /// graph) and on the thread that calls back.
  [[gnu::always_inline]] void push(const Value* device, StreamRef stream,
                                   Callback callback) requires(!kArrays) {
    push_values(device, 1, detail::named(stream), callback);
  }
  /// The same for `count` values, which may be 0; no others are copied. Throws
  /// std::invalid_argument also for more values than the largest array has.
  [[gnu::always_inline]] void push(const Value* device, std::size_t count, StreamRef stream,
                                   Callback callback) requires(kArrays) {
    push_values(device, count, detail::named(stream), callback);
  }

  /// Waits until the callbacks of all pushes have returned. Throws the first error since the last
  /// call of push or drain: an exception of a callback, or a CudaError for a value that could not
  /// be copied, whose callback is not called.
  void drain() { line().drain(); }

 private:
  using Callbacks = std::vector<Callback>;  // by slot

  Readback(std::size_t slots, std::size_t largest, Callbacks callbacks, const Placement& placement)
      : callbacks_(std::make_unique<Callbacks>(std::move(callbacks))) {
    line_ = detail::make_readback(slots, largest, sizeof(Value), {callbacks_.get(), &keep, &call},
                                  placement);
    callbacks_->resize(slots);
  }

  void push_values(const Value* device, std::size_t count, cudaStream_t stream,
                   Callback& callback) {
    if (!callback) throw std::invalid_argument("Readback::push: the callback is empty");
    line().push(device, count, stream, &callback);
  }

  detail::AnyReadback& line() const {
    if (line_ == nullptr) throw std::logic_error("Readback: it was moved from");
    return *line_;
  }

  static void keep(void* callbacks, std::size_t slot, void* callback) {
    (*static_cast<Callbacks*>(callbacks))[slot] = std::move(*static_cast<Callback*>(callback));
  }
  /// Runs on the thread that calls back. It destroys the callback, even if there is no value.
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
