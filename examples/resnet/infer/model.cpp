// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>

#include "../model/json_fields.hpp"

namespace resnet {

// Beside the enumerations, where argument-dependent lookup finds them.
NLOHMANN_JSON_SERIALIZE_ENUM(Precision, {{Precision::fp32, "fp32"},
                                         {Precision::tf32, "tf32"},
                                         {Precision::fp16, "fp16"},
                                         {Precision::bf16, "bf16"},
                                         {Precision::int8, "int8"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Format, {{Format::nchw, "nchw"}, {Format::nhwc, "nhwc"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Fusion, {{Fusion::none, "none"},
                                      {Fusion::elementwise, "elementwise"},
                                      {Fusion::full, "full"}})

namespace {

using Json = nlohmann::json;
using safetensors::File;
using safetensors::Tensor;

constexpr const char* notes_key = "penstock.inference";
constexpr int version = 1;

std::string write_notes(const Model& model) {
  const Json json = {{"version", version},
                     {"model", model.architecture.name},
                     {"classes", model.architecture.classes},
                     {"image", {model.image.c, model.image.h, model.image.w}},
                     {"precision", model.precision},
                     {"format", model.format},
                     {"fusion", model.fusion},
                     {"batches", model.batches}};
  return json.dump();
}

/// What is read, at most: sizes of tensors stay far from the end of 64 bits.
constexpr std::int64_t most_channels = 1024, most_pixels = 1 << 14, most_images = 1 << 20,
                       most_classes = 1 << 24;

std::string version_text(const Json& json) {
  return json.is_number() ? json.dump() : json.type_name();  // Whatever else it is may be long.
}

Extents image_of(const Json& json) {
  if (!json.is_array() || json.size() != 3)
    throw std::invalid_argument("image is no list of channels, height and width");
  return {1, in_range<std::int64_t>(json[0], "image", 1, most_channels),
          in_range<std::int64_t>(json[1], "image", 1, most_pixels),
          in_range<std::int64_t>(json[2], "image", 1, most_pixels)};
}

std::vector<std::int64_t> batches_of(const Json& json) {
  std::vector<std::int64_t> batches;
  if (json.is_array())
    for (const Json& size : json)
      batches.push_back(in_range<std::int64_t>(size, "batches", 1, most_images));
  if (batches.empty() || !std::is_sorted(batches.begin(), batches.end()))
    throw std::invalid_argument("batches is no ascending list of batch sizes");
  return batches;
}

Model read_notes(const File& file) {
  const auto text = file.metadata.find(notes_key);
  if (text == file.metadata.end())
    file.fail("is no prepared model: `prepare` makes one of a checkpoint");
  try {
    const Json json = Json::parse(text->second);
    if (json.at("version") != version)
      file.fail("is of version " + version_text(json.at("version")) + ", and this program reads " +
                std::to_string(version) + ": prepare it again");
    Model model;
    model.architecture =
        architecture_of(json.at("model").get<std::string>(),
                        integer_of<std::int64_t>(json, "classes", 1, most_classes));
    model.image = image_of(json.at("image"));
    model.precision = enumerator_of<Precision>(json, "precision");
    model.format = enumerator_of<Format>(json, "format");
    model.fusion = enumerator_of<Fusion>(json, "fusion");
    model.batches = batches_of(json.at("batches"));
    return model;
  } catch (const Json::exception& error) {
    file.fail("the notes cannot be read: " + reason_of(error));
  } catch (const std::invalid_argument& error) {
    file.fail(std::string("the notes cannot be used: ") + error.what());
  }
}

// ---- Tensors ------------------------------------------------------------------------------------

template <class T>
void add(std::vector<Tensor>& tensors, const std::string& name, const char* dtype,
         const std::vector<std::int64_t>& shape, const std::vector<T>& values) {
  tensors.push_back({name, dtype, shape, std::as_bytes(std::span(values))});
}

std::vector<std::int64_t> weight_shape(const ConvolutionShape& shape) {
  return {shape.k, shape.in.c, shape.kernel, shape.kernel};
}

std::vector<float> positive(const File& file, const TensorSource& tensors, const std::string& name,
                            const std::vector<std::int64_t>& shape) {
  std::vector<float> values = tensors(name, shape);
  for (const float value : values)
    if (!(value > 0) || !std::isfinite(value))
      file.fail("\"" + name + "\" has a scale that is none");
  return values;
}

ModelConvolution read_convolution(const File& file, const ConvolutionNorm& layer,
                                  bool int8_operands, bool int8_result) {
  const TensorSource tensors = tensors_of(file);
  ModelConvolution result;
  result.name = layer.convolution;
  const std::string weights = layer.convolution + ".weight";
  if (int8_operands) {
    const Tensor& tensor = file.tensor(weights);
    if (tensor.dtype != "I8" || tensor.shape != weight_shape(layer.shape))
      file.fail("\"" + weights + "\" is not the I8 tensor that it must be");
    result.quantised.resize(tensor.bytes.size());
    std::memcpy(result.quantised.data(), tensor.bytes.data(), tensor.bytes.size());
    result.weight_scale =
        positive(file, tensors, layer.convolution + ".weight_scale", {layer.shape.k});
  } else {
    result.weights = tensors(weights, weight_shape(layer.shape));
  }
  result.bias = tensors(layer.convolution + ".bias", {layer.shape.k});
  if (int8_result)
    result.output_scale = positive(file, tensors, layer.convolution + ".output_scale", {1}).front();
  return result;
}

}  // namespace

std::string name_of(Precision precision) {
  return Json(precision).get<std::string>();
}

std::string name_of(Fusion fusion) {
  return Json(fusion).get<std::string>();
}

bool is_small(const std::string& model) {
  return model == "resnet8" || model == "resnet20";
}

void save_model(const std::filesystem::path& path, const Model& model) {
  const Layers layers = layers_of(model.architecture, model.image);
  const std::vector<ConvolutionPlace> places = convolutions_of(layers);
  std::deque<std::vector<float>> scales;  // what the tensors' bytes are of, too
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const ConvolutionShape& shape = places[i].layer->shape;
    const ModelConvolution& convolution = model.convolutions.at(i);
    const std::string& name = convolution.name;
    if (convolution.quantised.empty()) {
      add(tensors, name + ".weight", "F32", weight_shape(shape), convolution.weights);
    } else {
      add(tensors, name + ".weight", "I8", weight_shape(shape), convolution.quantised);
      add(tensors, name + ".weight_scale", "F32", {shape.k}, convolution.weight_scale);
    }
    add(tensors, name + ".bias", "F32", {shape.k}, convolution.bias);
    if (model.precision == Precision::int8)
      add(tensors, name + ".output_scale", "F32", {1},
          scales.emplace_back(1, convolution.output_scale));
  }
  add(tensors, "fc.weight", "F32", {layers.classes, layers.features.c}, model.last_weights);
  add(tensors, "fc.bias", "F32", {layers.classes}, model.last_bias);
  safetensors::write(path, tensors, {{notes_key, write_notes(model)}});
}

Model load_model(const std::filesystem::path& path) {
  return model_of(safetensors::read(path));
}

Model model_of(const File& file) {
  Model model = read_notes(file);
  const Layers layers = layers_of(model.architecture, model.image);
  const bool int8 = model.precision == Precision::int8;
  for (const ConvolutionPlace& place : convolutions_of(layers))
    model.convolutions.push_back(
        read_convolution(file, *place.layer, int8 && place.layer != &layers.stem, int8));
  const TensorSource tensors = tensors_of(file);
  model.last_weights = tensors("fc.weight", {layers.classes, layers.features.c});
  model.last_bias = tensors("fc.bias", {layers.classes});
  return model;
}

std::filesystem::path plan_file_of(const std::filesystem::path& model) {
  std::filesystem::path plans = model;
  plans += ".plans";
  return plans;
}

}  // namespace resnet
