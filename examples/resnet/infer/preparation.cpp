// SPDX-License-Identifier: Apache-2.0
#include "preparation.hpp"

#include <algorithm>

#include "../../data/cifar10.hpp"

namespace resnet {
namespace {

/// Calls f(first, count) for parts of `all`.
template <class F>
void in_parts(std::uint64_t all, std::int64_t batch, const ImageProgress& progress, const F& f) {
  const auto most = static_cast<std::uint64_t>(batch);
  for (std::uint64_t first = 0; first < all; first += most) {
    f(first, std::min(most, all - first));
    if (progress && !progress(std::min(first + most, all))) throw Interrupted();
  }
}

NetworkState state_of(const Network& network, const TensorSource& weights) {
  const ParameterTable& table = network.table();
  NetworkState state;
  state.parameters.resize(static_cast<std::size_t>(table.all()));
  state.momenta.resize(state.parameters.size());
  state.statistics.resize(static_cast<std::size_t>(table.statistics_size()));
  for (const Parameter& parameter : table.parameters()) {
    const std::vector<float> values = weights(parameter.name, parameter.shape);
    for (std::int64_t i = 0; i < parameter.count(); ++i)
      state.parameters[static_cast<std::size_t>(table.place(parameter, i))] =
          values[static_cast<std::size_t>(i)];
  }
  for (const Statistic& statistic : table.statistics()) {
    const std::vector<float> values = weights(statistic.name, {statistic.channels});
    std::copy(values.begin(), values.end(), state.statistics.begin() + statistic.offset);
  }
  return state;
}

std::vector<float> download(const float* from, std::int64_t count, cudaStream_t stream) {
  std::vector<float> values(static_cast<std::size_t>(count));
  examples::check(cudaMemcpyAsync(values.data(), from, values.size() * sizeof(float),
                                  cudaMemcpyDeviceToHost, stream),
                  "cudaMemcpyAsync");
  examples::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return values;
}

void upload(std::span<const float> values, float* to, cudaStream_t stream) {
  examples::check(
      cudaMemcpyAsync(to, values.data(), values.size_bytes(), cudaMemcpyHostToDevice, stream),
      "cudaMemcpyAsync");
}

}  // namespace

// ---- Images -------------------------------------------------------------------------------------

LabelledImages::LabelledImages(const penstock::RecordFile& records, std::int32_t size)
    : records_(records), source_{&records, {.size = size, .random = false}} {}

LabelledImages::Batch LabelledImages::batch(std::uint64_t first, std::uint64_t count,
                                            std::uint64_t all) const {
  std::vector<std::uint64_t> samples;
  for (std::uint64_t i = first; i < first + count; ++i) samples.push_back(i * size() / all);
  const auto side = static_cast<std::uint64_t>(source_.augmentation.size);
  Batch batch;
  batch.pixels.resize(count * cifar10::channels * side * side);
  batch.labels.resize(count);
  source_.fill(0, samples, batch.pixels.data(), batch.labels.data());
  return batch;
}

// ---- What it was made of ------------------------------------------------------------------------

Original::Original(const Architecture& architecture, const Extents& image, std::int64_t batch,
                   const TensorSource& weights)
    : operations_(make_operations({})),
      options_{.architecture = architecture, .images = {batch, image.c, image.h, image.w}},
      network_(options_, *operations_),
      pixels_(options_.images.count()) {
  network_.set_state(state_of(network_, weights), stream_.get());
}

std::vector<float> Original::logits(std::int64_t samples, std::span<const float> pixels) {
  upload(pixels, pixels_.data(), stream_.get());
  network_.infer(pixels_.data(), samples, stream_.get());
  return download(network_.logits(), samples * options_.architecture.classes, stream_.get());
}

// ---- Steps --------------------------------------------------------------------------------------

Model calibrated(const Model& model, const LabelledImages& images, std::uint64_t count,
                 CalibrationMethod method, const ImageProgress& progress) {
  constexpr std::int64_t batch = 64;
  Calibration calibration(model, batch);
  in_parts(count, batch, progress, [&](std::uint64_t first, std::uint64_t part) {
    calibration.add(static_cast<std::int64_t>(part), images.batch(first, part, count).pixels);
  });
  return quantise(model, calibration.thresholds(method));
}

Agreement compare(const InferenceNetwork& network, Original& original, const LabelledImages& images,
                  std::uint64_t count, const ImageProgress& progress) {
  const std::int64_t batch = std::min(network.batches().back(), original.batch());
  const std::int64_t classes = network.classes();
  Extents extents = network.image();
  extents.n = batch;
  penstock::Stream stream;
  InferenceContext context(network);
  DeviceArray<float> pixels(extents.count()), logits(batch * classes);
  Agreement agreement;
  in_parts(count, batch, progress, [&](std::uint64_t first, std::uint64_t part) {
    const LabelledImages::Batch some = images.batch(first, part, count);
    extents.n = static_cast<std::int64_t>(part);
    upload(some.pixels, pixels.data(), stream.get());
    context.run({extents}, pixels.data(), logits.data(), stream.get());
    agreement.add(download(logits.data(), extents.n * classes, stream.get()),
                  original.logits(extents.n, some.pixels), some.labels, classes);
  });
  return agreement;
}

}  // namespace resnet
