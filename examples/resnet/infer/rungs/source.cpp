// SPDX-License-Identifier: Apache-2.0

#include "source.hpp"

#include <cmath>
#include <functional>
#include <numeric>

#include "../../../common/progress.hpp"
#include "../../../data/cifar10.hpp"
#include "../../../data/synthetic.hpp"
#include "../../data/augment.hpp"
#include "../../model/safetensors.hpp"
#include "../../ops/ops.hpp"
#include "programs/interrupt.hpp"

namespace resnet::rungs {

TensorSource made_up_weights() {
  return [](const std::string& name, const std::vector<std::int64_t>& shape) {
    const std::int64_t count =
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    const bool variance = name.ends_with("running_var");
    const bool gamma = shape.size() == 1 && name.ends_with(".weight");
    if (shape.size() == 1)
      return std::vector<float>(static_cast<std::size_t>(count), variance || gamma);
    // Uniform, with the variance of 2 over the number of inputs.
    const double range =
        std::sqrt(6.0 * static_cast<double>(shape[0]) / static_cast<double>(count));
    const std::uint64_t seed =
        std::accumulate(name.begin(), name.end(), std::uint64_t{1}, [](std::uint64_t all, char c) {
          return detail::mixed(all + static_cast<std::uint64_t>(c));
        });
    std::vector<float> values;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(count); ++i)
      values.push_back(static_cast<float>(
          range * (std::ldexp(static_cast<double>(detail::mixed(seed ^ i) >> 11), -52) - 1)));
    return values;
  };
}

Model model_of(const Options& options) {
  if (!options.prepared.empty()) {
    Model model = load_model(options.prepared);
    if (model.image.c != cifar10::channels || model.image.h != model.image.w)
      throw std::invalid_argument(options.prepared.string() +
                                  ": a model for square images in three channels is needed");
    return model;
  }
  const bool on_the_cpu = operations_name().starts_with("reference");
  const std::string name = !options.model.empty() ? options.model
                           : on_the_cpu           ? "resnet8"
                                                  : "resnet18";
  const std::int64_t size = options.image_size != 0 ? options.image_size : on_the_cpu ? 32 : 224;
  const Extents image{1, cifar10::channels, size, size};
  if (options.weights.empty())
    return fold(architecture_of(name, cifar10::classes), image, made_up_weights());
  const safetensors::File file = safetensors::read(options.weights);
  return fold(architecture_of(name, classes_of(file)), image, tensors_of(file));
}

std::unique_ptr<penstock::RecordFile> open_records(const Options& options) {
  const auto made_up = [&] {
    const synthetic::Options set{.train = options.records, .test = 1};
    examples::Progress progress("synthetic records", set.train + set.test);
    return synthetic::ensure(options.cache, set, [&](std::uint64_t done) {
      progress.to(done);
      return !penstock::programs::interrupted();
    });
  };
  const auto directory = options.data.empty() ? made_up() : options.data;
  return std::make_unique<penstock::RecordFile>(cifar10::train_files(directory),
                                                cifar10::record_bytes);
}

}  // namespace resnet::rungs
