// SPDX-License-Identifier: Apache-2.0

// classify: what is on images. Workers read, decode and frame them into pinned memory; bytes cross
// the bus; the network, a graph for each batch size, begins with their normalisation; the answers
// come back by themselves and are printed by another thread.

#include <unistd.h>
#include <penstock/prefetcher.hpp>
#include <penstock/readback.hpp>
#include <penstock/step_graph.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>

#include "../../train/options.hpp"
#include "answers.hpp"
#include "options.hpp"
#include "programs/interrupt.hpp"

namespace resnet::classify {
namespace {

constexpr std::int64_t usual_batch = 32;  // of weights that nobody prepared

std::unique_ptr<Inputs> inputs_of(const Options& options) {
  if (options.standard_input && (!options.inputs.empty() || options.records))
    throw std::invalid_argument(
        "either paths of images from the standard input, or files that are named");
  if (options.standard_input) return read_paths(STDIN_FILENO);
  if (options.inputs.empty())
    throw std::invalid_argument("nothing to classify: name images, directories, or - (--help)");
  std::vector<std::filesystem::path> paths(options.inputs.begin(), options.inputs.end());
  return options.records ? list_records(paths) : list_files(paths);
}

std::vector<std::string> names_of(const Options& options, const Model& model) {
  if (options.classes.empty()) return {};
  std::vector<std::string> names = class_names(options.classes);
  if (names.size() != model.last_bias.size())
    throw std::invalid_argument(options.classes.string() + " has the names of " +
                                std::to_string(names.size()) + " classes, and the network has " +
                                std::to_string(model.last_bias.size()));
  return names;
}

/// Where there are few images, every worker gets some.
std::int64_t batch_of(const Options& options, const InferenceNetwork& network, const Inputs& inputs,
                      int workers) {
  const std::int64_t largest = network.image().n;
  if (options.batch > largest)
    throw std::invalid_argument("--batch: " + std::to_string(options.batch) +
                                " images, and the model is prepared for " +
                                std::to_string(largest));
  const std::int64_t most = options.batch != 0 ? options.batch : largest;
  const std::int64_t count = static_cast<std::int64_t>(inputs.count().value_or(1U << 30));
  return std::clamp((count + workers - 1) / workers, std::int64_t{1}, most);
}

/// The logits of batches on their way back, told by a thread of the readback's in their order. One
/// thread at a time.
class LogitsReadback {
 public:
  LogitsReadback(std::int64_t classes, std::int64_t largest_batch, Answers& answers)
      : classes_(classes),
        answers_(answers),
        logits_(classes * largest_batch),
        readback_(batches_under_way, static_cast<std::size_t>(classes * largest_batch)) {}

  /// In device memory: of the largest batch.
  float* logits() const { return logits_.data(); }

  /// Queues; waits for nothing but room in the readback. Then logits() may be overwritten in the
  /// stream. Throws what telling threw before.
  void push(Notes notes, cudaStream_t stream) {
    const auto count = static_cast<std::size_t>(notes.rows * classes_);
    readback_.push(logits(), count, stream,
                   [this, batch = std::make_shared<const Notes>(std::move(notes))](
                       std::span<const float> logits) { answers_.tell(*batch, logits); });
  }
  void drain() { readback_.drain(); }

 private:
  static constexpr std::size_t batches_under_way = 4;

  const std::int64_t classes_;
  Answers& answers_;
  const DeviceArray<float> logits_;
  penstock::Readback<float[]> readback_;  // last: its thread tells until it ends
};

/// How a network takes pictures.
class PictureNetwork {
 public:
  PictureNetwork(const InferenceNetwork& network, const Normalisation& normalisation)
      : context_(network) {
    input_.images = network.image();
    input_.format = Format::nhwc;
    for (std::size_t c = 0; c < 3; ++c) {
      input_.factor[c] = 1 / (255 * normalisation.deviation[c]);
      input_.offset[c] = -normalisation.mean[c] / normalisation.deviation[c];
    }
  }

  /// Runs every batch size up to `largest`, so that kernels are loaded before anything is captured.
  /// Waits.
  void warm_up(std::int64_t largest, float* logits, cudaStream_t stream) {
    const DeviceArray<std::uint8_t> black(input_.images.count());
    for (const std::int64_t size : context_.network().batches())
      if (size <= largest) run(size, black.data(), logits, stream);
    examples::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }

  /// Queues. Behind the batch's own pictures there are others, or zeros, up to the next size that
  /// plans were made for.
  void run(const penstock::Lease<Pictures>& batch, float* logits, cudaStream_t stream) {
    const std::vector<std::int64_t>& sizes = context_.network().batches();
    const auto size = std::lower_bound(sizes.begin(), sizes.end(), batch.samples());
    graphs_.launch(batch, stream, [&] { run(*size, batch->pixels.data_handle(), logits, stream); });
  }

 private:
  void run(std::int64_t pictures, const std::uint8_t* pixels, float* logits, cudaStream_t stream) {
    input_.images.n = pictures;
    context_.run(input_, pixels, logits, stream);
  }

  ImageInput input_;
  InferenceContext context_;
  penstock::StepGraph graphs_;
};

void classify_all(const Options& options, const Model& model, const InferenceNetwork& network,
                  Inputs& inputs, Answers& answers) {
  const std::string& name = model.architecture.name;
  const auto size = static_cast<std::int32_t>(network.image().h);
  penstock::PrefetcherOptions pipeline{.stall_timeout = {}};  // paths come when they come
  if (options.workers != 0) pipeline.workers = options.workers;
  const std::int64_t batch_size = batch_of(options, network, inputs, pipeline.workers);
  const auto layout = pictures_layout(network.batch_for(batch_size), size);

  const penstock::Stream stream;
  LogitsReadback logits(network.classes(), layout.batch_size(), answers);
  PictureNetwork pictures(network, normalisation_of(options, name));
  pictures.warm_up(layout.batch_size(), logits.logits(), stream.get());

  Ledger ledger;
  penstock::Prefetcher<Pictures> prefetcher(
      layout, penstock::Unbounded::indexed(batch_size), penstock::per_worker([&] {
        return PictureSource(layout, inputs, framing_of(options, name, size), ledger,
                             options.limits);
      }),
      pipeline);
  while (!penstock::programs::interrupted()) {
    const penstock::Lease<Pictures> batch = prefetcher.next(stream.get());
    if (!batch) break;
    Notes notes = ledger.take(batch.ticket().batch);
    if (notes.rows > 0) pictures.run(batch, logits.logits(), stream.get());
    logits.push(std::move(notes), stream.get());
  }
  logits.drain();
}

int classify(const Options& options, Clock::time_point start) {
  if (options.model.prepared.empty() && options.model.weights.empty())
    throw std::invalid_argument("which network: --prepared, or --weights and --model (--help)");
  const std::unique_ptr<Inputs> inputs = inputs_of(options);
  const Model model = load(options.model);
  AnswerOptions printing{options.top, options.json, names_of(options, model), inputs->count()};
  const auto size = static_cast<std::int32_t>(model.image.h);
  static_cast<void>(framing_of(options, model.architecture.name, size));  // A mistake is told now.
  const penstock::Stream stream;
  const std::set<std::int64_t> batches{1, options.batch != 0 ? options.batch : usual_batch};
  const auto network =
      make_network(model, options.model, {batches.begin(), batches.end()}, stream.get());
  Answers answers(std::move(printing), network->classes(), start);
  classify_all(options, model, *network, *inputs, answers);
  std::fputs(answers.summary().c_str(), stderr);
  if (penstock::programs::interrupted()) return penstock::programs::interrupted_exit_code();
  return answers.answered() == 0 ? 2 : answers.skipped() > 0 ? 1 : 0;
}

}  // namespace
}  // namespace resnet::classify

int main(int argc, char** argv) {
  const auto start = resnet::classify::Clock::now();
  resnet::classify::Options options;
  if (const auto status = resnet::classify::parse(argc, argv, options)) return *status;
  penstock::programs::watch_interrupts();
  try {
    return resnet::classify::classify(options, start);
  } catch (const std::exception& error) {
    return resnet::report("classify", error);
  }
}
