// SPDX-License-Identifier: Apache-2.0
#pragma once

// Figures with a unit that suits them, for people: "12.3 us", "4.56 ms", "24.1 GB/s", "3.2 %".

#include <penstock/trace/timeline.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::trace::detail {

/// Three significant digits, in ns, us, ms or s.
std::string in_time(Time time);
/// In B, KiB, MiB or GiB.
std::string in_bytes(std::uint64_t bytes);
/// Of bytes a second, in MB/s or GB/s.
std::string in_rate(double rate);
/// Of a part of 1.
std::string in_percent(double part);

/// "1 copy", "12 copies".
std::string counted(std::uint64_t count, std::string_view one, std::string_view many);

/// part / whole; 0 of nothing.
double ratio(double part, double whole);
double ratio(Time part, Time whole);

}  // namespace penstock::trace::detail
