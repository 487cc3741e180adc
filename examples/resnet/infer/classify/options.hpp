// SPDX-License-Identifier: Apache-2.0
#pragma once

// The command line of `classify`. Exit statuses: 0 all images are answered; 1 some were skipped, or
// something went wrong besides; 2 for what the user can put right, and when nothing was answered;
// 128 + the signal's number after Ctrl-C.

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <penstock/images/crop.hpp>
#include <string>
#include <vector>

#include "../model_choice.hpp"
#include "image_file.hpp"

namespace resnet::classify {

/// Of a channel's values from 0 to 1.
struct Normalisation {
  std::array<float, 3> mean, deviation;
};

struct Options {
  ModelChoice model;
  std::vector<std::string> inputs;
  bool standard_input = false;
  bool records = false;  ///< the inputs are record files
  std::filesystem::path classes;
  std::size_t top = 5;
  bool json = false;
  std::int64_t batch = 0;   ///< 0: the prepared model's largest, or 32
  int workers = 0;          ///< 0: penstock's choice
  std::string preset;       ///< imagenet, cifar10; empty: by model and inputs
  std::int32_t resize = 0;  ///< 0: the preset's
  std::vector<float> mean, deviation;
  DecodeLimits limits;
};

/// Fills in what the command line says. Returns the exit status where the program is to end now:
/// after --help, or a mistake, which is told.
std::optional<int> parse(int argc, char** argv, Options& options);

/// What pictures become for a network that reads crop x crop pixels. Throws std::invalid_argument.
penstock::images::ResizeCenterCrop framing_of(const Options& options, const std::string& model,
                                              std::int32_t crop);
Normalisation normalisation_of(const Options& options, const std::string& model);

}  // namespace resnet::classify
