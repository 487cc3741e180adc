// SPDX-License-Identifier: Apache-2.0

// How busy video engines were, by functions that take the place of NVML's.

#include "engine_use.hpp"

#include <string>

#include "support/catch.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {
namespace {

constexpr std::int64_t kWallClock = 1'000'000'000'000;  // nanoseconds
unsigned long long asked_after = 0;

int find_device(const char* bus, nvml::Device* device) {
  static int known = 0;
  *device = &known;
  return std::string(bus) == "0000:0f:00.0" ? nvml::kSuccess : 6;
}

/// Three samples, in no order. The first one is from before the recording.
int give_samples(nvml::Device, int kind, unsigned long long after_us, int* values, unsigned* count,
                 nvml::Sample* samples) {
  if (kind != nvml::kDecoderSamples) return 2;
  asked_after = after_us;
  *values = nvml::kIntegers;
  if (samples == nullptr) {
    *count = 120;
    return nvml::kSuccess;
  }
  *count = 3;
  const unsigned long long base = kWallClock / 1000;
  samples[0].time = base + 1;
  samples[0].value.integer = 50;
  samples[1].time = base + 900;
  samples[1].value.integer = 96;
  samples[2].time = base + 400;
  samples[2].value.integer = 13;
  return nvml::kSuccess;
}

int has_none(nvml::Device, int, unsigned long long, int*, unsigned*, nvml::Sample*) {
  return 6;  // NVML_ERROR_NOT_FOUND
}

TEST_CASE("engine use: the driver's samples lie where the recording's clock has them", "[trace]") {
  const nvml::Library library{.nvmlInit_v2 = nullptr,
                              .nvmlDeviceGetHandleByPciBusId_v2 = find_device,
                              .nvmlDeviceGetDecoderUtilization = nullptr,
                              .nvmlDeviceGetSamples = give_samples,
                              .nvmlErrorString = nullptr};
  const auto all = engine_use(library, "0000:0f:00.0", 2, 100'000, 950'000, kWallClock);
  CHECK(asked_after == kWallClock / 1000 + 99);
  REQUIRE(all.size() == 2);
  CHECK(all[0].time == 400'000);
  CHECK(all[0].percent == 13);
  CHECK(all[1].time == 900'000);
  CHECK(all[1].percent == 96);
  CHECK(all[1].device == 2);
  CHECK(engine_use(library, "0000:10:00.0", 2, 100'000, 950'000, kWallClock).empty());
}

TEST_CASE("engine use: a driver without samples has none", "[trace]") {
  const nvml::Library library{.nvmlInit_v2 = nullptr,
                              .nvmlDeviceGetHandleByPciBusId_v2 = find_device,
                              .nvmlDeviceGetDecoderUtilization = nullptr,
                              .nvmlDeviceGetSamples = has_none,
                              .nvmlErrorString = nullptr};
  CHECK(engine_use(library, "0000:0f:00.0", 0, 0, 950'000, kWallClock).empty());
  CHECK(engine_use(Timeline{}, [](int) { return std::string(); }).empty());
}

}  // namespace
}  // namespace penstock::trace::detail
