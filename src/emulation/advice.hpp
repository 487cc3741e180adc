// SPDX-License-Identifier: Apache-2.0
#pragma once

// The advice of the program about the pages of managed memory, and the place to which it prefetched
// them. Nothing is moved here; the program can query the values. Use it with the runtime's lock
// held.

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <penstock/version.hpp>
#include <set>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

/// A device, the host, or a NUMA node of the host's memory; by default none of them.
struct PageLocation {
  cudaMemLocationType type = cudaMemLocationTypeInvalid;
  int id = cudaInvalidDeviceId;  ///< of a device or a node; 0 for the host

  auto operator<=>(const PageLocation&) const = default;
  /// The device, or cudaCpuDeviceId, or cudaInvalidDeviceId.
  int device() const;
};

struct PageAdvice {
  bool read_mostly = false;
  PageLocation preferred{};
  PageLocation prefetched{};  ///< where the last prefetch went
  std::set<int> accessed_by;  ///< devices, and cudaCpuDeviceId

  bool operator==(const PageAdvice&) const = default;
};

class Advice {
 public:
  /// Calls `change(advice)` for all pages that the bytes touch.
  template <class Change>
  void change(const void* data, std::size_t bytes, Change change) {
    const Pages pages = pages_of(data, bytes);
    const auto end = split(pages.end);
    for (auto run = split(pages.begin); run != end; ++run) change(run->second);
    merge(pages);
  }
  /// Call it when the memory is freed.
  void forget(const void* data, std::size_t bytes) {
    change(data, bytes, [](PageAdvice& advice) { advice = PageAdvice{}; });
  }
  /// Returns one entry for each run of pages with the same advice; at least one.
  std::vector<const PageAdvice*> of(const void* data, std::size_t bytes) const;

 private:
  struct Pages {
    std::uintptr_t begin, end;
  };
  using Runs = std::map<std::uintptr_t, PageAdvice>;
  static Pages pages_of(const void* data, std::size_t bytes);
  Runs::iterator split(std::uintptr_t address);
  void merge(Pages pages);

  Runs runs_{{0, {}}};  // by first address; each ends where the next one begins
};

}  // namespace penstock::emulation::detail
