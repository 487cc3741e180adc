// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <penstock/detail/launchers.hpp>
#include <penstock/ranks.hpp>

namespace penstock {

PENSTOCK_INLINE Ranks Ranks::from_environment() {
  return detail::read_ranks([](const char* name) {
    return std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  });
}

}  // namespace penstock
