// SPDX-License-Identifier: Apache-2.0
#pragma once

// Formats times and sizes as text for people.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iomanip>
#include <penstock/version.hpp>
#include <sstream>
#include <string>

namespace penstock::inline PENSTOCK_ABI::detail {

inline std::string with_unit(double value, int decimals, const char* unit) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(decimals) << value << ' ' << unit;
  return text.str();
}

inline std::string in_seconds(std::chrono::nanoseconds time) {
  return with_unit(std::chrono::duration<double>(time).count(), 3, "s");
}
inline std::string in_milliseconds(std::chrono::nanoseconds time) {
  return with_unit(std::chrono::duration<double, std::milli>(time).count(), 2, "ms");
}

inline std::string in_bytes(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return with_unit(value, unit == 0 ? 0 : 1, kUnits[unit]);
}

}  // namespace penstock::detail
