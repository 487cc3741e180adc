// SPDX-License-Identifier: Apache-2.0

// prepare: from weights (a checkpoint, or PyTorch's) to a file that inference programs load, with
// the plans beside it, so that they start without trying anything.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>

#include "../../common/different_files.hpp"
#include "../../common/progress.hpp"
#include "../../common/read_file.hpp"
#include "../../data/cifar10.hpp"
#include "../../data/synthetic.hpp"
#include "../train/options.hpp"
#include "preparation.hpp"
#include "prepare_options.hpp"
#include "programs/interrupt.hpp"
#include "programs/output_file.hpp"

namespace resnet {
namespace {

namespace fs = std::filesystem;
using safetensors::File;

Extents image_of(const PrepareOptions& options) {
  const std::int64_t size = options.image_size != 0   ? options.image_size
                            : is_small(options.model) ? 32
                                                      : 224;
  return {1, cifar10::channels, size, size};
}

fs::path data_of(const PrepareOptions& options) {
  if (!options.data.empty()) return options.data;
  const synthetic::Options set{.train = options.records, .test = options.test_records};
  examples::Progress progress("synthetic records", set.train + set.test);
  return synthetic::ensure(options.cache, set, [&](std::uint64_t done) {
    progress.to(done);
    return !penstock::programs::interrupted();
  });
}

/// Tells how far a step is, and gives up at Ctrl-C.
ImageProgress telling(examples::Progress& progress) {
  return [&](std::uint64_t done) {
    progress.to(done);
    return !penstock::programs::interrupted();
  };
}

Model in_precision(Model model, const PrepareOptions& options, const fs::path& data) {
  const Format usual = options.precision == Precision::fp32 ? Format::nchw : Format::nhwc;
  if (options.precision == Precision::int8) {
    const penstock::RecordFile records(cifar10::train_files(data), cifar10::record_bytes);
    const LabelledImages images(records, static_cast<std::int32_t>(model.image.h));
    const std::uint64_t count = std::min(options.calibration_images, images.size());
    examples::Progress progress("calibration images", count);
    model = calibrated(model, images, count, options.calibration, telling(progress));
  }
  model.precision = options.precision;
  model.format = options.format.value_or(usual);
  model.fusion = options.fusion;
  model.batches = options.batches;
  return model;
}

/// Under a name of its own, so that plans which are there already are not taken for those that are
/// asked for. It is gone at the end.
struct FreshPlanFile {
  explicit FreshPlanFile(const fs::path& out)
      : path(penstock::programs::partial_name(plan_file_of(out))), entered(path.string()) {}
  ~FreshPlanFile() {
    std::error_code none;
    fs::remove(path, none);
  }
  FreshPlanFile(const FreshPlanFile&) = delete;
  FreshPlanFile& operator=(const FreshPlanFile&) = delete;

  const fs::path path;
  const penstock::programs::PartialName entered;
};

/// How many convolutions of each batch size are run in which way.
void print_engines(const InferenceNetwork& network) {
  for (const std::int64_t batch : network.batches()) {
    std::map<std::string, int> ways;
    for (const auto& [name, engine] : network.engines(batch))
      ++ways[engine.substr(0, engine.find(':'))];
    std::string text;
    for (const auto& [way, count] : ways)
      text += (text.empty() ? "" : ", ") + std::to_string(count) + ' ' + way;
    std::printf("batch %lld: %s\n", static_cast<long long>(batch), text.c_str());
  }
}

Agreement check(const InferenceNetwork& network, const Architecture& architecture,
                const File& weights, const PrepareOptions& options, const fs::path& data) {
  const penstock::RecordFile records({cifar10::test_file(data)}, cifar10::record_bytes);
  const Extents& image = network.image();
  const LabelledImages images(records, static_cast<std::int32_t>(image.h));
  const std::uint64_t count = std::min(options.check_images, images.size());
  Original original(architecture, image, std::min<std::int64_t>(image.n, 64), tensors_of(weights));
  examples::Progress progress("test images", count);
  return compare(network, original, images, count, telling(progress));
}

void print(const Agreement& agreement, const InferenceNetwork& network) {
  std::printf("top-1 agreement with the network in fp32, on %lld test images: %.2f %%\n",
              static_cast<long long>(agreement.images), 100 * agreement.same_part());
  if (network.classes() == cifar10::classes)
    std::printf("accuracy: %.2f %%, in fp32 %.2f %%\n", 100 * agreement.accuracy(),
                100 * agreement.wanted_accuracy());
}

/// What is at `to` may be a link, which stays.
void move_plans(const fs::path& from, const fs::path& to) {
  constexpr std::uint64_t most_bytes = std::uint64_t{1} << 32;
  penstock::programs::write_file(to, examples::text_of(examples::read_file(from, most_bytes)));
}

/// Before there is work that would be lost.
void check_out(const PrepareOptions& options) {
  std::error_code none;
  if (fs::exists(options.out, none) && !fs::is_regular_file(options.out, none))
    throw std::invalid_argument(
        "--out: " + options.out.string() +
        " is no regular file, and a model is read again, with its plans beside it");
  for (const fs::path& written : {options.out, plan_file_of(options.out)})
    if (examples::same_file(written, options.weights))
      throw std::invalid_argument(options.weights.string() +
                                  " has the weights, and would be written over: name another "
                                  "--out");
  penstock::programs::require_writable(options.out);
  penstock::programs::require_writable(plan_file_of(options.out));
}

void prepare(const PrepareOptions& options) {
  check_out(options);
  const File weights = safetensors::read(options.weights);
  const Architecture architecture = architecture_of(options.model, classes_of(weights));
  const Model folded = fold(architecture, image_of(options), tensors_of(weights));
  std::printf("%s: %zu convolutions, batch norms folded into them\n", options.model.c_str(),
              folded.convolutions.size());
  const bool needs_data = options.precision == Precision::int8 || options.check_images != 0;
  const fs::path data = needs_data ? data_of(options) : fs::path();
  Model model = in_precision(folded, options, data);

  const auto begin = std::chrono::steady_clock::now();
  penstock::Stream stream;
  const FreshPlanFile plans(options.out);
  InferenceNetwork network(model, {.plans = options.plans, .plan_file = plans.path}, stream.get());
  model.batches = network.batches();  // in order, each once
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("plans on %s, in %.1f s\n", operations_name().c_str(), took.count());
  print_engines(network);
  if (penstock::programs::interrupted()) throw Interrupted();
  // The plans first: who finds the model finds them too.
  network.save_plans();
  if (fs::exists(plans.path)) move_plans(plans.path, plan_file_of(options.out));
  std::optional<Agreement> agreement;
  std::exception_ptr interrupt;
  try {  // Before it is saved: a network of no finite answers must not replace a good one.
    if (options.check_images != 0) agreement = check(network, architecture, weights, options, data);
  } catch (const Interrupted&) {
    interrupt = std::current_exception();
  }
  save_model(options.out, model);
  std::printf("%s: %s\n", options.out.c_str(), name_of(model.precision).c_str());
  if (interrupt) std::rethrow_exception(interrupt);
  if (agreement) print(*agreement, network);
}

}  // namespace
}  // namespace resnet

int main(int argc, char** argv) {
  resnet::PrepareOptions options;
  if (const std::optional<int> status = resnet::parse(argc, argv, options)) return *status;
  penstock::programs::watch_interrupts();
  try {
    resnet::prepare(options);
  } catch (const std::exception& error) {
    if (penstock::programs::interrupted()) return penstock::programs::interrupted_exit_code();
    return resnet::report("prepare", error);
  }
}
