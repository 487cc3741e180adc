// SPDX-License-Identifier: Apache-2.0

#include <penstock/detail/pipeline/require_count.hpp>
#include <stdexcept>
#include <string>

#include "support/catch.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::detail {
namespace {

using test::Mentions;
using test::thrown;

TEST_CASE("depths are from the least to 2^20", "[require_count]") {
  CHECK_NOTHROW(require_depth("depth", 2, 2));
  CHECK_NOTHROW(require_depth("depth", 1 << 20, 2));
  for (const int depth : {1, (1 << 20) + 1})
    CHECK_THAT(thrown<std::invalid_argument>(
                   [&] { require_depth("depth", static_cast<std::size_t>(depth), 2); }),
               Mentions("depth is " + std::to_string(depth) + " batches, must be 2 to 1048576"));
}

TEST_CASE("workers are from 0 to 2^16", "[require_count]") {
  CHECK_NOTHROW(require_workers("workers", 0, "all cores"));
  CHECK_NOTHROW(require_workers("workers", 1 << 16, "all cores"));
  for (const int workers : {-1, (1 << 16) + 1})
    CHECK_THAT(
        thrown<std::invalid_argument>([&] { require_workers("workers", workers, "all cores"); }),
        Mentions("workers is " + std::to_string(workers) +
                 ", must be 1 to 65536 (or 0, for all cores)"));
}

}  // namespace
}  // namespace penstock::detail
