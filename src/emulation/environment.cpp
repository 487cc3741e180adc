// SPDX-License-Identifier: Apache-2.0
//
// Reads the options of a runtime that no reset has configured from the environment, for example
// PENSTOCK_EMULATION="schedule=random,seed=7,devices=2,host_to_device=25e9".

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>

#include "process.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

constexpr int kMostDevices = 64, kMostEngines = 64;
constexpr std::size_t kMostBytes = std::size_t{1} << 44;  // a process can address 2^47
constexpr std::chrono::nanoseconds kLongest = std::chrono::minutes(1);
constexpr std::chrono::milliseconds kMostPatience = std::chrono::hours(24);

[[noreturn]] void reject(const std::string& why) {
  throw std::invalid_argument(why);
}

/// Parses a number such as "25e9", "1.5" or "4G".
double parse_number(const std::string& key, const std::string& value) {
  std::istringstream in(value);
  double number = 0;
  std::string rest;
  if (!(in >> number)) reject(key + "=" + value + ": not a number");
  in >> rest;
  if (rest == "K") return number * 1024;
  if (rest == "M") return number * 1024 * 1024;
  if (rest == "G") return number * 1024 * 1024 * 1024;
  if (!rest.empty()) reject(key + "=" + value + ": not a number");
  return number;
}

/// Parses a number without a fraction. A number of digits only is read exactly.
std::uint64_t parse_whole(const std::string& key, const std::string& value, std::uint64_t least,
                          std::uint64_t most) {
  const auto out_of_range = [&] {
    reject(key + "=" + value + ": a whole number from " + std::to_string(least) + " to " +
           std::to_string(most));
  };
  const char* const end = value.data() + value.size();
  std::uint64_t exact = 0;
  const auto [stop, problem] = std::from_chars(value.data(), end, exact);
  if (stop == end && !value.empty()) {
    if (problem != std::errc{} || exact < least || exact > most) out_of_range();
    return exact;
  }
  const double number = parse_number(key, value);
  constexpr double kTwoTo64 = 18446744073709551616.0;
  if (!(number >= 0 && number < kTwoTo64) || number != std::floor(number)) out_of_range();
  const auto whole = static_cast<std::uint64_t>(number);
  if (whole < least || whole > most) out_of_range();
  return whole;
}

Schedule parse_schedule(const std::string& value) {
  if (value == "eager") return Schedule::eager;
  if (value == "lazy") return Schedule::lazy;
  if (value == "random") return Schedule::random;
  reject("schedule=" + value + ": not eager, lazy or random");
}

void set(Options& options, const std::string& key, const std::string& value) {
  Machine& machine = options.machine;
  if (key == "schedule") {
    options.schedule = parse_schedule(value);
    return;
  }
  const auto whole = [&](std::uint64_t most) { return parse_whole(key, value, 0, most); };
  if (key == "seed") {
    options.seed = whole(std::numeric_limits<std::uint64_t>::max());
  } else if (key == "devices") {
    machine.devices = static_cast<int>(whole(kMostDevices));
  } else if (key == "device_bytes") {
    machine.device_bytes = whole(kMostBytes);
  } else if (key == "pinned_bytes") {
    machine.pinned_bytes = whole(kMostBytes);
  } else if (key == "host_to_device") {
    machine.host_to_device = parse_number(key, value);
  } else if (key == "device_to_host") {
    machine.device_to_host = parse_number(key, value);
  } else if (key == "device_to_device") {
    machine.device_to_device = parse_number(key, value);
  } else if (key == "pageable_share") {
    machine.pageable_share = parse_number(key, value);
  } else if (key == "copy_engines") {
    machine.copy_engines = static_cast<int>(parse_whole(key, value, 1, kMostEngines));
  } else if (key == "launch_latency_ns") {
    machine.launch_latency = std::chrono::nanoseconds(whole(kLongest.count()));
  } else if (key == "report_after_ms") {
    options.report_after = std::chrono::milliseconds(whole(kMostPatience.count()));
  } else {
    reject("unknown option " + key);
  }
}

/// Throws unless the value is between `least` and `most`. NaN is refused too.
template <class Number>
void require(const char* name, Number value, Number least, Number most, const char* range) {
  if (!(value >= least && value <= most))
    reject(std::string(name) + "=" + std::to_string(value) + ": " + range);
}

void require_rate(const char* name, double rate) {
  if (rate != 0) require(name, rate, 1.0, 1e15, "0 (no delay), or 1 to 1e15 bytes per second");
}

}  // namespace

Options parse_options(const std::string& text) {
  Options options;
  std::istringstream in(text);
  for (std::string item; std::getline(in, item, ',');) {
    if (item.empty()) continue;
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos) reject(item + ": not key=value");
    set(options, item.substr(0, equals), item.substr(equals + 1));
  }
  validate(options);
  return options;
}

void validate(const Options& options) {
  const Machine& machine = options.machine;
  using Duration = std::chrono::nanoseconds;
  require("devices", machine.devices, 0, int{kMostDevices}, "0 to 64");
  require("copy_engines", machine.copy_engines, 1, int{kMostEngines}, "1 to 64");
  require("device_bytes", machine.device_bytes, std::size_t{0}, kMostBytes, "at most 16384G");
  require("pinned_bytes", machine.pinned_bytes, std::size_t{0}, kMostBytes, "at most 16384G");
  require_rate("host_to_device", machine.host_to_device);
  require_rate("device_to_host", machine.device_to_host);
  require_rate("device_to_device", machine.device_to_device);
  require("pageable_share", machine.pageable_share, 1e-6, 1.0, "0.000001 to 1");
  require("launch_latency_ns", machine.launch_latency.count(), Duration::rep{0}, kLongest.count(),
          "at most a minute");
  require("report_after_ms", Duration(options.report_after).count(), Duration::rep{0},
          Duration(kMostPatience).count(), "at most a day; 0: never");
}

Options options_from_environment() {
  const char* const text = std::getenv("PENSTOCK_EMULATION");  // NOLINT(concurrency-mt-unsafe)
  if (text == nullptr) return {};
  try {
    return parse_options(text);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "penstock: PENSTOCK_EMULATION: %s\n", error.what());
    std::fflush(stderr);
    // exit() would run static destructors, which would wait for the lock that is held here.
    std::_Exit(EXIT_FAILURE);
  }
}

}  // namespace penstock::emulation::detail
