// SPDX-License-Identifier: Apache-2.0
//
// Calls about the location of the pages of managed memory. Host and devices share the memory here,
// so nothing moves: the runtime only stores what the program said, for later queries.

#include <algorithm>
#include <vector>

#include "seam.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

/// Whether the bytes are managed memory of one allocation.
bool managed(const Call& call, const void* data, std::size_t bytes) {
  const Range range = call.runtime.memory.classify(data, bytes);
  return bytes != 0 && range.valid && range.allocation != nullptr && range.allocation->managed;
}

cudaError_t set(const Call& call, PageAdvice& advice, cudaMemoryAdvise what,
                const cudaMemLocation& asked) {
  PageLocation location;
  if (what == cudaMemAdviseSetPreferredLocation || what == cudaMemAdviseSetAccessedBy ||
      what == cudaMemAdviseUnsetAccessedBy)  // The other kinds of advice have no location.
    if (const cudaError_t status = call.runtime.find_location(asked, location);
        status != cudaSuccess)
      return status;
  const bool of_processor =
      asked.type == cudaMemLocationTypeDevice || asked.type == cudaMemLocationTypeHost;
  switch (what) {
    case cudaMemAdviseSetReadMostly:
    case cudaMemAdviseUnsetReadMostly:
      advice.read_mostly = what == cudaMemAdviseSetReadMostly;
      return cudaSuccess;
    case cudaMemAdviseSetPreferredLocation:
    case cudaMemAdviseUnsetPreferredLocation:
      advice.preferred = location;
      return cudaSuccess;
    case cudaMemAdviseSetAccessedBy:
      if (!of_processor) return cudaErrorInvalidValue;
      advice.accessed_by.insert(location.device());
      return cudaSuccess;
    case cudaMemAdviseUnsetAccessedBy:
      if (!of_processor) return cudaErrorInvalidValue;
      advice.accessed_by.erase(location.device());
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}

using Runs = std::vector<const PageAdvice*>;

/// Returns the value that all pages have in common, or `none` if they differ.
template <class Value, class Of>
Value common(const Runs& runs, Value none, Of of) {
  const Value first = of(*runs.front());
  const bool same = std::all_of(runs.begin(), runs.end(),
                                [&](const PageAdvice* run) { return of(*run) == first; });
  return same ? first : none;
}

/// Lists the devices that are advised to access every page. cudaInvalidDeviceId fills the other
/// entries.
void list_accessors(const Runs& runs, int* list, std::size_t room) {
  std::size_t count = 0;
  for (const int device : runs.front()->accessed_by) {
    const bool all = std::all_of(runs.begin(), runs.end(), [&](const PageAdvice* run) {
      return run->accessed_by.contains(device);
    });
    if (all && count < room) list[count++] = device;
  }
  std::fill(list + count, list + room, cudaInvalidDeviceId);
}

cudaError_t get(const Runs& runs, cudaMemRangeAttribute attribute, void* result, std::size_t size) {
  if (result == nullptr || size == 0 || size % sizeof(int) != 0) return cudaErrorInvalidValue;
  if (attribute == cudaMemRangeAttributeAccessedBy) {
    list_accessors(runs, static_cast<int*>(result), size / sizeof(int));
    return cudaSuccess;
  }
  if (size != sizeof(int)) return cudaErrorInvalidValue;
  const auto preferred = [](const PageAdvice& page) { return page.preferred; };
  const auto prefetched = [](const PageAdvice& page) { return page.prefetched; };
  int& number = *static_cast<int*>(result);
  switch (attribute) {
    case cudaMemRangeAttributeReadMostly:
      number = static_cast<int>(
          common(runs, false, [](const PageAdvice& page) { return page.read_mostly; }));
      return cudaSuccess;
    case cudaMemRangeAttributePreferredLocation:
      number = common(runs, cudaInvalidDeviceId,
                      [](const PageAdvice& page) { return page.preferred.device(); });
      return cudaSuccess;
    case cudaMemRangeAttributePreferredLocationType:
      number = common(runs, PageLocation{}, preferred).type;
      return cudaSuccess;
    case cudaMemRangeAttributePreferredLocationId:
      number = common(runs, PageLocation{}, preferred).id;
      return cudaSuccess;
    case cudaMemRangeAttributeLastPrefetchLocation:
      number = common(runs, cudaInvalidDeviceId,
                      [](const PageAdvice& page) { return page.prefetched.device(); });
      return cudaSuccess;
    case cudaMemRangeAttributeLastPrefetchLocationType:
      number = common(runs, PageLocation{}, prefetched).type;
      return cudaSuccess;
    case cudaMemRangeAttributeLastPrefetchLocationId:
      number = common(runs, PageLocation{}, prefetched).id;
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t advise(const void* data, std::size_t bytes, cudaMemoryAdvise advice,
                   cudaMemLocation location) {
  return enter(Function::cudaMemAdvise, [&](Call& call) {
    if (!managed(call, data, bytes)) return cudaErrorInvalidValue;
    PageAdvice tried;
    const cudaError_t status = set(call, tried, advice, location);
    // Driver 580 returns this for a device that does not exist. A prefetch returns the other error.
    if (status == cudaErrorInvalidDevice) return cudaErrorInvalidValue;
    if (status != cudaSuccess) return status;
    call.runtime.memory.advice().change(
        data, bytes, [&](PageAdvice& pages) { set(call, pages, advice, location); });
    return cudaSuccess;
  });
}

cudaError_t prefetch(const void* data, std::size_t bytes, cudaMemLocation asked, unsigned flags,
                     cudaStream_t handle) {
  return enter(Function::cudaMemPrefetchAsync, [&](Call& call) {
    Stream* stream = nullptr;
    cudaError_t status = call.find(handle, &stream);
    if (status != cudaSuccess) return status;
    if (flags != 0 || !managed(call, data, bytes)) return cudaErrorInvalidValue;
    PageLocation location;
    status = call.runtime.find_location(asked, location);
    if (status != cudaSuccess) return status;
    // A graph has no prefetch nodes.
    if (stream->capture != nullptr) return call.runtime.captures.admit_wait(*stream);
    status = call.submit(*stream, GraphWork{});
    if (status != cudaSuccess) return status;
    // CUDA's query does not tell "whether the prefetch operation has completed or even begun".
    call.runtime.memory.advice().change(data, bytes,
                                        [&](PageAdvice& pages) { pages.prefetched = location; });
    return cudaSuccess;
  });
}

}  // namespace penstock::emulation::detail

using namespace penstock::emulation::detail;  // NOLINT: this file defines the functions of CUDA.

extern "C" {

cudaError_t cudaMemRangeGetAttribute(void* result, std::size_t size,
                                     cudaMemRangeAttribute attribute, const void* data,
                                     std::size_t bytes) {
  return enter(Function::cudaMemRangeGetAttribute, [&](Call& call) {
    if (!managed(call, data, bytes)) return cudaErrorInvalidValue;
    return get(call.runtime.memory.advice().of(data, bytes), attribute, result, size);
  });
}

cudaError_t cudaMemRangeGetAttributes(void** results, std::size_t* sizes,
                                      cudaMemRangeAttribute* attributes, std::size_t count,
                                      const void* data, std::size_t bytes) {
  return enter(Function::cudaMemRangeGetAttributes, [&](Call& call) {
    if (results == nullptr || sizes == nullptr || attributes == nullptr || count == 0 ||
        !managed(call, data, bytes))
      return cudaErrorInvalidValue;
    const Runs runs = call.runtime.memory.advice().of(data, bytes);
    for (std::size_t i = 0; i < count; ++i)
      if (const cudaError_t status = get(runs, attributes[i], results[i], sizes[i]);
          status != cudaSuccess)
        return status;
    return cudaSuccess;
  });
}

}  // extern "C"
