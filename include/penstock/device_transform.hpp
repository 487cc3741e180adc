// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeviceTransform: what a prefetcher does to a batch on the device, between the copy and the
// consumer. Small data cross the bus (bytes, records, indices), and the consumer's kernels get what
// they compute with:
//
//   penstock::Prefetcher<Images, Records> prefetcher{
//       records_layout, sampler, read_records,
//       {images_layout, [](const penstock::Ticket& ticket, const Records& records, Images& images,
//                          cudaStream_t stream) {
//          augment<<<blocks, 256, 0, stream>>>(records, images, ticket.seed);
//        }},
//       {.workers = 8}};
//   while (auto images = prefetcher.next(stream)) ...       // penstock::Lease<Images>
//
// The transform's work runs in the copy stream, beside the consumer's, and recycles memory as a
// copy does: it may write a slot only after the slot's last readers. All batches pass through one
// buffer of the host layout's size, since the copy stream takes one after the other.

#include <cuda_runtime_api.h>

#include <functional>
#include <penstock/layout.hpp>
#include <penstock/source.hpp>
#include <stdexcept>
#include <utility>

namespace penstock {

namespace detail {

/// A DeviceTransform without its types: the layout of the slots, and what makes their batches.
struct ErasedTransform {
  BlockLayout layout;
  std::function<void(const Ticket&, const void* host, void* batch, cudaStream_t)> apply;
};

}  // namespace detail

/// From `Host`, as the source filled it, to `Batch`, as the consumer gets it.
template <class Host, class Batch>
class DeviceTransform {
 public:
  /// Queues work on the stream and returns; everything that touches the two batches goes there.
  /// Does not block and does not synchronise. `host` has what the source wrote, its tensors on the
  /// device; `batch` is bound to a device slot, with as many samples as `host` (layout().resize
  /// says otherwise) and defaults for what is no field. Runs on one thread at a time: a worker, or
  /// one that ends a lease or calls next; the prefetcher's device is current. The ticket is valid
  /// during the call. An exception takes the batch's place at next().
  using Function = std::function<void(const Ticket&, const Host&, Batch&, cudaStream_t)>;

  /// Throws std::invalid_argument for an empty function.
  DeviceTransform(Layout<Batch> layout, Function function)
      : layout_(std::move(layout)), function_(std::move(function)) {
    if (!function_) throw std::invalid_argument("DeviceTransform: the function is empty");
  }

  /// Of the device slots.
  const Layout<Batch>& layout() const noexcept { return layout_; }

  void operator()(const Ticket& ticket, const Host& host, Batch& batch, cudaStream_t stream) const {
    function_(ticket, host, batch, stream);
  }

  /// The same transform for the parts of penstock that know neither type.
  detail::ErasedTransform erased() const {
    return {layout_.erased(), [function = function_](const Ticket& ticket, const void* host,
                                                     void* batch, cudaStream_t stream) {
              function(ticket, *static_cast<const Host*>(host), *static_cast<Batch*>(batch),
                       stream);
            }};
  }

 private:
  Layout<Batch> layout_;
  Function function_;
};

}  // namespace penstock
