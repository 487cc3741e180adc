// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <penstock/ragged.hpp>

namespace penstock::detail {

/// What was assigned so far to a ragged field of a batch. Lies in the batch's pinned block, behind
/// all that is copied, with a RaggedRow for each row of a full batch behind it. Workers share it
/// through atomic_ref; what orders it before finish() is the producer's business.
struct RaggedFill {
  static constexpr std::int64_t kUnassigned = -1, kBeingAssigned = -2;  // as a row's begin

  RaggedRow* rows() { return reinterpret_cast<RaggedRow*>(this + 1); }
  static std::size_t bytes(std::int64_t rows) {
    return sizeof(RaggedFill) + static_cast<std::size_t>(rows) * sizeof(RaggedRow);
  }

  std::int64_t used;  ///< values
  const char* name;   ///< of the field
};

}  // namespace penstock::detail
