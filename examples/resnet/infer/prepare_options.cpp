// SPDX-License-Identifier: Apache-2.0

#include "prepare_options.hpp"

#include <CLI/CLI.hpp>
#include <map>

#include "programs/command_line.hpp"

namespace resnet {
namespace {

const std::map<std::string, Precision> precisions = {{"fp32", Precision::fp32},
                                                     {"tf32", Precision::tf32},
                                                     {"fp16", Precision::fp16},
                                                     {"bf16", Precision::bf16},
                                                     {"int8", Precision::int8}};
const std::map<std::string, Format> formats = {{"nchw", Format::nchw}, {"nhwc", Format::nhwc}};
const std::map<std::string, Fusion> fusions = {
    {"none", Fusion::none}, {"elementwise", Fusion::elementwise}, {"full", Fusion::full}};
const std::map<std::string, PlanChoice> choices = {{"heuristic", PlanChoice::heuristic},
                                                   {"timed", PlanChoice::timed},
                                                   {"exhaustive", PlanChoice::exhaustive}};
const std::map<std::string, CalibrationMethod> methods = {
    {"entropy", CalibrationMethod::entropy},
    {"percentile", CalibrationMethod::percentile},
    {"max", CalibrationMethod::largest}};

void add_data_options(CLI::App& app, PrepareOptions& options) {
  app.add_option("--data", options.data,
                 "Directory of CIFAR-10's binary version; without it, a synthetic set is made");
  app.add_option("--cache", options.cache,
                 "Where the synthetic set is kept: by default ~/.cache/penstock");
  app.add_option("--records", options.records, "Training records of the synthetic set")
      ->check(CLI::Range(5, 1 << 24));
  app.add_option("--test-records", options.test_records, "Test records of the synthetic set")
      ->check(CLI::Range(1, 1 << 24));
}

}  // namespace

std::optional<int> parse(int argc, char** argv, PrepareOptions& options) {
  CLI::App app(
      "Makes a prepared model of a ResNet's weights: batch norms folded, in the precision that is "
      "asked for, with the plans for some batch sizes beside it.");
  app.add_option("--weights", options.weights,
                 "safetensors file with torchvision's names: a checkpoint of train, or of PyTorch")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_option("--out", options.out, "Where the prepared model goes; its plans: OUT.plans")
      ->required();
  app.add_option("--model", options.model, "resnet8, resnet20, resnet18 or resnet50")
      ->capture_default_str();
  app.add_option("--image-size", options.image_size,
                 "Height and width of images: 224, or 32 for resnet8 and resnet20")
      ->check(CLI::Range(8, 4096));
  app.add_option("--precision", options.precision, "fp32, tf32, fp16 (the default), bf16 or int8")
      ->transform(CLI::CheckedTransformer(precisions));
  app.add_option("--format", options.format, "nchw or nhwc; by default nhwc, but for fp32")
      ->transform(CLI::CheckedTransformer(formats));
  app.add_option("--fusion", options.fusion,
                 "none: an operation, a kernel; elementwise: convolution and one kernel; full (the "
                 "default): one kernel where there is an engine")
      ->transform(CLI::CheckedTransformer(fusions));
  app.add_option("--batches", options.batches, "Batch sizes, as 1,16,128")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--plans", options.plans, "heuristic, timed (the default) or exhaustive (slow)")
      ->transform(CLI::CheckedTransformer(choices));
  app.add_option("--calibration", options.calibration,
                 "int8's scales: entropy (the default), percentile or max")
      ->transform(CLI::CheckedTransformer(methods));
  app.add_option("--calibration-images", options.calibration_images,
                 "Training images that int8's scales are taken of")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app.add_option("--check", options.check_images,
                 "Test images on which it is compared with the network it was made of; 0: none")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  add_data_options(app, options);
  return penstock::programs::parse(app, argc, argv);
}

}  // namespace resnet
