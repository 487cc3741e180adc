// SPDX-License-Identifier: Apache-2.0
#pragma once

// The command line of `prepare`. Exit statuses: 2 for what the user can put right, 1 for what went
// wrong besides, 128 + the signal's number after Ctrl-C.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "../ops/ops.hpp"
#include "quantisation.hpp"

namespace resnet {

struct PrepareOptions {
  std::filesystem::path weights, out;
  std::string model = "resnet18";
  std::int32_t image_size = 0;  ///< 0: 224, or 32 for the CIFAR-style networks
  Precision precision = Precision::fp16;
  std::optional<Format> format;  ///< none: nhwc, but for fp32
  Fusion fusion = Fusion::full;
  std::vector<std::int64_t> batches = {1, 16, 128};
  PlanChoice plans = PlanChoice::timed;
  CalibrationMethod calibration = CalibrationMethod::entropy;
  std::uint64_t calibration_images = 512;
  std::uint64_t check_images = 1000;  ///< 0: nothing is compared
  std::filesystem::path data, cache;
  std::uint64_t records = 50'000, test_records = 10'000;  ///< of the made-up set, without `data`
};

/// Fills in what the command line says. Returns the exit status where the program is to end now
/// (help, or a mistake, which is told).
std::optional<int> parse(int argc, char** argv, PrepareOptions& options);

}  // namespace resnet
