// SPDX-License-Identifier: Apache-2.0
#pragma once

// What fills batches: a Ticket says which batch is wanted, a source writes it into pinned memory.
//
//   [&](const penstock::Ticket& ticket, Images& batch) {
//     for (std::size_t i = 0; i < ticket.samples.size(); ++i)
//       decode(records[ticket.samples[i]], batch, i);
//   }
//
// A source may take a std::stop_token as third argument: it is asked to stop when the pipeline goes
// away, so that a source that waits (for a camera, a socket) can give up. It may return bool: false
// means that there is no more data, and what it was asked for is not delivered.

#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace penstock {

/// The order for one batch. `samples` is valid as long as the batch that the ticket belongs to.
struct Ticket {
  std::uint64_t epoch = 0;
  std::uint64_t batch = 0;  ///< within the epoch, from 0
  std::uint64_t seed =
      0;  ///< pure function of (run seed, epoch, batch): seed random augmentation with it
  std::span<const std::uint64_t> samples;
};

/// The plain form of a source. Copied once for each worker: what it captures by value is the
/// worker's own and needs no lock; what it captures by reference is shared by all workers.
template <class Batch>
using Source = std::function<void(const Ticket&, Batch&)>;

namespace detail {

/// A source without the type of its batches.
using ErasedSource = std::function<bool(const Ticket&, void*, const std::stop_token&)>;

}  // namespace detail

/// Any callable that fills a batch: (ticket, batch) or (ticket, batch, stop_token), returning void,
/// or bool where false ends the data. Copyable; copies are independent.
template <class Batch>
class AnySource {
 public:
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, AnySource> &&
           (std::invocable<std::decay_t<F>&, const Ticket&, Batch&> ||
            std::invocable<std::decay_t<F>&, const Ticket&, Batch&, std::stop_token>))
      // NOLINTNEXTLINE(google-explicit-constructor): a lambda is a source.
      AnySource(F&& fill)
      : fill_(wrap(std::forward<F>(fill))) {}

  /// Fills `batch`; false: there is no more data. Whatever the callable throws passes through.
  bool operator()(const Ticket& ticket, Batch& batch, const std::stop_token& stop) {
    return fill_(ticket, &batch, stop);
  }

  /// The same source for the parts of penstock that do not know `Batch`.
  detail::ErasedSource erased() && { return std::move(fill_); }

 private:
  template <class F>
  static detail::ErasedSource wrap(F&& fill) {
    return [fill = std::decay_t<F>(std::forward<F>(fill))](
               const Ticket& ticket, void* at, const std::stop_token& stop) mutable -> bool {
      auto& batch = *static_cast<Batch*>(at);
      const auto call = [&]() -> decltype(auto) {
        if constexpr (std::invocable<std::decay_t<F>&, const Ticket&, Batch&, std::stop_token>)
          return fill(ticket, batch, stop);
        else
          return fill(ticket, batch);
      };
      if constexpr (std::same_as<decltype(call()), bool>) return call();
      call();
      return true;
    };
  }

  detail::ErasedSource fill_;
};

}  // namespace penstock
