// SPDX-License-Identifier: Apache-2.0

// train: trains a ResNet on CIFAR-10 to an accuracy, by the best rung's means. Validates after each
// epoch, writes a checkpoint, and goes on from one as if it had never stopped.

#include <penstock/prefetcher.hpp>
#include <penstock/readback.hpp>
#include <penstock/step_graph.hpp>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "../../common/check.hpp"
#include "../../common/interrupt.hpp"
#include "../../common/progress.hpp"
#include "../../data/cifar10.hpp"
#include "../../data/synthetic.hpp"
#include "../data/input.hpp"
#include "../model/checkpoint.hpp"

namespace resnet {
namespace {

namespace fs = std::filesystem;

struct TrainOptions {
  std::string model;
  std::int32_t image_size = 0;
  std::int64_t batch = 128;
  std::uint64_t epochs = 3;
  float rate = 0.1f;
  double target = 0;  ///< accuracy at which training ends
  std::uint64_t seed = 1;
  int workers = 2;
  bool steps = false;
  fs::path data, cache = fs::temp_directory_path(), checkpoint;
  synthetic::Options set;
};

bool on_the_cpu() {
  return operations_name().starts_with("reference");
}

/// What has to be the same in a run that goes on.
Settings settings() {
  return {.precision = on_the_cpu() ? Precision::fp32 : Precision::fp16,
          .format = on_the_cpu() ? Format::nchw : Format::nhwc,
          .fusion = Fusion::full,
          .plans = PlanChoice::timed};
}

class Training {
 public:
  explicit Training(const TrainOptions& options);

  /// The accuracy on the test set after the last epoch, 0 ... 1.
  double run();
  bool interrupted() const { return examples::interrupted(); }

 private:
  using Prefetcher = penstock::Prefetcher<Packed, Records>;

  std::unique_ptr<Prefetcher> prefetcher(const penstock::RecordFile& records, bool training) const;
  void resume();
  void train_step(const Packed& batch);
  void train_epoch();
  double validate();
  void save();
  void tell(const Metrics& metrics);

  const TrainOptions options_;
  penstock::RecordFile records_, test_records_;
  penstock::Stream stream_;
  std::unique_ptr<Operations> operations_ = make_operations(settings());
  std::unique_ptr<Network> network_;
  SgdOptions sgd_;
  std::unique_ptr<Prefetcher> batches_;
  penstock::StepGraph graphs_;
  std::uint64_t epoch_ = 0, batches_per_epoch_ = 0;
  Metrics of_epoch_;
};

Training::Training(const TrainOptions& options)
    : options_(options),
      records_(cifar10::train_files(options.data), cifar10::record_bytes),
      test_records_({cifar10::test_file(options.data)}, cifar10::record_bytes) {
  network_ = std::make_unique<Network>(
      NetworkOptions{
          .architecture = architecture_of(options.model, cifar10::classes),
          .images = {options.batch, cifar10::channels, options.image_size, options.image_size},
          .loss_scale = operations_->settings().precision == Precision::fp16},
      *operations_);
  network_->initialise(options.seed, stream_.get());
  batches_ = prefetcher(records_, true);
  batches_per_epoch_ = records_.size() / static_cast<std::uint64_t>(options.batch);
  if (batches_per_epoch_ == 0)
    throw std::invalid_argument("a batch of " + std::to_string(options.batch) +
                                " is larger than the training set of " +
                                std::to_string(records_.size()));
  const auto total = static_cast<std::int64_t>(options.epochs * batches_per_epoch_);
  sgd_.schedule = {.decay = options.steps ? Decay::steps : Decay::cosine,
                   .base = options.rate,
                   .warmup_steps = total / 20,
                   .total_steps = total};
  if (!options.checkpoint.empty() && fs::exists(options.checkpoint)) resume();
}

std::unique_ptr<Training::Prefetcher> Training::prefetcher(const penstock::RecordFile& records,
                                                           bool training) const {
  const InputFormat input{network_->input(), operations_->settings().precision,
                          operations_->settings().format, operations_->element_bytes()};
  const Augmentation augmentation{
      .seed = options_.seed, .size = options_.image_size, .random = training};
  return std::make_unique<Prefetcher>(
      records_layout(options_.batch),
      penstock::Sampler{{.samples = records.size(),
                         .batch_size = options_.batch,
                         .shuffle = training,
                         .seed = options_.seed,
                         .drop_last = training}},
      RecordSource{&records}, decode_on_device(input, augmentation),
      penstock::PrefetcherOptions{.workers = options_.workers,
                                  .epochs = training ? options_.epochs : 1});
}

void Training::resume() {
  const CheckpointNotes notes = load_checkpoint(options_.checkpoint, *network_, stream_.get());
  const auto position = notes.texts.find("prefetcher");
  if (!notes.sgd || position == notes.texts.end()) {
    std::printf("starting from the weights in %s\n", options_.checkpoint.c_str());
    return;
  }
  const auto state = penstock::State::parse(position->second);
  batches_->restore(state);
  epoch_ = state.epoch;
  sgd_ = *notes.sgd;
  std::printf("going on from %s: epoch %llu, batch %llu\n", options_.checkpoint.c_str(),
              static_cast<unsigned long long>(state.epoch),
              static_cast<unsigned long long>(state.batch));
}

void Training::train_step(const Packed& batch) {
  const cudaStream_t stream = stream_.get();
  network_->clear_metrics(stream);
  network_->forward(batch.input.data_handle(), options_.batch, stream);
  network_->loss(batch.labels.data_handle(), stream);
  network_->backward(stream);
  network_->step(sgd_, stream);
}

void Training::tell(const Metrics& metrics) {
  if (!std::isfinite(metrics.loss))
    throw std::runtime_error("the loss is " + std::to_string(metrics.loss) +
                             ": lower the learning rate (--rate)");
  of_epoch_.loss += metrics.loss;
  of_epoch_.correct += metrics.correct;
  of_epoch_.samples += metrics.samples;
}

/// What is left of an epoch.
void Training::train_epoch() {
  of_epoch_ = {};
  const auto begin = std::chrono::steady_clock::now();
  examples::Progress progress("batches of epoch " + std::to_string(epoch_ + 1), batches_per_epoch_);
  {
    penstock::Readback<Metrics> results(16);
    while (!examples::interrupted() && batches_->state().epoch == epoch_) {
      const penstock::Lease<Packed> batch = batches_->next(stream_.get());
      if (!batch) break;
      graphs_.launch(batch.slot(), stream_.get(), [&] { train_step(*batch); });
      results.push(network_->metrics(), stream_.get(),
                   [this](const Metrics& metrics) { tell(metrics); });
      progress.to(batch.ticket().batch + 1);
    }
    results.drain();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const double samples = std::max(1.0, static_cast<double>(of_epoch_.samples));
  std::printf("epoch %llu: loss %.4f, accuracy %.2f %%, %.0f images/s\n",
              static_cast<unsigned long long>(epoch_) + 1,
              static_cast<double>(of_epoch_.loss) / samples,
              100 * static_cast<double>(of_epoch_.correct) / samples, samples / seconds.count());
}

/// The accuracy on the test set.
double Training::validate() {
  network_->clear_metrics(stream_.get());
  const auto batches = prefetcher(test_records_, false);
  while (const penstock::Lease<Packed> batch = batches->next(stream_.get())) {
    network_->infer(batch->input.data_handle(), batch->labels.extent(0), stream_.get());
    network_->loss(batch->labels.data_handle(), stream_.get());
  }
  Metrics metrics;
  examples::check(cudaMemcpyAsync(&metrics, network_->metrics(), sizeof(metrics),
                                  cudaMemcpyDeviceToHost, stream_.get()),
                  "cudaMemcpyAsync");
  stream_.synchronize();
  const double accuracy =
      static_cast<double>(metrics.correct) / static_cast<double>(metrics.samples);
  std::printf("epoch %llu: test accuracy %.2f %%\n", static_cast<unsigned long long>(epoch_) + 1,
              100 * accuracy);
  std::fflush(stdout);
  return accuracy;
}

void Training::save() {
  if (options_.checkpoint.empty()) return;
  save_checkpoint(options_.checkpoint, *network_,
                  {sgd_, {{"prefetcher", to_string(batches_->state())}}}, stream_.get());
}

double Training::run() {
  double accuracy = 0;
  for (; epoch_ < options_.epochs; ++epoch_) {
    train_epoch();
    save();
    if (examples::interrupted()) return accuracy;
    accuracy = validate();
    if (options_.target > 0 && accuracy >= options_.target) return accuracy;
  }
  return accuracy;
}

// ---- The command line ---------------------------------------------------------------------------

std::optional<int> parse(int argc, char** argv, TrainOptions& options) {
  CLI::App app("Trains a ResNet on CIFAR-10.");
  app.add_option("--model", options.model, "resnet8, resnet20, resnet18 or resnet50");
  app.add_option("--image-size", options.image_size, "Height and width images are resized to")
      ->check(CLI::Range(8, 4096));
  app.add_option("--batch", options.batch, "Samples in a batch")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--epochs", options.epochs, "In all")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--rate", options.rate, "Learning rate")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--steps", options.steps, "A tenth of the rate at each third, not a cosine");
  app.add_option("--target", options.target, "Test accuracy at which to end, 0 ... 1")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--checkpoint", options.checkpoint,
                 "safetensors file: gone on from if it is there, written after each epoch and at "
                 "Ctrl-C");
  app.add_option("--data", options.data,
                 "Directory of CIFAR-10's binary version; without it, a synthetic set is made");
  app.add_option("--cache", options.cache, "Where the synthetic set is kept");
  app.add_option("--records", options.set.train, "Training records of the synthetic set")
      ->check(CLI::Range(5, 1 << 24));
  app.add_option("--test-records", options.set.test, "Test records of the synthetic set")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--seed", options.seed, "Of weights, order and augmentation");
  app.add_option("--workers", options.workers, "Threads that read")->check(CLI::Range(1, 1024));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  if (options.model.empty()) options.model = on_the_cpu() ? "resnet8" : "resnet18";
  if (options.image_size == 0) options.image_size = on_the_cpu() ? 32 : 224;
  return std::nullopt;
}

void make_data(TrainOptions& options) {
  if (!options.data.empty()) return;
  examples::Progress progress("synthetic records", options.set.train + options.set.test);
  options.data = synthetic::ensure(options.cache, options.set, [&](std::uint64_t done) {
    progress.to(done);
    return !examples::interrupted();
  });
}

int run(TrainOptions& options) {
  make_data(options);
  std::printf("%s, %d x %d, batch %lld, %llu epochs, %s\n", options.model.c_str(),
              options.image_size, options.image_size, static_cast<long long>(options.batch),
              static_cast<unsigned long long>(options.epochs), operations_name().c_str());
  Training training(options);
  const double accuracy = training.run();
  if (training.interrupted()) {
    if (!options.checkpoint.empty())
      std::printf("interrupted; the same command goes on from %s\n", options.checkpoint.c_str());
    return examples::interrupted_exit_code();
  }
  if (options.target > 0 && accuracy < options.target) {
    std::printf("the target of %.2f %% was not reached\n", 100 * options.target);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace resnet

int main(int argc, char** argv) {
  resnet::TrainOptions options;
  examples::watch_interrupts();
  try {
    if (const auto status = resnet::parse(argc, argv, options)) return *status;
    return resnet::run(options);
  } catch (const synthetic::Interrupted&) {
    return examples::interrupted_exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train: %s\n", error.what());
    return 1;
  }
}
