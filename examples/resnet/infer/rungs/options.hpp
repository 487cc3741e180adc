// SPDX-License-Identifier: Apache-2.0
#pragma once

// The command line of the rungs for inference. Exit statuses are those of the training rungs: 2 for
// what the user can put right, 1 for what went wrong besides, 128 + the signal's number after
// Ctrl-C.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "../../ops/ops.hpp"

namespace resnet::rungs {

struct Options {
  std::string model;                   ///< empty: resnet18, or resnet8 on the reference operations
  std::int32_t image_size = 0;         ///< 0: 224, or 32 on the reference operations
  std::vector<std::int64_t> batches;   ///< that there are plans for; none: the rung's own
  std::vector<std::int64_t> requests;  ///< images in a request, by turns; none: as `batches`
  std::int64_t steps = 50, warmup = 10;  ///< requests
  int workers = 8;
  int contexts = 0;                    ///< 0: 2 from I8 on, and one in the others
  std::optional<Precision> precision;  ///< none: the rung's own
  bool exhaustive = false;             ///< rungs that time plans (I4 and on) time all there are
  bool free_loading = false;           ///< host memory is filled once, and sent again and again
  bool uint8 = false;                  ///< records over the bus, decoded on the device
  bool layers = false;                 ///< each layer is a range in a profiler
  bool watch = false;                  ///< what the pipeline waits for, while it runs
  std::filesystem::path weights, prepared, plans;
  std::filesystem::path data, cache;
  std::uint64_t records = 50'000;  ///< of the made-up set, without `data`
  std::filesystem::path answers, json;
};

/// Fills in what the command line says. Returns the exit status where the program is to end now:
/// after --help, or a mistake, which is told.
std::optional<int> parse(int argc, char** argv, const std::string& about, Options& options);

}  // namespace resnet::rungs
