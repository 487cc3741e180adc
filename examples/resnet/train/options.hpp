// SPDX-License-Identifier: Apache-2.0
#pragma once

// The command line of the rungs and of `train`.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "../ops/ops.hpp"

namespace resnet {

struct Options {
  std::string model;            ///< empty: resnet18, or resnet8 on the reference operations
  std::int32_t image_size = 0;  ///< 0: 224, or 32 on the reference operations
  std::int64_t batch = 0;       ///< 0: the rung's own
  std::int64_t steps = 20, warmup = 5;
  std::uint64_t seed = 1;
  int workers = 8;
  std::optional<Precision> precision;  ///< none: the rung's own
  bool exhaustive = false;             ///< autotuning times every plan
  bool synthetic = false;              ///< one batch, on the device from the start
  std::filesystem::path data, cache = std::filesystem::temp_directory_path();
  std::uint64_t records = 50'000;  ///< of the made-up set, without `data`
  std::filesystem::path save, load, json;
  std::int64_t profile_start = -1, profile_count = 0;  ///< -1: the measured steps
};

/// Fills in what the command line says. Returns the exit status where the program is to end now
/// (help, or a mistake, which is told).
std::optional<int> parse(int argc, char** argv, const std::string& about, Options& options);

std::string to_string(Precision precision);

}  // namespace resnet
