// SPDX-License-Identifier: Apache-2.0
//
// PENSTOCK_EMULATION="schedule=random,seed=7,devices=2,host_to_device=25e9": the options of a
// runtime that no reset has chosen.

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>

#include "process.hpp"

namespace penstock::emulation::detail {

namespace {

[[noreturn]] void reject(const std::string& why) {
  throw std::invalid_argument(why);
}

double parse_number(const std::string& key, const std::string& value) {
  std::istringstream in(value);
  double number = 0;
  std::string rest;
  if (!(in >> number) || number < 0) reject(key + "=" + value + ": not a number");
  in >> rest;
  if (rest == "K") return number * 1024;
  if (rest == "M") return number * 1024 * 1024;
  if (rest == "G") return number * 1024 * 1024 * 1024;
  if (!rest.empty()) reject(key + "=" + value + ": not a number");
  return number;
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
  const double number = parse_number(key, value);
  if (key == "seed") {
    options.seed = static_cast<std::uint64_t>(number);
  } else if (key == "devices") {
    machine.devices = static_cast<int>(number);
  } else if (key == "device_bytes") {
    machine.device_bytes = static_cast<std::size_t>(number);
  } else if (key == "pinned_bytes") {
    machine.pinned_bytes = static_cast<std::size_t>(number);
  } else if (key == "host_to_device") {
    machine.host_to_device = number;
  } else if (key == "device_to_host") {
    machine.device_to_host = number;
  } else if (key == "device_to_device") {
    machine.device_to_device = number;
  } else if (key == "pageable_share") {
    machine.pageable_share = number;
  } else if (key == "copy_engines") {
    machine.copy_engines = static_cast<int>(number);
  } else if (key == "launch_latency_ns") {
    machine.launch_latency = std::chrono::nanoseconds(static_cast<std::int64_t>(number));
  } else {
    reject("unknown option " + key);
  }
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
  if (machine.devices < 0 || machine.devices > 64) reject("devices: 0 to 64");
  if (machine.copy_engines < 1) reject("copy_engines: at least 1");
  if (machine.pageable_share <= 0 || machine.pageable_share > 1)
    reject("pageable_share: above 0, at most 1");
  if (machine.host_to_device < 0 || machine.device_to_host < 0 || machine.device_to_device < 0)
    reject("a rate is negative");
  if (machine.launch_latency.count() < 0) reject("launch_latency is negative");
}

Options options_from_environment() {
  const char* const text = std::getenv("PENSTOCK_EMULATION");  // NOLINT(concurrency-mt-unsafe)
  if (text == nullptr) return {};
  try {
    return parse_options(text);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "penstock: PENSTOCK_EMULATION: %s\n", error.what());
    std::fflush(stderr);
    std::_Exit(EXIT_FAILURE);  // Static destructors would wait for the lock that is held here.
  }
}

}  // namespace penstock::emulation::detail
