// SPDX-License-Identifier: Apache-2.0
#pragma once

// RequestRanges: shows requests on a profiler's timeline, as NVTX ranges that start and end, since
// requests overlap. Their names are what is asked for, without the host and the query:
//
//   GET /train/0001.jpg 0-131071     the bytes of a range; none: the whole object
//   GET retry /train/0001.jpg ...    asked for again
//   GET hedge /train/0001.jpg ...    asked for a second time, while the first request goes on
//
// penstock::trace gives each range of penstock's that starts and ends a lane, and sums them by what
// is before the path. Without a profiler a range costs a comparison at its begin and one at its
// end. With PENSTOCK_DISABLE_NVTX there is nothing.

#include <cstddef>
#include <cstdint>
#include <penstock/markers.hpp>

#include "part.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

#if defined(PENSTOCK_DISABLE_NVTX) || defined(NVTX_DISABLE)

class RequestRanges {
 public:
  std::uint64_t begin(const Part&, std::size_t, std::size_t, bool) const noexcept { return 0; }
  void end(std::uint64_t) const noexcept {}
};

#else

class RequestRanges {
 public:
  RequestRanges() noexcept;

  /// A request begins for `bytes` bytes of the part, from `from` on, counted in its target. Returns
  /// what end() takes.
  std::uint64_t begin(const Part& part, std::size_t from, std::size_t bytes,
                      bool is_hedge) const noexcept {
    return first_.domain == nullptr ? 0 : start(part, from, bytes, is_hedge);
  }
  void end(std::uint64_t range) const noexcept {
    if (range != 0) stop(range);
  }

 private:
  std::uint64_t start(const Part& part, std::size_t from, std::size_t bytes,
                      bool is_hedge) const noexcept;
  void stop(std::uint64_t range) const noexcept;

  const penstock::detail::Marker first_, retry_, hedge_;
};

#endif

}  // namespace penstock::remote
