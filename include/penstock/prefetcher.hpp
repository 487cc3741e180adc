// SPDX-License-Identifier: Apache-2.0
#pragma once

// Prefetcher: the whole way of a batch, from a function that fills pinned memory to a view on the
// device that a kernel takes. Batches are made and copied ahead while the consumer's kernels run.
//
//   penstock::Prefetcher<Images> prefetcher{layout, sampler, source, {.workers = 8, .epochs = 10}};
//   while (auto batch = prefetcher.next(stream))      // penstock::Lease<Images>
//     train_step<<<132, 256, 0, stream>>>(*batch, loss);
//
// The route: a worker fills a pinned block; when a device slot is free, whoever makes both true
// (the worker, or the thread that ends a lease) issues one copy on the copy stream; next() makes
// the consumer's stream wait for that copy; the end of the lease makes the slot's next copy wait
// for that stream.

#include <cuda_runtime_api.h>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/any_sampler.hpp>
#include <penstock/batch_producer.hpp>
#include <penstock/cuda.hpp>
#include <penstock/detail/inline.hpp>
#include <penstock/device_transform.hpp>
#include <penstock/error.hpp>
#include <penstock/failure.hpp>
#include <penstock/layout.hpp>
#include <penstock/pinned_pool.hpp>
#include <penstock/source.hpp>
#include <penstock/state.hpp>
#include <penstock/stats.hpp>
#include <utility>
#include <vector>

namespace penstock {

struct PrefetcherOptions {
  int workers = detail::default_workers();  ///< threads that run the source; 0: one
  /// Batches in pinned memory, all told. 0: device_depth + workers, and device_depth + 2 for a
  /// per_sample source. An on_device source has none.
  std::size_t host_depth = 0;
  std::size_t device_depth = 2;  ///< device slots: batches on the device, leased ones included
  std::uint64_t epochs = 1;      ///< at least 1
  bool ordered = true;           ///< false: batches come as they are ready, each still once
  FailurePolicy on_failure = FailurePolicy::abort();  ///< what becomes of batches that fail
  std::chrono::milliseconds stall_timeout{
      300'000};  ///< `next` gives up with StallError; 0 or milliseconds::max(): never
  std::size_t max_host_bytes = 0;  ///< refuse to take more host memory; 0: half of what may be used
  unsigned host_flags = cudaHostAllocPortable;  ///< of cudaHostAlloc
  int numa_node = -1;                           ///< of the host memory; -1: any
  int copy_priority = 0;                        ///< of the copy stream; lower is more urgent
  /// Timed events tell stats() what the device does: how long a copy takes, what it waits for, and
  /// for how long the consumer's stream is out of work. Four more event records for each batch, and
  /// reads of events that are over: see docs/stats.md for what that costs.
  bool device_times = false;
};

namespace detail {

/// A batch in a device slot, its type erased.
struct LeasedBatch {
  const void* batch;
  Ticket ticket;
  std::size_t slot;
  std::int64_t samples_in_batch = 0;
};

/// What a Prefetcher is made of: the same calls, whatever the type of the batches.
class AnyPrefetcher {
 public:
  virtual ~AnyPrefetcher() = default;
  virtual LeasedBatch* take(cudaStream_t consumer) = 0;
  virtual void also_used_on(LeasedBatch& batch, cudaStream_t stream) = 0;
  /// False: a consumer's stream is being captured, and the lease goes on; never with `park`.
  virtual bool give_back(LeasedBatch& batch, bool park) noexcept = 0;
  virtual void close() noexcept = 0;
  virtual bool forked() const noexcept = 0;
  virtual State state() const = 0;
  virtual void restore(const State& state) = 0;
  virtual Stats stats() = 0;
  virtual std::vector<Failure> failures() const = 0;
};

/// Shared by the prefetcher and its leases.
using PrefetcherHandle = std::shared_ptr<AnyPrefetcher>;

PrefetcherHandle make_prefetcher(const BlockLayout& layout, AnySampler sampler, ErasedSource source,
                                 PrefetcherOptions options);
PrefetcherHandle make_prefetcher(const BlockLayout& layout, AnySampler sampler, ErasedSource source,
                                 ErasedTransform transform, PrefetcherOptions options);
/// The ends of a prefetcher and of a lease. In a forked child they leave everything as it is.
void close(PrefetcherHandle prefetcher) noexcept;
[[noreturn]] void throw_empty_lease();
void give_back(PrefetcherHandle prefetcher, LeasedBatch& batch) noexcept;
/// Throws std::logic_error, and changes nothing, while a consumer's stream is being captured.
void release(PrefetcherHandle& prefetcher, LeasedBatch*& batch);

}  // namespace detail

/// A batch on the device, held by the consumer: move-only; a moved-from or released lease is empty.
/// Its memory is not written before all that the consumer's streams held at the release is done. It
/// may outlive the prefetcher, and may be released by another thread than the one that got it, with
/// whatever device current.
///
/// Where cudaStreamPerThread is a consumer, and another thread releases, the release is marked on
/// the legacy default stream, which comes after every thread's own; other blocking streams of the
/// device wait for that mark too.
template <class Batch>
class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept
      : owner_(std::move(other.owner_)), leased_(std::exchange(other.leased_, nullptr)) {}
  Lease& operator=(Lease&& other) noexcept {
    Lease taken(std::move(other));
    std::swap(owner_, taken.owner_);
    std::swap(leased_, taken.leased_);
    return *this;
  }
  /// As release(). While a consumer's stream is being captured into a graph, the slot is kept, and
  /// goes back with the first end of a lease, or `next`, after the capture.
  ~Lease() {
    if (leased_ != nullptr) detail::give_back(std::move(owner_), *leased_);
  }

  explicit operator bool() const noexcept { return leased_ != nullptr; }
  // What follows throws std::logic_error when the lease is empty.

  /// Views of device memory, to be passed to kernels by value.
  const Batch& operator*() const { return *static_cast<const Batch*>(leased().batch); }
  const Batch* operator->() const { return static_cast<const Batch*>(leased().batch); }
  /// Epoch, batch and sample numbers; valid until the release.
  const Ticket& ticket() const { return leased().ticket; }
  /// Samples in the batch: as many as the ticket names, unless a source or a DeviceTransform has
  /// resized it.
  std::int64_t samples() const { return leased().samples_in_batch; }
  /// Which of the device slots, 0 ... device_depth - 1. A slot has a fixed address: see StepGraph
  /// for graphs that are captured for it.
  std::size_t slot() const { return leased().slot; }

  /// The batch is used on `stream` too: it waits for the copy, and the release waits for it. Does
  /// not block. Throws CudaError, and for a stream as `next` does.
  [[gnu::always_inline]] void also_used_on(cudaStream_t stream) {
    detail::LeasedBatch& batch = leased();
    owner_->also_used_on(batch, detail::named(stream));
  }

  /// Ends the lease: what is queued on the consumer's streams from now on may not use the batch.
  /// Does not block. A failure of CUDA's is thrown by the next next(). Throws std::logic_error
  /// while a consumer's stream is being captured into a graph, and then the lease goes on.
  void release() {
    if (leased_ != nullptr) detail::release(owner_, leased_);
  }

 private:
  template <class, class>
  friend class Prefetcher;
  Lease(detail::PrefetcherHandle owner, detail::LeasedBatch* leased)
      : owner_(std::move(owner)), leased_(leased) {}
  detail::LeasedBatch& leased() const {
    if (leased_ == nullptr) [[unlikely]]
      detail::throw_empty_lease();
    return *leased_;
  }

  detail::PrefetcherHandle owner_;
  detail::LeasedBatch* leased_ = nullptr;
};

/// Any thread may call any member. Threads that call `next` at the same time are served one after
/// the other: each batch, and each exception in a batch's place, goes to one of them, the end to
/// all. After construction, no call allocates, creates CUDA objects, or blocks inside CUDA.
///
/// A process forked from the one that made it may do nothing with a prefetcher and its leases but
/// destroy them, which leaves everything as it is: threads and CUDA do not survive a fork.
///
/// `Host` is what the source fills and what crosses the bus; where it is not `Batch`, a
/// DeviceTransform makes the one of the other.
template <class Batch, class Host = Batch>
class Prefetcher {
 public:
  /// Allocates all host and device memory on the current device, and starts to fill it. Sampler and
  /// source run on the workers; each worker has its own copy of the source. Throws
  /// std::invalid_argument, PoolExhausted (with the numbers, when memory is over a cap or refused)
  /// or CudaError.
  Prefetcher(const Layout<Batch>& layout, AnySampler sampler, AnySource<Batch> source,
             PrefetcherOptions options = {}) requires std::same_as<Batch, Host>
      : prefetcher_(detail::make_prefetcher(layout.erased(), std::move(sampler),
                                            std::move(source).erased(), options)) {}
  /// With a transform on the device, whose layout is that of the slots.
  Prefetcher(const Layout<Host>& layout, AnySampler sampler, AnySource<Host> source,
             const DeviceTransform<Host, Batch>& transform, PrefetcherOptions options = {})
      : prefetcher_(detail::make_prefetcher(layout.erased(), std::move(sampler),
                                            std::move(source).erased(), transform.erased(),
                                            options)) {}
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  /// Asks the sources to stop, joins the workers, waits until no copy reads host memory any more,
  /// frees everything. What leases still hold is freed with the last of them.
  ~Prefetcher() { detail::close(std::move(prefetcher_)); }

  /// The next batch; work queued on `consumer` from now on sees it complete. Waits on the host
  /// until a batch's copy is issued, never for the copy. Empty: all epochs are done, or the source
  /// said that there is no more. Throws SourceError in place of a batch that failed, CudaError,
  /// PoolExhausted, or StallError; the next call goes on behind it.
  ///
  /// `consumer` is any stream of the prefetcher's device: created, the legacy default stream, or a
  /// thread's own (cudaStreamPerThread; 0 where the calling source is compiled so). A default
  /// stream is that of the device that is current at this call. Throws std::invalid_argument for a
  /// stream of another device; std::logic_error for one that is being captured into a graph, and
  /// where every slot was given up in captures that still go on. Neither takes a batch.
  [[gnu::always_inline]] Lease<Batch> next(cudaStream_t consumer) {
    return take(detail::named(consumer));
  }

  /// The position behind the last batch that next() delivered (or threw for): what is ready ahead
  /// of it will be made again. Throws std::logic_error when batches come unordered: then there is
  /// no such position.
  State state() const { return prefetcher_->state(); }
  /// Goes on at `state`, with whatever workers and depths this prefetcher has; at the edge of an
  /// epoch also with another batch size or world size. Throws std::invalid_argument when `state` is
  /// of another run, or does not fit this one (see why_incompatible), and then changes nothing;
  /// throws std::system_error when no thread can be started, and then `next` says that this is the
  /// end until another `restore` succeeds. Leases that are out stay valid. Waits for a `next` under
  /// way on another thread.
  void restore(const State& state) { prefetcher_->restore(state); }

  Stats stats() const { return prefetcher_->stats(); }
  /// The first 256 failures that `on_failure` has dealt with; stats() counts all.
  std::vector<Failure> failures() const { return prefetcher_->failures(); }

 private:
  Lease<Batch> take(cudaStream_t consumer) {
    detail::LeasedBatch* const leased = prefetcher_->take(consumer);
    return leased == nullptr ? Lease<Batch>() : Lease<Batch>(prefetcher_, leased);
  }

  detail::PrefetcherHandle prefetcher_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/pipeline/prefetcher.hpp>
#endif
