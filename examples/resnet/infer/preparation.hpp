// SPDX-License-Identifier: Apache-2.0
#pragma once

// From a checkpoint to a prepared model: what the program `prepare` does, step by step.
//
//   const LabelledImages images(records, size);
//   const Model model = fold(architecture, image, weights);                     // model.hpp
//   const Model quick = calibrated(model, images, 512, CalibrationMethod::entropy, tell);
//   const InferenceNetwork network(quick, {.batches = {128}}, stream);
//   Original original(architecture, image, 128, weights);
//   const Agreement agreement = compare(network, original, test_images, 1000, tell);
//
// All of it blocks. It runs on whatever operations are linked.

#include <cstdint>
#include <functional>
#include <memory>
#include <penstock/cuda.hpp>
#include <penstock/record_file.hpp>
#include <span>
#include <stdexcept>
#include <vector>

#include "../data/input.hpp"
#include "agreement.hpp"
#include "network.hpp"
#include "quantisation.hpp"

namespace resnet {

/// Images of CIFAR-10 records as they are, resized and normalised. `records` outlives this.
class LabelledImages {
 public:
  LabelledImages(const penstock::RecordFile& records, std::int32_t size);

  std::uint64_t size() const { return records_.size(); }
  struct Batch {
    std::vector<float> pixels;  ///< sample x channel x height x width
    std::vector<std::int32_t> labels;
  };
  /// `count` images, evenly spread over the records, from the `first`-th of `all` that are taken.
  Batch batch(std::uint64_t first, std::uint64_t count, std::uint64_t all) const;

 private:
  const penstock::RecordFile& records_;
  ImageSource source_;
};

/// Called now and then with the images that are done; returning false gives up.
using ImageProgress = std::function<bool(std::uint64_t done)>;

/// What a step throws when its progress function returned false.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

/// A network that is not folded, in fp32, with the weights of a checkpoint: what others are
/// compared with.
class Original {
 public:
  /// `batch`: images at a time, at most.
  Original(const Architecture& architecture, const Extents& image, std::int64_t batch,
           const TensorSource& weights);

  std::int64_t batch() const { return options_.images.n; }
  /// samples x classes. `pixels`: samples x channel x height x width.
  std::vector<float> logits(std::int64_t samples, std::span<const float> pixels);

 private:
  std::unique_ptr<Operations> operations_;
  NetworkOptions options_;
  penstock::Stream stream_;
  Network network_;
  DeviceArray<float> pixels_;
};

/// `model`, which is in fp32, in int8: calibrated on `count` of the images.
Model calibrated(const Model& model, const LabelledImages& images, std::uint64_t count,
                 CalibrationMethod method, const ImageProgress& progress);

/// Of `network` and the network that it was made of, on `count` of the images.
Agreement compare(const InferenceNetwork& network, Original& original, const LabelledImages& images,
                  std::uint64_t count, const ImageProgress& progress);

}  // namespace resnet
