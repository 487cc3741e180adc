// SPDX-License-Identifier: Apache-2.0
#pragma once

// ReadAhead: which samples come next is known, so storage can be asked for them long before a
// worker reads them.
//
//   const penstock::FileFolder images("imagenet/train");
//   penstock::Prefetcher<Images> prefetcher{layout, sampler, source,
//                                           {.read_ahead = penstock::read_ahead(images, 8)}};

#include <chrono>
#include <cstdint>
#include <functional>
#include <penstock/version.hpp>
#include <span>

namespace penstock::inline PENSTOCK_ABI {

/// Tells a store of the batches that come later. Workers announce them: the worker that begins a
/// batch calls `will_need` with the samples of the one that comes `batches` later; the first one
/// after a start, a seek or a restore begins with the batch behind its own. Each batch is announced
/// once, in order, through all epochs.
///
/// The functions are called by workers, by one at a time, without a lock: the others go on
/// meanwhile. The worker that calls one fills its batch afterwards. Their exceptions are ignored,
/// and so are those of the sampler. The span is valid during the call.
struct ReadAhead {
  /// Gets the numbers of a batch's samples.
  std::function<void(std::span<const std::uint64_t>)> will_need = {};
  /// How far ahead; 0: nothing is announced. More than an epoch has is taken for one epoch. Where
  /// an epoch has no end (Unbounded), it has to be a number that the storage can fetch ahead.
  std::uint64_t batches = 0;
  /// If it is set, it is called in place of `will_need`, and also gets the time at which a worker
  /// will begin the batch, by how fast the last 16 to 32 batches were begun. The epoch of the
  /// clock: fewer were begun since the start, a seek or a restore.
  std::function<void(std::span<const std::uint64_t>, std::chrono::steady_clock::time_point)>
      will_need_by = {};
};

/// Announces to a store, of which it keeps a reference: the store must outlive the pipeline. Tells
/// it the time, if its will_need() takes one.
template <class AnyStore>
requires requires(const AnyStore& store, std::span<const std::uint64_t> samples) {
  store.will_need(samples);
}
ReadAhead read_ahead(const AnyStore& store, std::uint64_t batches) {
  using Samples = std::span<const std::uint64_t>;
  using Time = std::chrono::steady_clock::time_point;
  ReadAhead ahead{[&store](Samples samples) { store.will_need(samples); }, batches};
  if constexpr (requires(Samples samples, Time due) { store.will_need(samples, due); })
    ahead.will_need_by = [&store](Samples samples, Time due) { store.will_need(samples, due); };
  return ahead;
}
template <class AnyStore>
ReadAhead read_ahead(const AnyStore&& temporary, std::uint64_t batches) = delete;

}  // namespace penstock
