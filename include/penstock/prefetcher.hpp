// SPDX-License-Identifier: Apache-2.0
#pragma once

// Prefetcher: the whole way of a batch, from a function that fills pinned memory to a view on the
// device that a kernel takes. Batches are made and copied ahead while the consumer's kernels run.
//
//   penstock::Prefetcher<Images> prefetcher{layout,
//                                           {.samples = records.size(), .shuffle = true},
//                                           source,
//                                           {.workers = 8, .epochs = 10}};
//   while (auto batch = prefetcher.next(stream))      // penstock::Lease<Images>
//     train_step<<<132, 256, 0, stream>>>(*batch, loss);
//
// The route: a worker fills a pinned block; when a device slot is free, whoever makes both true
// (the worker, or the thread that ends a lease) issues one copy on the copy stream; next() makes
// the consumer's stream wait for that copy; the end of the lease makes the slot's next copy wait
// for that stream.

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <penstock/any_sampler.hpp>
#include <penstock/cuda.hpp>
#include <penstock/detail/inline.hpp>
#include <penstock/detail/pipeline/leased_batch.hpp>
#include <penstock/detail/pipeline/pipeline_handle.hpp>
#include <penstock/device_transform.hpp>
#include <penstock/error.hpp>
#include <penstock/failure.hpp>
#include <penstock/layout.hpp>
#include <penstock/prefetcher_options.hpp>
#include <penstock/source.hpp>
#include <penstock/state.hpp>
#include <penstock/stats.hpp>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {

PipelineHandle make_prefetcher(const BlockLayout& layout, AnySampler sampler, ErasedSource source,
                               std::optional<ErasedTransform> transform, PrefetcherOptions options);
/// The next batch; nullptr: there is none. Sets `owner`, which a lease of the batch keeps: once the
/// call has returned, the Prefetcher may be gone.
LeasedBatch* next(Pipeline& pipeline, cudaStream_t consumer, PipelineHandle& owner);
void also_use(Pipeline& pipeline, LeasedBatch& batch, cudaStream_t stream);
/// Whether `stream` is a consumer of the batch; false for a default stream, of which that depends
/// on the thread.
bool is_used_on(const LeasedBatch& batch, cudaStream_t stream) noexcept;
/// Does nothing in a forked child. While a consumer's stream is being captured, the arena keeps the
/// slot.
void end_lease(PipelineHandle pipeline, LeasedBatch& batch) noexcept;
/// Throws std::logic_error, and changes nothing, while a consumer's stream is being captured.
void release(PipelineHandle& pipeline, LeasedBatch*& batch);
[[noreturn]] void throw_empty_lease();
void stop(Pipeline& pipeline) noexcept;
State state(const Pipeline& pipeline);
void restore(Pipeline& pipeline, const State& state);
Stats stats(Pipeline& pipeline);

}  // namespace detail

/// A batch on the device that the consumer holds. Move-only; a moved-from or released lease is
/// empty. The memory is not overwritten until all work that the consumer's streams hold at the
/// release is done. A lease may outlive its prefetcher. Any thread may release it, whichever device
/// is current.
///
/// If a consumer is cudaStreamPerThread and another thread releases the lease, the release is
/// recorded on the legacy default stream, which waits for the per-thread streams of all threads.
/// Other blocking streams of the device then wait for that record too.
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
  /// Same as release(). If a consumer's stream is being captured into a graph, the slot stays in
  /// use until the first end of a lease, or call of `next`, after the capture.
  ~Lease() {
    if (leased_ != nullptr) detail::end_lease(std::move(owner_), *leased_);
  }

  /// Whether there is a batch: false after the end of the data, a move or a release.
  explicit operator bool() const noexcept { return leased_ != nullptr; }
  // The members below throw std::logic_error if the lease is empty.

  /// Views of device memory, to be passed to kernels by value.
  const Batch& operator*() const { return *static_cast<const Batch*>(leased().batch); }
  /// The same.
  const Batch* operator->() const { return static_cast<const Batch*>(leased().batch); }
  /// Epoch, batch and sample numbers; valid until the release.
  const Ticket& ticket() const { return leased().ticket; }
  /// Number of samples in the batch: that of the ticket, unless a source or a DeviceTransform
  /// resized the batch.
  std::int64_t samples() const { return leased().rows; }
  /// Index of the batch's device slot, 0 ... device_depth - 1. A slot has a fixed address, so that
  /// StepGraph can capture a graph for it.
  std::size_t slot() const { return leased().slot; }

  /// Adds `stream` to the consumers of the batch, unless it is one: work queued on it from now on
  /// sees the batch complete, and the slot is not overwritten before the work that it holds at the
  /// release is done. Does not block. Throws CudaError, and rejects the same streams as `next`.
  [[gnu::always_inline]] void also_used_on(StreamRef stream) const {
    detail::LeasedBatch& batch = leased();
    detail::also_use(*owner_, batch, detail::named(stream));
  }

  /// Ends the lease: work queued from now on may not use the batch. Does not block. If a CUDA call
  /// fails, the next call of next() throws the CudaError. Throws std::logic_error if a consumer's
  /// stream is being captured into a graph; the lease then continues.
  void release() {
    if (leased_ != nullptr) detail::release(owner_, leased_);
  }

 private:
  template <class, class>
  friend class Prefetcher;
  friend class StepGraph;
  Lease(detail::PipelineHandle owner, detail::LeasedBatch* leased)
      : owner_(std::move(owner)), leased_(leased) {}
  bool is_used_on(cudaStream_t stream) const { return detail::is_used_on(leased(), stream); }
  detail::LeasedBatch& leased() const {
    if (leased_ == nullptr) [[unlikely]]
      detail::throw_empty_lease();
    return *leased_;
  }

  detail::PipelineHandle owner_;
  detail::LeasedBatch* leased_ = nullptr;
};

/// Makes batches and copies them to the device ahead of the consumer. Any thread may call any
/// member. Threads that call `next` at the same time are served one after the other: each batch,
/// and each exception in place of a batch, goes to one of them; all of them are told the end, and a
/// stall each after its own wait. After
/// construction, `next` and the end of a lease allocate nothing, create no CUDA objects, and do not
/// block inside CUDA.
///
/// A process that was forked from the one that constructed a prefetcher may only destroy it and its
/// leases, which does nothing there: threads and CUDA do not survive a fork.
///
/// `Host` is the type that the source fills and that is copied to the device. If it is not `Batch`,
/// a DeviceTransform computes the `Batch` from it.
template <class Batch, class Host = Batch>
class Prefetcher {
 public:
  /// Allocates all pinned and device memory, for the current device, and starts the workers.
  /// `sampler` is SamplerOptions, or converts to AnySampler; `source` converts to AnySource<Host>.
  /// Both run on the workers; each worker has its own copy of the source. SamplerOptions become a
  /// Sampler, with the batch size of the layout if they have none. Throws std::invalid_argument,
  /// also for a sampler that continues a run behind its end (see PrefetcherOptions::epochs);
  /// PoolExhausted if pinned memory is over its limit or refused by the system; MemoryError if an
  /// upstream fails; std::system_error if a worker's thread cannot be started; CudaError.
  template <class AnySampler, class AnySource>
  Prefetcher(const Layout<Batch>& layout, AnySampler&& sampler, AnySource&& source,
             PrefetcherOptions options = {}) requires std::same_as<Batch, Host>
      : pipeline_(detail::make_prefetcher(
            layout.erased().for_source(), detail::as_sampler(std::forward<AnySampler>(sampler)),
            detail::as_source<Batch>(std::forward<AnySource>(source)).erased(), std::nullopt,
            std::move(options))) {}
  /// The same.
  template <class AnySource>
  Prefetcher(const Layout<Batch>& layout, SamplerOptions sampler, AnySource&& source,
             PrefetcherOptions options = {}) requires std::same_as<Batch, Host>
      : Prefetcher(layout, detail::make_sampler(sampler, layout.erased().for_source().batch_size()),
                   std::forward<AnySource>(source), std::move(options)) {}
  /// With a transform on the device; its layout is that of the slots, with the batch size of
  /// `layout` if it has none.
  template <class AnySampler, class AnySource>
  Prefetcher(const Layout<Host>& layout, AnySampler&& sampler, AnySource&& source,
             const DeviceTransform<Host, Batch>& transform, PrefetcherOptions options = {})
      : pipeline_(detail::make_prefetcher(
            layout.erased().for_source(), detail::as_sampler(std::forward<AnySampler>(sampler)),
            detail::as_source<Host>(std::forward<AnySource>(source)).erased(),
            transform.erased(layout.batch_size()), std::move(options))) {}
  /// The same.
  template <class AnySource>
  Prefetcher(const Layout<Host>& layout, SamplerOptions sampler, AnySource&& source,
             const DeviceTransform<Host, Batch>& transform, PrefetcherOptions options = {})
      : Prefetcher(layout, detail::make_sampler(sampler, layout.erased().for_source().batch_size()),
                   std::forward<AnySource>(source), transform, std::move(options)) {}
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  /// Requests stop from the sources, joins the workers, waits until no copy reads pinned memory,
  /// and frees everything. Device memory is freed with the last lease.
  ///
  /// Other threads may be inside its members when it begins: `next` returns an empty lease there,
  /// and the destructor waits until all have left. No call may begin meanwhile: to end a loop of
  /// another thread, call `stop` and join that thread first. Leases may end at any time.
  ///
  /// If a function that the pipeline has called (a source, a sampler, a transform) destroys it, it
  /// returns into the pipeline: memory and thread are leaked, and a line on stderr says so. If it
  /// calls std::exit while the pipeline is static, the process ends with that status.
  ~Prefetcher() { detail::close(pipeline_); }

  /// The next batch; work queued on `consumer` from now on sees it complete. The host waits until
  /// the batch's copy is issued, never for the copy itself. Returns an empty lease when all epochs
  /// are done, or the source has said that there is no more data. Throws SourceError,
  /// PoolExhausted or CudaError in place of a batch that failed; the next call returns the batch
  /// after it. A StallError loses no batch, nor does a CudaError of a call
  /// with which the pipeline copies a batch or ends a lease.
  ///
  /// `consumer` is any stream of the prefetcher's device: a created one, the legacy default stream,
  /// or cudaStreamPerThread (also as 0 in a source compiled for per-thread default streams). A
  /// default stream is that of the device that is current during this call. It has to exist until
  /// the end of the lease. Throws
  /// std::invalid_argument for a stream of another device; std::logic_error for one that is being
  /// captured into a graph, and if every slot waits for the end of a capture. Both leave the batch
  /// for the next call.
  [[gnu::always_inline]] Lease<Batch> next(StreamRef consumer) {
    return take(detail::named(consumer));
  }

  /// Ends the data: calls of `next`, those that wait now too, return empty leases, although batches
  /// are ready. Requests stop from the sources, and waits for nobody. Leases stay valid, `state` is
  /// the position behind the last batch that was delivered, and `restore` starts again. Any thread
  /// may call it, also a source.
  void stop() noexcept { detail::stop(*pipeline_); }

  /// The position after the last batch that next() delivered (or threw for). Batches that are ready
  /// but were not delivered will be filled again. Throws std::logic_error if `ordered` is false:
  /// there is no such position then.
  State state() const { return detail::state(*pipeline_); }
  /// Continues at `state`. The numbers of workers and the depths may differ from those of the run
  /// that `state` is from; at the start of an epoch, batch size and world size too. Leases stay
  /// valid. A call of `next` that waits on another thread goes on with what comes then. A state at
  /// the very end is that of a run that has finished: `next` returns an empty lease at once. Throws
  /// std::invalid_argument, and changes nothing, if `state` does not fit this run (see
  /// why_incompatible) or is behind its end (see PrefetcherOptions::epochs); std::logic_error if a
  /// source calls it, since it waits for the sources. Throws std::system_error if no thread can be
  /// started; `next` then returns empty leases until a `restore` succeeds.
  void restore(const State& state) { detail::restore(*pipeline_, state); }

  /// A snapshot of what each stage did since the construction. Any thread may call it; it does not
  /// wait for the device. It allocates: 50 KiB and more, for Stats::recent.
  Stats stats() const { return detail::stats(*pipeline_); }
  /// The first 256 failures that `on_failure` handled; stats() counts all of them.
  std::vector<Failure> failures() const { return detail::failures(*pipeline_); }

 private:
  Lease<Batch> take(cudaStream_t consumer) {
    detail::PipelineHandle owner;
    detail::LeasedBatch* const leased = detail::next(*pipeline_, consumer, owner);
    return Lease<Batch>(std::move(owner), leased);  // This object may be gone.
  }

  detail::PipelineHandle pipeline_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/pipeline/prefetcher.hpp>
#endif
