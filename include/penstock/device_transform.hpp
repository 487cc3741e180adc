// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeviceTransform: computes the consumer's batch from the copied one, on the device. So compact
// data are copied (bytes, records, indices), and the consumer's kernels get the data that they
// need:
//
//   struct Augment {  // draws from the seed in its record: the source wrote Sample::seed there
//     Records records;
//     Images images;
//     __host__ __device__ void operator()(std::int64_t row) const { ... }
//   };
//   penstock::Prefetcher<Images, Records> prefetcher{
//       records_layout, sampler, read_records,
//       {images_layout, [](const penstock::Ticket&, const Records& records, Images& images,
//                          cudaStream_t stream) {
//          penstock::for_each(stream, records.bytes.extent(0), Augment{records, images});
//        }},
//       {.workers = 8}};
//   while (auto images = prefetcher.next(stream)) ...       // penstock::Lease<Images>
//
// The transform's work runs in the copy stream, concurrently with the consumer's streams. Like a
// copy, it writes a slot only after the slot's last readers. All batches are copied into one device
// buffer of the host layout's size, from which the transform reads: the copy stream processes them
// one after the other.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <penstock/layout.hpp>
#include <penstock/source.hpp>
#include <stdexcept>
#include <utility>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {

/// A type-erased DeviceTransform: the layout of the slots, and the function that fills them.
struct ErasedTransform {
  BlockLayout layout;
  std::function<void(const Ticket&, const void* host, void* batch, cudaStream_t)> apply;
};

}  // namespace detail

/// Turns a `Host`, which the source fills, into a `Batch`, which the consumer gets.
template <class Host, class Batch>
class DeviceTransform {
 public:
  /// Queues all work on the two batches on the stream, and returns: it must not block or
  /// synchronise. `host` has the values that the source wrote; its tensors point to device memory.
  /// `batch` is bound to a device slot, with as many samples as `host` (layout().resize changes
  /// that); members that are not fields have their defaults. Runs on one thread at a time: a
  /// worker, or a thread that ends a lease or calls next. The prefetcher's device is current. The
  /// ticket is valid during the call.
  ///
  /// If it throws, or a launch in it fails and nothing checks that, next() throws a SourceError in
  /// the batch's place, with the original exception nested.
  using Function = std::function<void(const Ticket&, const Host&, Batch&, cudaStream_t)>;

  /// Where `layout` has no batch size (`penstock::Layout<Batch>()`), it has that of the
  /// Prefetcher's host layout. Throws std::invalid_argument for an empty function.
  DeviceTransform(Layout<Batch> layout, Function function)
      : layout_(std::move(layout)), function_(std::move(function)) {
    if (!function_) throw std::invalid_argument("DeviceTransform: the function is empty");
  }

  /// The layout of the device slots.
  const Layout<Batch>& layout() const noexcept { return layout_; }

  /// Calls the function. A Prefetcher does this for each batch.
  void operator()(const Ticket& ticket, const Host& host, Batch& batch, cudaStream_t stream) const {
    function_(ticket, host, batch, stream);
  }

  /// The same transform, type-erased, for host batches of so many samples.
  detail::ErasedTransform erased(std::int64_t batch_size) const {
    return {layout_.erased().for_slots(batch_size),
            [function = function_](const Ticket& ticket, const void* host, void* batch,
                                   cudaStream_t stream) {
              function(ticket, *static_cast<const Host*>(host), *static_cast<Batch*>(batch),
                       stream);
            }};
  }

 private:
  Layout<Batch> layout_;
  Function function_;
};

}  // namespace penstock
