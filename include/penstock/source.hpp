// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sources: user code that fills batches. There are three kinds.
//
// A batch at a time, by one worker. A Ticket names the samples of the batch:
//
//   [&, scratch = std::vector<std::byte>()](const penstock::Ticket& ticket, Images& batch) mutable {
//     for (std::size_t i = 0; i < ticket.samples.size(); ++i)
//       decode(records.read(ticket.samples[i], scratch), batch, i);
//   }
//
// A sample at a time, by all workers together, the oldest unfinished batch first. Choose it if a
// sample takes long (compressed images): the first batch is ready after (time of a batch) /
// workers, and pinned memory does not grow with the number of workers:
//
//   penstock::per_sample([&, scratch = std::vector<std::byte>()](const penstock::Sample& sample,
//                                                                Images& batch) mutable {
//     decode(records.read(sample.index, scratch), batch, static_cast<std::size_t>(sample.row));
//   })
//
// A batch at a time, written to device memory without a copy. Choose it for hardware decoders,
// GPUDirect Storage and generators:
//
//   penstock::on_device([&](const penstock::Ticket& ticket, Images& batch, cudaStream_t stream) {
//     generate(ticket, batch, stream);
//   })
//
// Each of them may take a std::stop_token as last argument. Stop is requested when the pipeline is
// destroyed, so that a source that waits (for a camera, a socket) can return. A source of the first
// or third kind may return bool: false means that there is no more data; the batch that it was
// called for is not delivered.
//
// Each worker has its own copy of the source. State that cannot be copied (a decoder, the handle of
// a library) is made by per_worker, on the worker's thread:
//
//   penstock::per_sample(penstock::per_worker(
//       [] { return Decoder(); },
//       [&](Decoder& decoder, const penstock::Sample& sample, Images& batch) {
//         decoder.decode(records.read(sample.index, decoder.scratch), batch, sample.row);
//       }))

#include <cuda_runtime_api.h>
#include <penstock/version.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <penstock/detail/mix.hpp>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace penstock::inline PENSTOCK_ABI {

/// Seed of the random choices (augmentation) for sample `index`: a pure function of its arguments,
/// so the same in any batch and on any rank. Kernels may call it.
PENSTOCK_HOST_DEVICE constexpr std::uint64_t sample_seed(std::uint64_t run_seed,
                                                         std::uint64_t epoch,
                                                         std::uint64_t index) noexcept {
  return detail::mix64(detail::mix64(detail::mix64(run_seed) ^ epoch) + index);
}

/// Identifies a batch. `samples` is valid as long as the batch that the ticket belongs to.
struct Ticket {
  std::uint64_t epoch = 0;  ///< number of the epoch, from 0
  std::uint64_t batch = 0;  ///< number of the batch within the epoch, from 0
  /// Pure function of (run seed, epoch, batch), the same on all ranks: for random choices that the
  /// ranks must make alike, such as the image size of the step. For the augmentation of a sample
  /// use sample_seed.
  std::uint64_t seed = 0;
  std::span<const std::uint64_t> samples;  ///< numbers of the samples in the data set
  std::uint64_t run_seed = 0;              ///< the sampler's seed

  /// The penstock::sample_seed of the sample in row `row` of the batch.
  constexpr std::uint64_t sample_seed(std::size_t row) const {
    return penstock::sample_seed(run_seed, epoch, samples[row]);
  }
};

/// Identifies a sample of a batch.
struct Sample {
  std::uint64_t index = 0;  ///< number of the sample in the data set
  std::int64_t row = 0;     ///< the row of the batch to fill
  std::uint64_t seed = 0;   ///< sample_seed(run seed, epoch, index)
  /// Of the batch, as in Ticket.
  std::uint64_t epoch = 0, batch = 0;
};

/// The plain form of a source. Copied once for each worker: what it captures by value belongs to
/// one worker and needs no lock; what it captures by reference is shared by all workers.
template <class Batch>
using Source = std::function<void(const Ticket&, Batch&)>;

namespace detail {

enum class SourceKind { batch, sample, device };

// The results of per_sample and on_device, and of per_worker.
template <SourceKind kind, class F>
struct OfKind {
  F fill;
};
template <class F>
struct PerWorker {
  F make;
};

/// The source of a worker: `fill`, with the worker's state before its arguments.
template <class State, class Fill>
struct WithState {
  State state;
  Fill fill;

  template <class... Arguments>
  requires std::invocable<Fill&, State&, Arguments...>
  decltype(auto) operator()(Arguments&&... arguments) {
    return fill(state, std::forward<Arguments>(arguments)...);
  }
};

/// Throws std::invalid_argument for an empty std::function and a null pointer to a function.
template <class F>
void require_callable(const F& fill) {
  if constexpr (std::constructible_from<F, std::nullptr_t> && requires { fill == nullptr; })
    if (fill == nullptr)
      throw std::invalid_argument("the source is empty: it holds no function to call");
}

}  // namespace detail

/// A source of one sample at a time. `fill(sample, batch)`, or `fill(sample, batch, stop_token)`,
/// returns void. It writes row `sample.row` of every field and nothing else, since other workers
/// fill other rows of the same batch at the same time. Members that are not fields keep their
/// defaults. An exception is a failure of this sample only (see FailurePolicy).
template <class F>
auto per_sample(F fill) {
  return detail::OfKind<detail::SourceKind::sample, F>{std::move(fill)};
}

/// A source that writes device memory, for a Prefetcher. `fill(ticket, batch, stream)`, or
/// `fill(ticket, batch, stream, stop_token)`, gets a batch that is bound to a free device slot, and
/// the worker's stream, which waits for the last readers of the slot. The consumer's work waits for
/// the work that `fill` queues on `stream`. Work on other streams must be joined to it by events.
/// `fill` may block; other workers do not wait for it. The prefetcher's device is current.
template <class F>
auto on_device(F fill) {
  return detail::OfKind<detail::SourceKind::device, F>{std::move(fill)};
}

/// A source with separate state for each worker: `make()` returns the function that fills, for any
/// of the three kinds (also as `per_sample(per_worker(make))` and `on_device(per_worker(make))`).
/// Each worker calls its own copy of `make` once, on its thread and with the pipeline's device
/// current, and destroys the result on that thread. The result may be move-only. If `make` throws,
/// `next` throws a WorkerError, and the other workers continue.
template <class F>
auto per_worker(F make) {
  static_assert(std::invocable<F&>,
                "per_worker takes a function without arguments, which returns the function that "
                "fills: per_worker([] { return [](const penstock::Ticket&, Batch&) { ... }; }). "
                "per_sample and on_device stand outside: per_sample(per_worker(make))");
  detail::require_callable(make);
  return detail::PerWorker<F>{std::move(make)};
}

/// The same with the worker's state as an argument: `make()` returns the state, and `fill` gets a
/// reference to it before the arguments of a source: fill(state, ticket, batch), in per_sample
/// fill(state, sample, batch), in on_device fill(state, ticket, batch, stream), each with a
/// std::stop_token behind if it wants one. The state may be move-only. Each worker calls its own
/// copy of `make` once, keeps its own copy of `fill`, and destroys both and the state on its
/// thread.
template <class Make, class Fill>
auto per_worker(Make make, Fill fill) {
  static_assert(std::invocable<Make&>,
                "per_worker takes a function without arguments, which returns the state of a "
                "worker, and the function that fills: per_worker([] { return Decoder(); }, "
                "[](Decoder&, const penstock::Ticket&, Batch&) { ... })");
  if constexpr (std::invocable<Make&>) {
    using Made = std::invoke_result_t<Make&>;
    static_assert(!std::is_void_v<Made>,
                  "the first function of per_worker(make, fill) returns nothing: it has to return "
                  "the state of a worker");
    if constexpr (!std::is_void_v<Made>) {
      detail::require_callable(make);
      detail::require_callable(fill);
      return per_worker([make = std::move(make), fill = std::move(fill)]() mutable {
        return detail::WithState<Made, Fill>{make(), std::move(fill)};
      });
    }
  }
}

namespace detail {

/// The source of one worker. A per_sample source has fill_row, the others have fill_batch.
class WorkerSource {
 public:
  virtual ~WorkerSource() = default;
  /// Fills `batch`; false: there is no more data. Only on_device sources use `stream`.
  virtual bool fill_batch(const Ticket&, void* batch, cudaStream_t stream,
                          const std::stop_token&) = 0;
  virtual void fill_row(const Sample&, void* batch, const std::stop_token&) = 0;
};

/// A type-erased source.
struct ErasedSource {
  SourceKind kind;
  std::function<std::unique_ptr<WorkerSource>()> make;  ///< called on each worker
};

/// The kind of the source F, and the function that it wraps.
template <class F>
struct SourceTraits {
  static constexpr SourceKind kind = SourceKind::batch;
  static F&& inside(F& source) { return std::move(source); }
};
template <SourceKind of_kind, class F>
struct SourceTraits<OfKind<of_kind, F>> {
  static constexpr SourceKind kind = of_kind;
  static F&& inside(OfKind<of_kind, F>& source) { return std::move(source.fill); }
};

/// The function that a worker calls: a copy of `fill`, or the result of make() of PerWorker.
template <class F>
F own(const F& fill) {
  return fill;
}
template <class F>
std::decay_t<std::invoke_result_t<F&>> own(const PerWorker<F>& fill) {
  F make = fill.make;
  return make();
}
template <class F>
using OwnOf = decltype(detail::own(SourceTraits<F>::inside(std::declval<F&>())));

template <class F, class... Arguments>
concept Fills =
    std::invocable<F&, Arguments...> || std::invocable<F&, Arguments..., const std::stop_token&>;

/// Whether a function can be called as one of this kind. `Batch`: a reference to the batch.
template <class F, SourceKind kind, class Batch>
concept FillsAs = (kind == SourceKind::batch && Fills<F, const Ticket&, Batch>) ||
                  (kind == SourceKind::sample && Fills<F, const Sample&, Batch>) ||
                  (kind == SourceKind::device && Fills<F, const Ticket&, Batch, cudaStream_t>);

template <class F, class Batch>
concept IsSource = FillsAs<OwnOf<F>, SourceTraits<F>::kind, Batch&>;

template <SourceKind kind, class Batch, class F>
class TypedSource final : public WorkerSource {
 public:
  explicit TypedSource(F fill) : fill_(std::move(fill)) {}

  bool fill_batch(const Ticket& ticket, void* batch, cudaStream_t stream,
                  const std::stop_token& stop) override {
    if constexpr (kind == SourceKind::batch)
      return more(stop, ticket, *static_cast<Batch*>(batch));
    else if constexpr (kind == SourceKind::device)
      return more(stop, ticket, *static_cast<Batch*>(batch), stream);
    return false;
  }
  void fill_row(const Sample& sample, void* at, const std::stop_token& stop) override {
    if constexpr (kind == SourceKind::sample) {
      auto& batch = *static_cast<Batch*>(at);
      static_assert(std::is_void_v<decltype(call(stop, sample, batch))>,
                    "a per_sample source returns void; data of unknown length need a source that "
                    "is asked for whole batches");
      call(stop, sample, batch);
    }
  }

 private:
  template <class... Arguments>
  decltype(auto) call(const std::stop_token& stop, Arguments&... arguments) {
    if constexpr (std::invocable<F&, Arguments&..., const std::stop_token&>)
      return fill_(arguments..., stop);
    else
      return fill_(arguments...);
  }
  template <class... Arguments>
  bool more(const std::stop_token& stop, Arguments&... arguments) {
    using Result = decltype(call(stop, arguments...));
    static_assert(std::is_void_v<Result> || std::same_as<Result, bool>,
                  "a source returns void, or bool, where false means that there is no more data");
    if constexpr (std::same_as<Result, bool>) return call(stop, arguments...);
    call(stop, arguments...);
    return true;
  }

  F fill_;
};

}  // namespace detail

/// A source of any kind for batches of type `Batch`. Converts from callables and from the results
/// of per_sample, on_device and per_worker. Copyable; copies are independent.
template <class Batch>
class AnySource {
 public:
  /// From a callable, or from what per_sample, on_device and per_worker return. Copies or moves it.
  /// Throws std::invalid_argument for an empty std::function and a null pointer.
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, AnySource> &&
           detail::IsSource<std::decay_t<F>, Batch>)
      // NOLINTNEXTLINE(google-explicit-constructor): a lambda is a source.
      AnySource(F&& source)
      : source_(erase<std::decay_t<F>>(std::forward<F>(source))) {}
  // Nothing else is a source. A Prefetcher and a BatchProducer say why.
  template <class F>
  requires(!std::derived_from<std::remove_cvref_t<F>, AnySource> &&
           !detail::IsSource<std::decay_t<F>, Batch>)
      // clang-format off
      // NOLINTNEXTLINE(google-explicit-constructor): the same.
      AnySource(F&&) = delete;  // a source is a function of (const penstock::Ticket&, Batch&); in per_sample: of (const penstock::Sample&, Batch&); in on_device: of (const penstock::Ticket&, Batch&, cudaStream_t)
  // clang-format on

  /// The same source, type-erased.
  detail::ErasedSource erased() && { return std::move(source_); }

 private:
  template <class F, class Given>
  static detail::ErasedSource erase(Given&& given) {
    static_assert(std::copy_constructible<F>,
                  "each worker copies its source, and the functions that per_worker is given: make "
                  "what cannot be copied with penstock::per_worker, in its first function");
    static_assert(std::move_constructible<detail::OwnOf<F>>,
                  "what the function of penstock::per_worker returns cannot be moved: let it "
                  "return a std::unique_ptr");
    using Traits = detail::SourceTraits<F>;
    F source(std::forward<Given>(given));
    auto inside = Traits::inside(source);
    detail::require_callable(inside);
    return {Traits::kind, [inside = std::move(inside)]() -> std::unique_ptr<detail::WorkerSource> {
              using Typed = detail::TypedSource<Traits::kind, Batch, detail::OwnOf<F>>;
              auto own = detail::own(inside);
              detail::require_callable(own);
              return std::make_unique<Typed>(std::move(own));
            }};
  }

  detail::ErasedSource source_;
};

namespace detail {

/// In the place of an argument: converts to a reference to anything.
struct AnyArgument {
  template <class T>
  operator T&() const noexcept;  // NOLINT(google-explicit-constructor): that is what it is for
};

template <class F>
inline constexpr bool is_any_source = false;
template <class Batch>
inline constexpr bool is_any_source<AnySource<Batch>> = true;

/// What is wrong with a function that is no source of its kind.
enum class SourceFault { signature, wants_per_sample, wants_on_device, wants_no_wrapper, batch };

/// Of `F`, which is no source of `Batch`.
template <class F, class Batch>
constexpr SourceFault source_fault() {
  if constexpr (is_any_source<F>) {
    return SourceFault::batch;
  } else {
    using Function = OwnOf<F>;
    constexpr SourceKind kind = SourceTraits<F>::kind;
    if constexpr (FillsAs<Function, SourceKind::batch, Batch&>)
      return SourceFault::wants_no_wrapper;
    else if constexpr (FillsAs<Function, SourceKind::sample, Batch&>)
      return SourceFault::wants_per_sample;
    else if constexpr (FillsAs<Function, SourceKind::device, Batch&>)
      return SourceFault::wants_on_device;
    else if constexpr (FillsAs<Function, kind, AnyArgument>)
      return SourceFault::batch;
    else
      return SourceFault::signature;
  }
}

/// Does not compile, and says why `F` is no source of `Batch`.
template <class F, class Batch>
constexpr void explain_source() {
  constexpr SourceFault fault = source_fault<F, Batch>();
  constexpr SourceKind kind = SourceTraits<F>::kind;
  static_assert(
      fault != SourceFault::wants_per_sample,
      "a source is a function of (const penstock::Ticket&, Batch&). This one is of (const "
      "penstock::Sample&, Batch&): wrap it in penstock::per_sample");
  static_assert(
      fault != SourceFault::wants_on_device,
      "a source is a function of (const penstock::Ticket&, Batch&). This one is of (const "
      "penstock::Ticket&, Batch&, cudaStream_t): wrap it in penstock::on_device");
  static_assert(fault != SourceFault::wants_no_wrapper || kind != SourceKind::sample,
                "a source in per_sample: of (const penstock::Sample&, Batch&). This one is of "
                "(const penstock::Ticket&, Batch&): it is a source without per_sample");
  static_assert(fault != SourceFault::wants_no_wrapper || kind != SourceKind::device,
                "a source in on_device: of (const penstock::Ticket&, Batch&, cudaStream_t). This "
                "one is of (const penstock::Ticket&, Batch&): it is a source without on_device");
  static_assert(fault != SourceFault::batch,
                "the source's Batch is not the layout's: its second argument has to be a reference "
                "to the struct that the Layout describes");
  static_assert(fault != SourceFault::signature || kind != SourceKind::batch,
                "a source is a function of (const penstock::Ticket&, Batch&), and of a "
                "std::stop_token behind them if it wants one; in per_worker(make, fill) the state "
                "stands before them");
  static_assert(fault != SourceFault::signature || kind != SourceKind::sample,
                "a source in per_sample: of (const penstock::Sample&, Batch&), and of a "
                "std::stop_token behind them if it wants one; in per_worker(make, fill) the state "
                "stands before them");
  static_assert(fault != SourceFault::signature || kind != SourceKind::device,
                "a source in on_device: of (const penstock::Ticket&, Batch&, cudaStream_t), and of "
                "a std::stop_token behind them if it wants one; in per_worker(make, fill) the "
                "state stands before them");
}

/// Returns `source` for a pipeline. Another type does not compile, and the message says why.
template <class Batch, class F>
AnySource<Batch> as_source(F&& source) {
  if constexpr (std::is_convertible_v<F, AnySource<Batch>>) {
    return AnySource<Batch>(std::forward<F>(source));
  } else {
    explain_source<std::decay_t<F>, Batch>();
    std::terminate();
  }
}

}  // namespace detail

}  // namespace penstock
