// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions of the emulated runtime by number, with their names and traits (functions.def).

#include <cuda_runtime_api.h>  // Some names are macros there: the enumerators are the same everywhere.

#include <array>
#include <cstddef>
#include <optional>
#include <penstock/version.hpp>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace traits {
enum : unsigned {
  allocating = 1,
  creating = 2,
  blocking = 4,
  launching = 8,
  unsafe = 16,
  stateless = 32,
  releasing = 64,
  infallible = 128,
  inherited = 256,
};
}  // namespace traits

enum class Function : unsigned {
#define FUNCTION(name, traits) name,
#include "functions.def"
#undef FUNCTION
};

struct FunctionFacts {
  const char* name;
  unsigned traits;
};

namespace traits {  // whose names functions.def uses
inline constexpr FunctionFacts kFunctions[] = {
#define FUNCTION(name, traits) {#name, traits},
#include "functions.def"
#undef FUNCTION
};
}  // namespace traits

inline constexpr std::size_t kFunctionCount = std::size(traits::kFunctions);

constexpr const FunctionFacts& facts(Function function) {
  return traits::kFunctions[static_cast<std::size_t>(function)];
}

/// The function called `name`; empty when the runtime has none.
inline std::optional<Function> find_function(std::string_view name) {
  for (std::size_t i = 0; i < kFunctionCount; ++i)
    if (name == traits::kFunctions[i].name) return static_cast<Function>(i);
  return {};
}

}  // namespace penstock::emulation::detail
