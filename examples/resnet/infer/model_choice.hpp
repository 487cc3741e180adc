// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which network a program runs, by its command line: what `prepare` wrote, or weights that are
// folded here.
//
//   ModelChoice choice;
//   add_options(app, choice);                                     // --prepared, --weights ...
//   const Model model = load(choice);
//   const auto network = make_network(model, choice, {1, 32}, stream);

#include <cuda_runtime_api.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model.hpp"
#include "network.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace resnet {

struct ModelChoice {
  std::filesystem::path prepared, weights;
  std::string model = "resnet18";
  std::int32_t image_size = 0;  ///< 0: 224, or 32 for the CIFAR-style networks
  std::optional<Precision> precision;
  std::filesystem::path plans;
};

void add_options(CLI::App& app, ModelChoice& choice);

/// The prepared model; or the weights', folded, in `choice.precision` (fp16); or, where neither is
/// named, an untrained one, for measurements. Throws safetensors::FormatError,
/// std::invalid_argument: a model for square images of three channels is needed.
Model load(const ModelChoice& choice);

/// At the model's batch sizes, where it was prepared; else at `batches`. Blocks.
std::unique_ptr<InferenceNetwork> make_network(const Model& model, const ModelChoice& choice,
                                               const std::vector<std::int64_t>& batches,
                                               cudaStream_t stream);

}  // namespace resnet
