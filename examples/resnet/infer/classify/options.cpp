// SPDX-License-Identifier: Apache-2.0

#include "options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <stdexcept>

#include "../../data/augment.hpp"
#include "programs/command_line.hpp"

namespace resnet::classify {
namespace {

/// Of the data that the network was trained on, as `train` and torchvision have them.
bool is_cifar10(const Options& options, const std::string& model) {
  if (!options.preset.empty()) return options.preset == "cifar10";
  return options.records || is_small(model);
}

Normalisation of_preset(bool cifar10) {
  if (!cifar10) return {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
  Normalisation normalisation{};
  for (std::int32_t c = 0; c < 3; ++c) {
    const auto channel = static_cast<std::size_t>(c);
    normalisation.mean[channel] = detail::mean_of(c) / 255;
    normalisation.deviation[channel] = 1 / (255 * detail::inverse_deviation_of(c));
  }
  return normalisation;
}

void add_preprocessing_options(CLI::App& app, Options& options) {
  app.add_option(
         "--preset", options.preset,
         "imagenet: shorter side to 256/224 of the image size, middle, ImageNet's mean and "
         "deviation; cifar10: the middle of the whole image, CIFAR-10's. By default cifar10 "
         "for records, resnet8 and resnet20")
      ->check(CLI::IsMember({"imagenet", "cifar10"}));
  app.add_option("--resize", options.resize,
                 "Pixels of the shorter side, of which the middle is cut out")
      ->check(CLI::Range(8, 1 << 16));
  app.add_option("--mean", options.mean, "Of red, green and blue, from 0 to 1: 0.485,0.456,0.406")
      ->delimiter(',')
      ->expected(3)
      ->check(penstock::programs::finite(0, 1));
  app.add_option("--std", options.deviation, "The same for the deviation: 0.229,0.224,0.225")
      ->delimiter(',')
      ->expected(3)
      ->check(penstock::programs::finite(1e-3, 1e3));
}

}  // namespace

std::optional<int> parse(int argc, char** argv, Options& options) {
  CLI::App app(
      "Says what is on images. Exit status: 0 all are answered, 1 some were skipped, 2 a mistake, "
      "or nothing is answered.");
  app.add_option("inputs", options.inputs,
                 "Images (JPEG, PNG) and directories of them; -: paths from the standard input");
  app.add_flag("--stdin", options.standard_input,
               "Paths of images from the standard input, one a line, answered as they come");
  app.add_flag("--records", options.records, "The inputs are files of CIFAR-10 records");
  add_options(app, options.model);
  app.add_option("--classes", options.classes, "File of the classes' names, one a line")
      ->check(CLI::ExistingFile);
  app.add_option("--top", options.top, "So many classes of each image")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_flag("--json", options.json, "A JSON object for each image, one a line");
  app.add_option("--batch", options.batch,
                 "Images at a time, at most: the prepared model's largest batch, or 32")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--workers", options.workers, "Threads that decode; by default one for each core")
      ->check(CLI::Range(1, 1024));
  app.add_option("--max-pixels", options.limits.pixels, "Images of more pixels are skipped")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--max-seconds", options.limits.seconds,
                 "Images are skipped whose decoding takes more of the processor's time")
      ->check(penstock::programs::finite(1e-3, 1e6))
      ->capture_default_str();
  add_preprocessing_options(app, options);
  if (const std::optional<int> status = penstock::programs::parse(app, argc, argv)) return status;
  const bool dash = std::count(options.inputs.begin(), options.inputs.end(), "-") > 0;
  std::erase(options.inputs, "-");
  options.standard_input |= dash;
  return std::nullopt;
}

penstock::images::ResizeCenterCrop framing_of(const Options& options, const std::string& model,
                                              std::int32_t crop) {
  const std::int32_t usual = is_cifar10(options, model) ? crop : (crop * 256 + 112) / 224;
  const penstock::images::ResizeCenterCrop framing{options.resize != 0 ? options.resize : usual,
                                                   {crop, crop}};
  if (framing.resize < crop)
    throw std::invalid_argument("--resize: " + std::to_string(framing.resize) +
                                " pixels, and the network reads " + std::to_string(crop));
  return framing;
}

Normalisation normalisation_of(const Options& options, const std::string& model) {
  Normalisation normalisation = of_preset(is_cifar10(options, model));
  if (!options.mean.empty()) std::copy_n(options.mean.begin(), 3, normalisation.mean.begin());
  if (!options.deviation.empty())
    std::copy_n(options.deviation.begin(), 3, normalisation.deviation.begin());
  return normalisation;
}

}  // namespace resnet::classify
