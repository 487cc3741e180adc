// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <penstock/detail/escaped.hpp>
#include <penstock/store.hpp>

namespace penstock::inline PENSTOCK_ABI {

PENSTOCK_INLINE StoreError::StoreError(std::string_view store, const std::filesystem::path& file,
                                       const std::string& why, std::optional<std::uint64_t> sample)
    : std::runtime_error(detail::escaped(std::string(store) + ": " + file.string() + ": " + why)),
      file_(file),
      sample_(sample) {}

}  // namespace penstock
