// SPDX-License-Identifier: Apache-2.0

#include "training.hpp"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <penstock/readback.hpp>
#include <sstream>
#include <stdexcept>

#include "../../common/check.hpp"
#include "../../common/progress.hpp"
#include "../../common/watch.hpp"
#include "../../data/cifar10.hpp"
#include "../model/safetensors.hpp"
#include "options.hpp"
#include "programs/interrupt.hpp"
#include "ranges.hpp"
#include "schedule.hpp"

namespace resnet {
namespace {

/// What is in the notes of a checkpoint, besides what identity() lists.
constexpr const char* position_note = "prefetcher";
constexpr const char* totals_note = "totals";

TrainingData open_data(const TrainOptions& options, Split split) {
  if (!options.images.empty())
    return TrainingData(open_images(options.images, split, options.classes));
  const auto files = split == Split::train ? cifar10::train_files(options.data)
                                           : std::vector{cifar10::test_file(options.data)};
  return TrainingData({files, cifar10::record_bytes});
}

TrainOptions completed(TrainOptions options, const DataParallel& ranks) {
  if (!ranks.is_first()) options.watch = false;
  return options;
}

/// The shortest that reads as this number and no other.
std::string text_of(float number) {
  char text[40];
  return std::string(text, std::to_chars(text, text + sizeof(text), number).ptr);
}

}  // namespace

Settings train_settings(const std::filesystem::path& plans) {
  const bool on_the_cpu = operations_name().starts_with("reference");
  return {.precision = on_the_cpu ? Precision::fp32 : Precision::fp16,
          .format = on_the_cpu ? Format::nchw : Format::nhwc,
          .fusion = Fusion::full,
          .plans = PlanChoice::timed,
          .plan_file = plans};
}

Training::Training(const TrainOptions& options, DataParallel& ranks)
    : ranks_(ranks),
      options_(completed(options, ranks)),
      data_(open_data(options, Split::train)),
      test_data_(open_data(options, Split::validation)),
      operations_(make_operations(train_settings(options.plans))) {
  batches_per_epoch_ = data_.size() / static_cast<std::uint64_t>(batch_of_all());
  if (batches_per_epoch_ == 0)
    throw std::invalid_argument("a batch of " + std::to_string(batch_of_all()) +
                                (ranks.world_size() > 1 ? ", all ranks together," : "") +
                                " is larger than the training set of " +
                                std::to_string(data_.size()));
  network_ = std::make_unique<Network>(
      ranks.network_options(
          {.architecture = architecture_of(options.model, data_.classes()),
           .images = {options.batch, cifar10::channels, options.image_size, options.image_size},
           .loss_scale = operations_->settings().precision == Precision::fp16}),
      *operations_);
  network_->initialise(options.seed, stream_.get());
  const auto total = static_cast<std::int64_t>(options.epochs * batches_per_epoch_);
  sgd_.schedule =
      schedule_for(*network_, options.steps ? Decay::steps : Decay::cosine, options.rate, total);
  if (!options.checkpoint.empty() && std::filesystem::exists(options.checkpoint)) resume();
  if (!batches_) batches_ = batches(data_, true);
  if (ranks.world_size() > 1) ranks.agree(facts());
  ranks.share(*network_, stream_.get());
  // In the first step of several ranks, NCCL sets up what its collectives need: no graph can.
  captures_ = ranks.world_size() == 1;
}

std::unique_ptr<PackedBatches> Training::batches(
    const TrainingData& data, bool training, const std::optional<penstock::State>& resumed) const {
  const InputFormat input{network_->input(), operations_->settings().precision,
                          operations_->settings().format, operations_->element_bytes()};
  return packed_batches(data, input,
                        {.seed = options_.seed, .size = options_.image_size, .random = training},
                        {.epochs = training ? options_.epochs : 1,
                         .workers = options_.workers,
                         .device_times = options_.watch,
                         .broken = options_.broken,
                         .ranks = ranks_.ranks(),
                         .resumed = resumed});
}

// ---- Checkpoints --------------------------------------------------------------------------------

/// What decides the result of a run: a checkpoint is gone on from only where all of it is the same.
std::map<std::string, std::string> Training::identity() const {
  return {{"--model", options_.model},
          {"--image-size", std::to_string(options_.image_size)},
          {"--batch", std::to_string(batch_of_all())},
          {"--epochs", std::to_string(options_.epochs)},
          {"--rate", text_of(sgd_.schedule.base)},
          {"--steps", options_.steps ? "on" : "off"},
          {"--seed", std::to_string(options_.seed)},
          {"the data set's fingerprint", data_.fingerprint()}};
}

/// What would make the ranks train otherwise, or wait for each other for ever.
Facts Training::facts() const {
  const std::map<std::string, std::string> run = identity();
  Facts facts(run.begin(), run.end());
  facts.insert(facts.end(), {{"precision", to_string(operations_->settings().precision)},
                             {"number of parameters", std::to_string(network_->table().all())},
                             {"size of the test set", std::to_string(test_data_.size())},
                             {"content of --checkpoint",
                              resumed_ ? fingerprint(network_->state(stream_.get())) : "none"},
                             {"position in the data", to_string(batches_->state())}});
  return facts;
}

void Training::save() {
  if (options_.checkpoint.empty()) return;
  if (ranks_.is_first()) write_checkpoint();
  ranks_.meet();  // A launcher ends all when the first rank ends.
}

void Training::write_checkpoint() {
  CheckpointNotes notes{sgd_, identity()};
  notes.texts[position_note] = to_string(batches_->state());
  char totals[100];  // In hexadecimal: to the last bit.
  std::snprintf(totals, sizeof(totals), "%a %a %a", totals_.loss, totals_.correct, totals_.samples);
  notes.texts[totals_note] = totals;
  save_checkpoint(options_.checkpoint, *network_, notes, stream_.get());
}

CheckpointNotes Training::load() try {
  return load_checkpoint(options_.checkpoint, *network_, stream_.get());
} catch (const safetensors::FormatError& error) {
  throw safetensors::FormatError(std::string(error.what()) + " (read as a checkpoint of " +
                                 options_.model + ")");
}

void Training::resume() {
  const std::string name = options_.checkpoint.string();
  const CheckpointNotes notes = load();
  resumed_ = true;
  if (notes.sgd && !notes.has_checksum && ranks_.is_first())
    std::printf("%s has no checksum, as checkpoints of earlier versions: damage is not found\n",
                name.c_str());
  const auto note = [&](const std::string& key) {
    const auto found = notes.texts.find(key);
    return found == notes.texts.end() ? std::string() : found->second;
  };
  if (!notes.sgd || note(position_note).empty()) return start_from_weights();
  for (const auto& [option, here] : identity())
    if (note(option) != here) {
      const bool of_all = option == "--batch" && ranks_.world_size() > 1;
      throw std::invalid_argument((std::ostringstream()
                                   << name << " is a checkpoint of another run: " << option
                                   << (of_all ? ", all ranks together," : "") << " is "
                                   << note(option) << " there, and " << here << " here")
                                      .str());
    }
  try {
    totals_ = parse_totals(note(totals_note));
    const auto position = penstock::State::parse(note(position_note));
    if (position.epoch > options_.epochs ||
        (position.epoch == options_.epochs && position.batch > 0))
      throw std::invalid_argument("it is behind the last of " + std::to_string(options_.epochs) +
                                  " epochs");
    batches_ = batches(data_, true, position);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(name + ": " + error.what());
  }
  const penstock::State position = batches_->state();
  sgd_ = *notes.sgd;
  if (!ranks_.is_first()) return;
  std::printf("going on from %s, behind %" PRIu64 " epochs and %" PRIu64 " batches\n", name.c_str(),
              position.epoch, position.batch);
}

Training::Totals Training::parse_totals(const std::string& text) {
  Totals totals;
  int end = 0;
  const int read = std::sscanf(text.c_str(), "%la %la %la%n", &totals.loss, &totals.correct,
                               &totals.samples, &end);
  const bool finite = std::isfinite(totals.loss) && std::isfinite(totals.samples);
  if (read != 3 || static_cast<std::size_t>(end) != text.size() || !finite || totals.correct < 0 ||
      !(totals.correct <= totals.samples))
    throw std::invalid_argument("it does not say what the epoch has come to");
  return totals;
}

/// Of a file that PyTorch, or a rung, wrote: with momenta and schedule as at the start.
void Training::start_from_weights() {
  NetworkState state = network_->state(stream_.get());
  std::fill(state.momenta.begin(), state.momenta.end(), 0.0f);
  state.step = 0;
  network_->set_state(state, stream_.get());
  if (!ranks_.is_first()) return;
  std::printf("starting from the weights in %s\n", options_.checkpoint.c_str());
}

// ---- Epochs -------------------------------------------------------------------------------------

std::optional<double> Training::run() {
  const penstock::ScopedRange range(ranges::EntireTraining{}, options_.epochs);
  const std::optional<double> accuracy = train_epochs();
  print_failures("training", *batches_);
  return accuracy;
}

std::optional<double> Training::train_epochs() {
  for (bool ended = false; !ended;) {
    const penstock::State position = batches_->state();
    if (position.epoch > 0 && position.batch == 0) {  // Also where a checkpoint was written here.
      const std::optional<double> accuracy = validate(position.epoch);
      if (!accuracy || position.epoch == options_.epochs) return accuracy;
      if (options_.target > 0 && *accuracy >= options_.target) return accuracy;
    }
    ended = train_epoch();
    save();
  }
  return std::nullopt;
}

void Training::print_failures(const std::string& where, const PackedBatches& batches) const {
  const std::vector<penstock::Failure> failures = batches.failures();
  if (failures.empty()) return;
  const int world_size = ranks_.world_size();
  std::printf("%s%zu broken files in %s, %s:\n",
              world_size == 1 ? "" : ("rank " + std::to_string(ranks_.rank()) + ": ").c_str(),
              failures.size(), where.c_str(),
              failures.front().replaced ? "each replaced by another" : "left out");
  for (const penstock::Failure& failure : failures)
    std::printf("  epoch %" PRIu64 ": %s\n", failure.epoch + 1, failure.what.c_str());
}

/// What is left of an epoch. Whether somebody interrupted it.
bool Training::train_epoch() {
  const penstock::State begin = batches_->state();
  const penstock::ScopedRange range(ranges::epoch(begin.epoch), begin.epoch);
  if (begin.batch == 0) totals_ = {};
  Pace pace;
  std::uint64_t done = begin.batch;
  StepsUnderWay& steps = ranks_.steps();
  bool ended = false;
  {
    const auto watch = examples::watch_if(options_.watch, *batches_);
    std::optional<examples::Progress> progress;
    if (!watch && ranks_.is_first())
      progress.emplace("batches of epoch " + std::to_string(begin.epoch + 1), batches_per_epoch_);
    penstock::Readback<Metrics> results(16);
    while (done < batches_per_epoch_ &&
           steps.before(penstock::programs::interrupted(), stream_.get())) {
      const penstock::State position = batches_->state();
      const std::uint64_t number = position.epoch * batches_per_epoch_ + position.batch;
      const penstock::ScopedRange step_range(ranges::Step{}, number);
      const penstock::Lease<Packed> batch = get_batch(number);
      queue_step(batch);
      steps.after(stream_.get());
      results.push(network_->metrics(), stream_.get(), [&, position](const Metrics& metrics) {
        tell(position, metrics);
        pace.tell(metrics);
      });
      ++done;
      if (progress) progress->to(done, [&] { return pace.text() + skipped_.text(); });
    }
    ended = steps.finish(stream_.get());
    results.drain();
  }
  if (done > begin.batch && ranks_.is_first()) print_epoch(begin.epoch + 1, done, pace);
  return ended;
}

penstock::Lease<Packed> Training::get_batch(std::uint64_t step) {
  const penstock::ScopedRange range(ranges::GetBatch{}, step);
  penstock::Lease<Packed> batch = batches_->next(stream_.get());
  if (!batch) throw std::logic_error("the training set ended within an epoch");
  return batch;
}

void Training::queue_step(const penstock::Lease<Packed>& batch) {
  if (captures_) return graphs_.launch(batch, stream_.get(), [&] { train_step(*batch); });
  train_step(*batch);
  captures_ = true;
}

void Training::train_step(const Packed& batch) {
  const cudaStream_t stream = stream_.get();
  network_->clear_metrics(stream);
  network_->forward(batch.input.data_handle(), options_.batch, stream);
  network_->loss(batch.labels.data_handle(), stream);
  ranks_.backward(*network_, stream);
  network_->step(sgd_, stream);
}

void Training::tell(const penstock::State& position, const Metrics& metrics) {
  skipped_.add(metrics, "epoch " + std::to_string(position.epoch + 1) + ", batch " +
                            std::to_string(position.batch + 1));
  if (!std::isfinite(metrics.loss)) return;  // Of a step that was skipped.
  totals_.loss += static_cast<double>(metrics.loss);
  totals_.correct += static_cast<double>(metrics.correct);
  totals_.samples += static_cast<double>(metrics.samples);
}

/// Loss and accuracy are of the epoch from its start, whatever was before a resume; the speed is
/// this run's.
void Training::print_epoch(std::uint64_t epoch, std::uint64_t done, const Pace& pace) const {
  const double samples = std::max(1.0, totals_.samples);
  std::printf("epoch %" PRIu64, epoch);
  if (done < batches_per_epoch_)
    std::printf(", its first %" PRIu64 " of %" PRIu64 " batches", done, batches_per_epoch_);
  std::printf(": loss %.4f, accuracy %.2f %%, %.0f images/s%s\n", totals_.loss / samples,
              100 * totals_.correct / samples, pace.images_per_second(), skipped_.text().c_str());
}

/// Counts what this rank has of the test set. Whether it came to its end.
bool Training::evaluate(PackedBatches& test) {
  while (const penstock::Lease<Packed> batch = test.next(stream_.get())) {
    if (penstock::programs::interrupted()) return false;
    ranks_.check();
    network_->infer(batch->input.data_handle(), batch->labels.extent(0), stream_.get());
    network_->loss(batch->labels.data_handle(), stream_.get());
  }
  return true;
}

/// The accuracy on the test set; none when it was interrupted.
std::optional<double> Training::validate(std::uint64_t epoch) {
  const penstock::ScopedRange range(ranges::Validation{}, epoch);
  ranks_.share_statistics(*network_, stream_.get());
  network_->clear_metrics(stream_.get());
  const auto test = batches(test_data_, false);
  const bool whole = test == nullptr || evaluate(*test);
  if (ranks_.sum_metrics(*network_, !whole, stream_.get())) return std::nullopt;
  Metrics metrics;
  {
    const penstock::ScopedRange read_range(ranges::ReadLoss{}, sizeof(metrics));
    examples::check(cudaMemcpyAsync(&metrics, network_->metrics(), sizeof(metrics),
                                    cudaMemcpyDeviceToHost, stream_.get()),
                    "cudaMemcpyAsync");
    stream_.synchronize();
  }
  if (!std::isfinite(metrics.loss))
    throw std::runtime_error("the loss on the test set, behind epoch " + std::to_string(epoch) +
                             ", is " + std::to_string(metrics.loss) +
                             ": an accuracy of it says nothing");
  if (test != nullptr) print_failures("the test set", *test);
  const double accuracy =
      static_cast<double>(metrics.correct) / static_cast<double>(metrics.samples);
  if (ranks_.is_first())
    std::printf("epoch %" PRIu64 ": test accuracy %.2f %%\n", epoch, 100 * accuracy);
  return accuracy;
}

}  // namespace resnet
