// SPDX-License-Identifier: Apache-2.0

// What fewer bits do to a trained network: how often it names the class that the network which is
// neither folded nor rounded names, on the synthetic test set. Trains it first, which takes the
// most of a minute on two cores; under a sanitizer it is as good as untrained, and agreement means
// nothing.

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "../../../../examples/data/cifar10.hpp"
#include "../../../../examples/data/synthetic.hpp"
#include "../../../../examples/resnet/infer/preparation.hpp"
#include "../../../../examples/resnet/train/training.hpp"
#include "../../../support/catch.hpp"
#include "../../../support/sanitized.hpp"
#include "../../../support/temporary_directory.hpp"

namespace resnet::test {
namespace {

constexpr bool is_trained = PENSTOCK_TEST_SANITIZED == 0;
constexpr std::uint64_t train_images = is_trained ? 12'800 : 64;
constexpr std::uint64_t test_images = is_trained ? 2000 : 20;
constexpr std::uint64_t calibration_images = is_trained ? 512 : 20;
constexpr Extents image{1, 3, 32, 32};

struct Trained {
  Trained() {
    synthetic::make(data, {.train = train_images, .test = test_images});
    train.emplace(cifar10::train_files(data), cifar10::record_bytes);
    test.emplace(std::vector{cifar10::test_file(data)}, cifar10::record_bytes);
    DataParallel ranks;
    Training({.model = "resnet8",
              .image_size = 32,
              .batch = 32,
              .epochs = is_trained ? 6u : 1u,
              .rate = 0.1f,  // More than the usual one, which would need more epochs.
              .data = data,
              .checkpoint = checkpoint},
             ranks)
        .run();
    weights = safetensors::read(checkpoint);
    folded = fold(architecture, image, tensors_of(weights));
    original.emplace(architecture, image, 50, tensors_of(weights));
  }

  Agreement compare(Model model) {
    const LabelledImages images(*test, 32);
    model.batches = {50};
    const InferenceNetwork network(model, {}, stream.get());
    return resnet::compare(network, *original, images, test_images, {});
  }
  Model in_int8(CalibrationMethod method) const {
    const LabelledImages images(*train, 32);
    return calibrated(folded, images, calibration_images, method, {});
  }

  penstock::test::TemporaryDirectory directory;
  std::filesystem::path data = directory / "data", checkpoint = directory / "resnet8.safetensors";
  std::optional<penstock::RecordFile> train, test;
  safetensors::File weights;
  Architecture architecture = architecture_of("resnet8", 10);
  Model folded;
  std::optional<Original> original;
  penstock::Stream stream;
};

Agreement tell(const char* what, const Agreement& agreement) {
  std::printf("%-18s agreement %6.2f %%, accuracy %.2f %% (%.2f %%)\n", what,
              100 * agreement.same_part(), 100 * agreement.accuracy(),
              100 * agreement.wanted_accuracy());
  return agreement;
}

TEST_CASE("infer: the trained network says the same in fewer bits") {
  Trained trained;
  const auto in = [&](Precision precision, Fusion fusion) {
    Model model = trained.folded;
    model.precision = precision;
    model.format = precision == Precision::fp32 ? Format::nchw : Format::nhwc;
    model.fusion = fusion;
    return trained.compare(model);
  };
  const auto enough = [](const Agreement& agreement, double part) {
    CHECK(agreement.images == static_cast<std::int64_t>(test_images));
    CHECK((!is_trained || agreement.same_part() >= part));
  };
  const Agreement folded = tell("fp32, folded", in(Precision::fp32, Fusion::full));
  enough(folded, 0.9995);
  CHECK((!is_trained || folded.wanted_accuracy() > 0.9));
  enough(tell("fp16", in(Precision::fp16, Fusion::full)), 0.999);
  enough(tell("fp16, not fused", in(Precision::fp16, Fusion::none)), 0.999);
  enough(tell("bf16", in(Precision::bf16, Fusion::full)), 0.999);

  const Agreement entropy =
      tell("int8, entropy", trained.compare(trained.in_int8(CalibrationMethod::entropy)));
  enough(entropy, 0.99);
  if (!is_trained) return;
  CHECK(entropy.accuracy() >= entropy.wanted_accuracy() - 0.01);
  tell("int8, percentile", trained.compare(trained.in_int8(CalibrationMethod::percentile)));
  tell("int8, max", trained.compare(trained.in_int8(CalibrationMethod::largest)));
}

}  // namespace
}  // namespace resnet::test
