// SPDX-License-Identifier: Apache-2.0
#pragma once

// The command line of `latency`. Exit statuses: 0; 2 for what the user can put right; 1 for what
// went wrong besides, wrong answers among it; 128 + the signal's number after Ctrl-C.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "../model_choice.hpp"
#include "arrivals.hpp"

namespace resnet::latency {

struct Options {
  ModelChoice model;
  std::vector<std::int64_t> batches;  ///< that plans are made for; none: 1, 4, 16 ... max_batch
  std::vector<int> clients;           ///< of closed loops
  std::vector<double> rates;          ///< of open loops, requests a second
  ArrivalKind arrivals = ArrivalKind::poisson;
  std::uint64_t seed = 1;
  double deadline = 2;         ///< milliseconds
  std::int64_t max_batch = 0;  ///< 0: 32, or the prepared model's largest where that is less
  int contexts = 1;
  std::uint64_t requests = 1000, warmup = 100;
  std::size_t images = 64;
  bool check = false;
  std::filesystem::path json;
};

/// Fills in what the command line says. Returns the exit status where the program is to end now:
/// after --help, or a mistake, which is told.
std::optional<int> parse(int argc, char** argv, Options& options);

}  // namespace resnet::latency
