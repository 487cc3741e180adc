// SPDX-License-Identifier: Apache-2.0
#pragma once

// A network for inference, on the host: convolutions with the batch norms folded into them, in the
// order of `convolutions_of`, and the last layer. What `prepare` writes and programs load.
//
//   Model model = fold(architecture_of("resnet18", 1000), {1, 3, 224, 224}, tensors_of(file));
//   model.precision = Precision::fp16;             // int8: quantise() of quantisation.hpp
//   save_model("resnet18.prepared", model);
//   const Model same = load_model("resnet18.prepared");

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "../model/architecture.hpp"
#include "../model/network.hpp"
#include "../model/safetensors.hpp"

namespace resnet {

/// As command lines and files have them.
std::string name_of(Precision precision);
std::string name_of(Fusion fusion);

/// Was it made for images of CIFAR-10's size?
bool is_small(const std::string& model);

/// Weights are k x c x r x s (torchvision's order), without padding.
struct ModelConvolution {
  std::string name;
  std::vector<float> weights;          ///< empty where the operands are int8
  std::vector<std::int8_t> quantised;  ///< times weight_scale[k] they are the weights
  std::vector<float> weight_scale;     ///< of `quantised`
  std::vector<float> bias;
  float output_scale = 1;  ///< of an int8 result: the value of 1
};

struct Model {
  Architecture architecture;
  Extents image{1, 3, 224, 224};  ///< c: without padding
  Precision precision = Precision::fp32;
  Format format = Format::nchw;
  Fusion fusion = Fusion::full;
  std::vector<std::int64_t> batches{1};  ///< that plans were made for, ascending
  std::vector<ModelConvolution> convolutions;
  std::vector<float> last_weights, last_bias;  ///< classes x features, classes
};

/// Of `layers`: the stem, then of each block the path and behind it the shortcut, if there is one.
struct ConvolutionPlace {
  const ConvolutionNorm* layer;
  bool residual;  ///< the shortcut is added
  bool relu;
};
std::vector<ConvolutionPlace> convolutions_of(const Layers& layers);

/// The values of a tensor that must have this shape; throws when there is none.
using TensorSource =
    std::function<std::vector<float>(const std::string& name, const std::vector<std::int64_t>&)>;
/// Of a checkpoint or a file of PyTorch's, which outlives it. Throws safetensors::FormatError, also
/// for a value that is not finite.
TensorSource tensors_of(const safetensors::File& file);
/// How many there are, by the last layer's bias. Throws safetensors::FormatError.
std::int64_t classes_of(const safetensors::File& weights);
/// Of a network's state. Both outlive it.
TensorSource tensors_of(const NetworkState& state, const ParameterTable& table);

/// weights * gamma / sqrt(variance + epsilon), beta - mean * gamma / sqrt(variance + epsilon): in
/// double, then rounded to float. Throws std::invalid_argument, with the tensor's name and the
/// channel, for what is then not finite.
Model fold(const Architecture& architecture, const Extents& image, const TensorSource& tensors);

/// Of a network as training starts it: to measure, where there are no weights.
Model untrained(const Architecture& architecture, const Extents& image, std::uint64_t seed);

/// The file appears whole or not at all. Throws std::system_error.
void save_model(const std::filesystem::path& path, const Model& model);
/// Throws safetensors::FormatError for a file that save_model did not write, or that is damaged.
Model load_model(const std::filesystem::path& path);
/// The same of a file that was read.
Model model_of(const safetensors::File& file);
/// Where the plans of a prepared file are: beside it.
std::filesystem::path plan_file_of(const std::filesystem::path& model);

}  // namespace resnet
