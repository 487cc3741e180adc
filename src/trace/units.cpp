// SPDX-License-Identifier: Apache-2.0
#include "units.hpp"

#include <array>
#include <cmath>
#include <cstdio>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

/// Returns three significant digits, at most two of them after the point.
std::string three_digits(double value) {
  const double size = std::abs(value);
  std::array<char, 32> text{};
  const int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

}  // namespace

std::string in_time(Time time) {
  const auto value = static_cast<double>(time);
  const double size = std::abs(value);
  if (size < 1e3) return std::to_string(time) + " ns";
  if (size < 999.5e3) return three_digits(value / 1e3) + " us";
  if (size < 999.5e6) return three_digits(value / 1e6) + " ms";
  return three_digits(value / 1e9) + " s";
}

std::string in_bytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 4> kUnits = {" KiB", " MiB", " GiB", " TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  auto value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return three_digits(value) + kUnits[unit];
}

std::string in_rate(double rate) {
  return rate < 999.5e6 ? three_digits(rate / 1e6) + " MB/s" : three_digits(rate / 1e9) + " GB/s";
}

std::string in_percent(double part) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %%", part * 100);
  return text.data();
}

std::string counted(std::uint64_t count, std::string_view one, std::string_view many) {
  return std::to_string(count).append(" ").append(count == 1 ? one : many);
}

double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}
double ratio(Time part, Time whole) {
  return ratio(static_cast<double>(part), static_cast<double>(whole));
}

}  // namespace penstock::trace::detail
