// SPDX-License-Identifier: Apache-2.0
#pragma once

// TarGlobals: what the global headers of pax in a tar say about the members behind them.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <penstock/detail/storage/tar_format.hpp>
#include <string>
#include <vector>

namespace penstock::detail {

struct TarGlobal {
  std::uint64_t from = 0;  // what is behind this byte of the tar
  std::string path;        // empty: nothing
  std::optional<std::uint64_t> size;
};

class TarGlobals {
 public:
  /// A header at byte `at`, which is behind those before. What it does not say stays as it was.
  void add(std::uint64_t at, const PaxHeader& pax) {
    if (!pax.path && !pax.size) return;
    TarGlobal next = all_.empty() ? TarGlobal{} : all_.back();
    next.from = at;
    if (pax.path) next.path = *pax.path;
    if (pax.size) next.size = pax.size;
    all_.push_back(std::move(next));
  }

  /// What counts for a member whose header is at byte `at`. Does not allocate.
  const TarGlobal& at(std::uint64_t at) const {
    static const TarGlobal nothing;
    const auto after =
        std::upper_bound(all_.begin(), all_.end(), at,
                         [](std::uint64_t byte, const TarGlobal& one) { return byte < one.from; });
    return after == all_.begin() ? nothing : *(after - 1);
  }

 private:
  std::vector<TarGlobal> all_;  // in the order of their places
};

}  // namespace penstock::detail
