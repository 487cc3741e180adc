// SPDX-License-Identifier: Apache-2.0
#pragma once

// Formats figures with a suitable unit for people: "12.3 us", "4.56 ms", "24.1 GB/s", "3.2 %".

#include <penstock/trace/timeline.hpp>
#include <penstock/version.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// Returns three significant digits, in ns, us, ms or s.
std::string in_time(Time time);
/// Returns the bytes in B, KiB, MiB or GiB.
std::string in_bytes(std::uint64_t bytes);
/// Returns a rate in bytes per second in MB/s or GB/s.
std::string in_rate(double rate);
/// Returns a fraction in per cent.
std::string in_percent(double part);

/// Returns "1 copy" or "12 copies", for example.
std::string counted(std::uint64_t count, std::string_view one, std::string_view many);

/// Returns part / whole, or 0 if the whole is 0.
double ratio(double part, double whole);
double ratio(Time part, Time whole);

}  // namespace penstock::trace::detail
