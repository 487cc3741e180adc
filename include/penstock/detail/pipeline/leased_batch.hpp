// SPDX-License-Identifier: Apache-2.0
#pragma once

// LeasedBatch: what a Lease reads of its batch. All but the slot is one cache line.

#include <cstddef>
#include <cstdint>
#include <penstock/source.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

struct LeasedBatch {
  const void* batch = nullptr;
  Ticket ticket;
  std::int64_t rows = 0;
  std::size_t slot = 0;
};

}  // namespace penstock::detail
