// SPDX-License-Identifier: Apache-2.0

#include "model_choice.hpp"

#include <CLI/CLI.hpp>
#include <map>
#include <stdexcept>

#include "../../common/different_files.hpp"

namespace resnet {
namespace {

constexpr std::int64_t channels = 3;
constexpr std::int64_t untrained_classes = 1000;

const std::map<std::string, Precision> precisions = {{"fp32", Precision::fp32},
                                                     {"tf32", Precision::tf32},
                                                     {"fp16", Precision::fp16},
                                                     {"bf16", Precision::bf16}};

Model folded(const ModelChoice& choice) {
  const std::int64_t size = choice.image_size != 0   ? choice.image_size
                            : is_small(choice.model) ? 32
                                                     : 224;
  const Extents image{1, channels, size, size};
  if (choice.weights.empty())
    return untrained(architecture_of(choice.model, untrained_classes), image, 1);
  const safetensors::File file = safetensors::read(choice.weights);
  return fold(architecture_of(choice.model, classes_of(file)), image, tensors_of(file));
}

}  // namespace

void add_options(CLI::App& app, ModelChoice& choice) {
  CLI::Option* prepared =
      app.add_option("--prepared", choice.prepared,
                     "What `prepare` wrote: precision, batch sizes and plans are the file's")
          ->check(CLI::ExistingFile);
  app.add_option("--weights", choice.weights,
                 "safetensors file with torchvision's names: a checkpoint of train, or PyTorch's")
      ->check(CLI::ExistingFile)
      ->excludes(prepared);
  app.add_option("--model", choice.model, "Of the weights: resnet8, resnet20, resnet18 or resnet50")
      ->capture_default_str()
      ->excludes(prepared);
  app.add_option("--image-size", choice.image_size,
                 "Height and width of what the network reads: 224, or 32 for resnet8 and resnet20")
      ->check(CLI::Range(8, 4096))
      ->excludes(prepared);
  app.add_option("--precision", choice.precision, "fp32, tf32, fp16 (the default) or bf16")
      ->transform(CLI::CheckedTransformer(precisions))
      ->excludes(prepared);
  app.add_option("--plans", choice.plans,
                 "File of plans: those in it are taken, others are guessed and put there")
      ->excludes(prepared);
}

Model load(const ModelChoice& choice) {
  examples::require_different({"--weights", choice.weights}, {"--plans", choice.plans});
  if (choice.prepared.empty()) {
    Model model = folded(choice);
    model.precision = choice.precision.value_or(Precision::fp16);
    model.format = model.precision == Precision::fp32 ? Format::nchw : Format::nhwc;
    return model;
  }
  Model model = load_model(choice.prepared);
  if (model.image.c != channels || model.image.h != model.image.w)
    throw std::invalid_argument(choice.prepared.string() +
                                ": a model for square images in three channels is needed");
  return model;
}

std::unique_ptr<InferenceNetwork> make_network(const Model& model, const ModelChoice& choice,
                                               const std::vector<std::int64_t>& batches,
                                               cudaStream_t stream) {
  if (!choice.prepared.empty())
    return std::make_unique<InferenceNetwork>(
        model, InferenceOptions{.plan_file = plan_file_of(choice.prepared)}, stream);
  auto network = std::make_unique<InferenceNetwork>(
      model, InferenceOptions{.batches = batches, .plan_file = choice.plans}, stream);
  network->save_plans();
  return network;
}

}  // namespace resnet
