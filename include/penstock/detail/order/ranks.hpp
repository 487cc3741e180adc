// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <functional>
#include <penstock/detail/launchers.hpp>
#include <penstock/ranks.hpp>

namespace penstock::inline PENSTOCK_ABI {
namespace detail {

// In header-only mode this is declared again, if launchers.hpp was included before.
// NOLINTNEXTLINE(readability-redundant-declaration)
inline Ranks read_ranks(const std::function<const char*(const char*)>& lookup);

}  // namespace detail

PENSTOCK_INLINE Ranks Ranks::from_environment() {
  return detail::read_ranks([](const char* name) {
    return std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  });
}

}  // namespace penstock
