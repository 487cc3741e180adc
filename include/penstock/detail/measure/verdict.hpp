// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <penstock/verdict.hpp>

namespace penstock {

PENSTOCK_INLINE const char* to_string(Bottleneck bottleneck) {
  switch (bottleneck) {
    case Bottleneck::source:
      return "source";
    case Bottleneck::copy:
      return "copy";
    case Bottleneck::consumer:
      return "consumer";
    case Bottleneck::balanced:
      return "balanced";
  }
  return "unknown";
}

PENSTOCK_INLINE const char* to_string(VerdictKind kind) {
  switch (kind) {
    case VerdictKind::too_early:
      return "too_early";
    case VerdictKind::more_workers:
      return "more_workers";
    case VerdictKind::deeper_ring:
      return "deeper_ring";
    case VerdictKind::smaller_bytes:
      return "smaller_bytes";
    case VerdictKind::bus_bound:
      return "bus_bound";
    case VerdictKind::compute_bound:
      return "compute_bound";
    case VerdictKind::balanced:
      return "balanced";
  }
  return "unknown";
}

}  // namespace penstock
