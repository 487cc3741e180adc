// SPDX-License-Identifier: Apache-2.0

#include "run.hpp"

#include <cuda_profiler_api.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <penstock/readback.hpp>
#include <penstock/step_graph.hpp>
#include <stdexcept>
#include <utility>

#include "../../common/check.hpp"
#include "../../common/different_files.hpp"
#include "../../common/progress.hpp"
#include "../../data/cifar10.hpp"
#include "../../data/synthetic.hpp"
#include "../model/checkpoint.hpp"
#include "programs/interrupt.hpp"
#include "programs/output_file.hpp"
#include "schedule.hpp"

namespace resnet {
namespace {

bool on_the_cpu() {
  return operations_name().starts_with("reference");
}

/// Samples in a batch of one rank.
std::int64_t samples_of(const Options& options, const TrainingData& data) {
  const std::int64_t images = data.images_per_sample();
  if (options.batch % images != 0)
    throw std::invalid_argument("--batch: " + std::to_string(options.batch) +
                                " images are no whole number of clips of " +
                                std::to_string(images) + " frames: take " +
                                std::to_string((options.batch / images + 1) * images));
  return options.batch / images;
}

Options completed(Options options, const Rung& rung, const DataParallel& ranks,
                  const TrainingData& data) {
  if (options.model.empty()) options.model = on_the_cpu() ? "resnet8" : "resnet18";
  if (options.image_size == 0) options.image_size = on_the_cpu() ? 32 : 224;
  if (options.batch == 0) options.batch = rung.batch;
  if (options.workers == 0) options.workers = rung.workers;
  if (options.epochs != 0)
    options.steps = options.epochs * (static_cast<std::int64_t>(data.size()) /
                                      (samples_of(options, data) * ranks.world_size()));
  if (options.steps > most_steps)
    throw std::invalid_argument("--epochs: they are " + std::to_string(options.steps) +
                                " steps, and a rung measures " + std::to_string(most_steps) +
                                " at most");
  if (!ranks.is_first()) options.watch = false;
  return options;
}

TrainingData open_data(const Options& options) {
  if (!options.videos.empty())
    return TrainingData(open_clips(options.videos, {.frames = options.frames,
                                                    .clips_per_file = options.clips_per_file,
                                                    .classes = options.classes}));
  if (!options.images.empty())
    return TrainingData(open_images(options.images, Split::train, options.classes));
  const auto made_up = [&] {
    const synthetic::Options set{.train = options.records, .test = 1};
    examples::Progress progress("synthetic records", set.train + set.test);
    return synthetic::ensure(options.cache, set, [&](std::uint64_t done) {
      progress.to(done);
      return !penstock::programs::interrupted();
    });
  };
  const auto directory = options.data.empty() ? made_up() : options.data;
  return TrainingData({cifar10::train_files(directory), cifar10::record_bytes});
}

penstock::SamplerOptions sampler_options_of(const Options& options, const DataParallel& ranks,
                                            const TrainingData& data) {
  const std::int64_t samples = samples_of(options, data), batch = samples * ranks.world_size();
  if (data.size() < static_cast<std::uint64_t>(batch))
    throw std::invalid_argument("a batch of " + std::to_string(batch) +
                                (ranks.world_size() > 1 ? ", all ranks together," : "") +
                                " is larger than the data set of " + std::to_string(data.size()) +
                                (options.videos.empty() ? "" : " clips: see --clips-per-file"));
  return {.samples = data.size(),
          .batch_size = samples,
          .shuffle = true,
          .seed = options.seed,
          .drop_last = true};
}

Settings settings_of(const Rung& rung, const Options& options) {
  Settings settings = rung.settings;
  if (options.precision) settings.precision = *options.precision;
  settings.plan_file = options.plans;
  if (options.exhaustive && settings.plans == PlanChoice::timed)
    settings.plans = PlanChoice::exhaustive;
  return settings;
}

}  // namespace

// ---- Run ----------------------------------------------------------------------------------------

Run::Run(const Rung& rung, const Options& options, DataParallel& ranks)
    : rung_(rung),
      ranks_(ranks),
      data_(open_data(options)),
      options_(completed(options, rung, ranks, data_)),
      sampler_(sampler_options_of(options_, ranks, data_), ranks.ranks()),
      augmentation_{.seed = options_.seed, .size = options_.image_size},
      image_source_(data_.float_images(augmentation_)),
      operations_(make_operations(settings_of(rung, options_))),
      measure_(options_.steps),
      losses_(static_cast<std::size_t>(options_.warmup + options_.steps), 0.0f) {
  const std::int32_t size = options_.image_size;
  const bool scaled = rung.loss_scale && operations_->settings().precision == Precision::fp16;
  network_ = std::make_unique<Network>(
      ranks.network_options({.architecture = architecture_of(options_.model, data_.classes()),
                             .images = {options_.batch, cifar10::channels, size, size},
                             .loss_scale = scaled,
                             .layer_ranges = options_.layers}),
      *operations_);
  sgd_.schedule =
      schedule_for(*network_, Decay::cosine, options_.rate, options_.warmup + options_.steps);
  network_->initialise(options_.seed, stream_.get());
  if (!options_.load.empty()) load();
  if (ranks.world_size() > 1) ranks.agree(facts());
  if (!rung.distributed || options_.synthetic) ranks.share(*network_, stream_.get());
  input_ = DeviceArray<std::byte>(network_->input().count() *
                                  static_cast<std::int64_t>(operations_->element_bytes()));
}

void Run::load() {
  load_checkpoint(options_.load, *network_, stream_.get());
  sgd_.schedule.total_steps += network_->state(stream_.get()).step;
}

/// What would make the ranks train otherwise, or wait for each other for ever.
Facts Run::facts() const {
  const auto text = [](auto number) { return std::to_string(number); };
  return {{"rung", rung_.number},
          {"--model", options_.model},
          {"--image-size", text(options_.image_size)},
          {"--batch", text(options_.batch)},
          {"number of steps", text(losses_.size())},
          {"--warmup", text(options_.warmup)},
          {"--seed", text(options_.seed)},
          {"--rate", text(sgd_.schedule.base)},
          {"--frames", text(options_.frames)},
          {"--clips-per-file", text(options_.clips_per_file)},
          {"--precision", to_string(operations_->settings().precision)},
          {"--synthetic", options_.synthetic ? "on" : "off"},
          {"--save", options_.save.empty() ? "none" : options_.save.lexically_normal().string()},
          {"data set's fingerprint", data_.fingerprint()},
          {"number of parameters", text(network_->table().all())},
          {"content of --load",
           options_.load.empty() ? "none" : fingerprint(network_->state(stream_.get()))}};
}

std::size_t Run::pixel_bytes() const {
  return images_layout(batch(), options_.image_size).bytes() - label_bytes();
}
std::size_t Run::label_bytes() const {
  return static_cast<std::size_t>(batch()) * sizeof(std::int32_t);
}

std::uint64_t Run::epochs() const {
  if (options_.input_apart) return 1'000'000;  // The input has no steps to keep up with.
  return (losses_.size() + sampler_.batches() - 1) / sampler_.batches();
}

penstock::SamplerOptions Run::sampler_options() const {
  return sampler_options_of(options_, ranks_, data_);
}

InputFormat Run::input_format() const {
  return {network_->input(), operations_->settings().precision, operations_->settings().format,
          operations_->element_bytes()};
}

void Run::for_each_step(const std::function<void(Step&)>& body) {
  const penstock::ScopedRange range(ranges::EntireTraining{}, losses_.size());
  std::optional<examples::Progress> progress;
  if (!options_.watch && ranks_.is_first()) progress.emplace("steps", losses_.size());
  pace_.emplace();
  ranges::AroundSteps around;
  const auto all = static_cast<std::int64_t>(losses_.size());
  StepsUnderWay& steps = ranks_.steps();
  std::int64_t number = 0;
  for (; number < all && steps.before(penstock::programs::interrupted(), stream()); ++number) {
    Step step(*this, number);
    if (number == options_.warmup) around.close();  // A profiler that starts now has whole ranges.
    profile(number);
    if (number == options_.warmup) {
      ranks_.synchronize(stream());  // What the warm-up queued is not measured.
      measure_.start();
    }
    open(around, step);
    const penstock::ScopedRange step_range(ranges::Step{}, static_cast<std::uint64_t>(number));
    body(step);
    steps.after(stream());
    if (number >= options_.warmup) ++done_;
    if (progress)
      progress->to(static_cast<std::uint64_t>(number + 1),
                   [this] { return pace_->text() + skipped_.text(); });
  }
  interrupted_ = steps.finish(stream());
  measure_.stop();
  memory_.look();
  around.close();
  stop_profiler();
}

/// What is around the step and not open yet. The warm-up has no epochs: the measured steps have.
void Run::open(ranges::AroundSteps& around, const Step& step) const {
  const auto count = [](std::int64_t steps) { return static_cast<std::uint64_t>(steps); };
  if (step.number() < options_.warmup) {
    if (!around.part) around.part.emplace(ranges::WarmUp{}, count(options_.warmup));
    return;
  }
  if (!around.part) around.part.emplace(ranges::MeasuredSteps{}, count(options_.steps));
  if (step.batch() == 0 || !around.epoch)
    around.epoch.emplace(ranges::epoch(step.epoch()), step.epoch());
}

/// Starts or ends a profiler's capture range before this step. Waits for the stream, so that the
/// range holds what its steps have queued, and no more.
void Run::profile(std::int64_t step) {
  const std::int64_t first = options_.profile_start < 0 ? options_.warmup : options_.profile_start;
  const std::int64_t count = options_.profile_start < 0 ? options_.steps : options_.profile_count;
  if (step == first + count) {
    ranks_.synchronize(stream());
    stop_profiler();
  }
  if (step != first) return;
  ranks_.synchronize(stream());
  examples::check(cudaProfilerStart(), "cudaProfilerStart");
  profiling_ = true;
}

void Run::stop_profiler() {
  if (!std::exchange(profiling_, false)) return;
  examples::check(cudaProfilerStop(), "cudaProfilerStop");
}

void Run::train_step(const void* input, const std::int32_t* labels, cudaStream_t stream) {
  network_->clear_metrics(stream);
  network_->forward(input, batch(), stream);
  network_->loss(labels, stream);
  ranks_.backward(*network_, stream);
  network_->step(sgd_, stream);
}

void Run::tell(std::int64_t step, const Metrics& metrics) {
  skipped_.add(metrics, "step " + std::to_string(step));
  losses_[static_cast<std::size_t>(step)] = metrics.loss / metrics.samples;
  if (pace_) pace_->tell(metrics);
}

void Run::copy(void* to, const void* from, std::size_t bytes) const {
  examples::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream()),
                  "cudaMemcpyAsync");
}

void Run::copy_and_wait(void* to, const void* from, std::size_t bytes) const {
  copy(to, from, bytes);
  ranks_.synchronize(stream());
}

Metrics Run::read_metrics() const {
  Metrics metrics;
  const penstock::ScopedRange range(ranges::ReadLoss{}, sizeof(metrics));
  examples::check(cudaMemcpyAsync(&metrics, network_->metrics(), sizeof(metrics),
                                  cudaMemcpyDeviceToHost, stream()),
                  "cudaMemcpyAsync");
  ranks_.synchronize(stream());
  return metrics;
}

Timing Run::timing() const {
  return measure_.timing(batch() * ranks_.world_size(), done_);
}

void Run::save() {
  if (options_.save.empty()) return;
  if (ranks_.is_first()) {
    save_checkpoint(options_.save, *network_, {sgd_, {}}, stream_.get());
    std::printf("saved %s\n", options_.save.c_str());
  }
  ranks_.meet();  // A launcher ends all when the first rank ends.
}

// ---- Step ---------------------------------------------------------------------------------------

std::uint64_t Step::epoch() const {
  return static_cast<std::uint64_t>(number_) / run_.sampler_.batches();
}
std::uint64_t Step::batch() const {
  return static_cast<std::uint64_t>(number_) % run_.sampler_.batches();
}

std::function<void(Metrics)> Step::teller() const {
  return [&run = run_, number = number_](const Metrics& metrics) { run.tell(number, metrics); };
}

void Step::compute(const float* pixels, const std::int32_t* labels, cudaStream_t stream) {
  compute(stream, [&] {
    run_.pack(pixels, stream);
    run_.train_step(run_.packed(), labels, stream);
  });
}

void Step::compute(const std::uint8_t* pixels, const std::int32_t* labels, cudaStream_t stream) {
  compute(stream, [&] {
    run_.pack(pixels, stream);
    run_.train_step(run_.packed(), labels, stream);
  });
}

void Step::compute(const std::byte* packed, const std::int32_t* labels, cudaStream_t stream) {
  compute(stream, [&] { run_.train_step(packed, labels, stream); });
}

// ---- The main function --------------------------------------------------------------------------

namespace {

/// The same batch in every step, on the device from the start: what the rung could reach with data
/// for free.
void train_synthetic(Run& run) {
  std::vector<std::uint64_t> samples;
  run.sampler().samples(0, 0, samples);
  const auto layout = images_layout(run.batch(), run.options().image_size);
  std::vector<std::byte> block(layout.bytes());
  Images images = layout.bind(block.data(), run.batch());
  run.image_source()({.samples = samples}, images);
  DeviceArray<std::byte> on_device(static_cast<std::int64_t>(block.size()));
  on_device.set(block, run.stream());
  images = layout.bind(on_device.data(), run.batch());
  if (run.rung().graph) run.pack(images.pixels.data_handle(), run.stream());

  penstock::StepGraph graphs;
  penstock::Readback<Metrics> losses(kStepsAhead);
  const auto compute = [&](Step& step) {
    if (!run.rung().graph)
      return step.compute(images.pixels.data_handle(), images.labels.data_handle(), run.stream());
    const auto train = [&] {
      run.train_step(run.packed(), images.labels.data_handle(), run.stream());
    };
    step.compute(run.stream(), [&] {
      if (run.captures(step))
        graphs.launch_numbered(0, run.stream(), train);
      else
        train();
    });
  };
  run.for_each_step([&](Step& step) {
    compute(step);
    losses.push(run.network().metrics(), run.stream(), step.teller());
  });
  losses.drain();
}

nlohmann::json result_of(const Rung& rung, const Run& run) {
  const Timing timing = run.timing();
  const Options& options = run.options();
  const Settings& settings = run.operations().settings();
  return {{"rung", rung.number},
          {"name", rung.name},
          {"after", rung.after},
          {"change", rung.change},
          {"operations", operations_name()},
          {"emulated", on_the_cpu()},
          {"synthetic", options.synthetic},
          {"model", options.model},
          {"image_size", options.image_size},
          {"batch", options.batch},
          {"images_per_sample", run.data().images_per_sample()},
          {"ranks", run.ranks().world_size()},
          {"precision", to_string(settings.precision)},
          {"plans", to_string(settings.plans)},
          {"images_per_second", timing.images_per_second},
          {"step_ms", timing.step},
          {"load_ms", timing.load},
          {"copy_ms", timing.copy},
          {"compute_ms", timing.compute},
          {"idle", timing.idle},
          {"cpu_cores", timing.cores},
          {"device_bytes", run.device_bytes()},
          {"first_batch_seconds", std::chrono::duration<double>(run.first_batch()).count()},
          {"input_images_per_second", run.input_rate()},
          {"skipped_steps", run.skipped().count()},
          {"losses", run.losses()}};
}

void write_result(const std::filesystem::path& path, const nlohmann::json& result) {
  penstock::programs::write_file(path, result.dump(1) + '\n');
}

void print_result(const Rung& rung, const Run& run) {
  const Timing timing = run.timing();
  const int ranks = run.ranks().world_size();
  const std::string by = ranks == 1 ? "" : " on each of " + std::to_string(ranks) + " ranks";
  std::printf("%s %s%s: %s, %d x %d, batch %lld%s, %s\n", rung.number.c_str(), rung.name.c_str(),
              run.options().synthetic ? ", synthetic" : "", run.options().model.c_str(),
              run.options().image_size, run.options().image_size,
              static_cast<long long>(run.batch()), by.c_str(), operations_name().c_str());
  std::printf("%.1f images/s; a step %.2f ms: load %.2f, copy %.2f, compute %.2f; idle %.1f %%\n",
              timing.images_per_second, timing.step, timing.load, timing.copy, timing.compute,
              100 * timing.idle);
  if (const std::int64_t frames = run.data().images_per_sample(); frames > 1)
    std::printf("%.1f clips/s of %lld frames, each of which is an image\n",
                timing.images_per_second / static_cast<double>(frames),
                static_cast<long long>(frames));
  std::printf("memory of the device: %s\n", examples::memory_text(run.device_bytes()).c_str());
  if (run.input_rate() > 0) std::printf("the input beside it: %.1f images/s\n", run.input_rate());
  std::printf("loss %.4f%s\n", static_cast<double>(run.losses().back()),
              run.skipped().text().c_str());
}

void require_different_files(const Options& options) {
  const examples::NamedFile save("--save", options.save), json("--json", options.json),
      plans("--plans", options.plans), load("--load", options.load);
  examples::require_different(save, json);
  examples::require_different(save, plans);
  examples::require_different(plans, json);
  examples::require_different(load, json);
  examples::require_different(load, plans);
}

void require_writable(const Options& options) {
  for (const auto& path : {options.save, options.json})
    if (!path.empty()) penstock::programs::require_writable(path);
}

int run_on(DataParallel& ranks, const Rung& rung, const Options& options) try {
  if (ranks.is_first()) require_writable(options);
  Run run(rung, options, ranks);
  (options.synthetic && !rung.own_synthetic ? train_synthetic : rung.train)(run);
  run.save();
  if (run.interrupted()) return interrupted_exit_code();
  if (!ranks.is_first()) return 0;
  print_result(rung, run);
  if (!options.json.empty()) write_result(options.json, result_of(rung, run));
  return 0;
} catch (const std::exception& error) {
  ranks.fail(error.what());
  return report(ranks.named(rung.name), error);
}

}  // namespace

int run_rung(const Rung& rung, int argc, char** argv) {
  Options options;
  if (const auto status =
          parse(argc, argv, rung.number + " " + rung.name + ": " + rung.change, options))
    return *status;
  try {
    if (options.watch && (!rung.prefetcher || options.synthetic))
      throw std::invalid_argument("--watch: there is no prefetcher; T12 and on have one");
    for (const std::string& option : options.special)
      if (std::find(rung.special.begin(), rung.special.end(), option) == rung.special.end())
        throw std::invalid_argument(option + ": " + rung.number +
                                    " does not have it; --help says which rungs do");
    require_different_files(options);
    DataParallel ranks(penstock::Ranks::from_environment(), options.distributed);
    // Only now: a launcher's SIGTERM ends a rank that waits for one that will not come.
    penstock::programs::watch_interrupts();
    return run_on(ranks, rung, options);
  } catch (const std::exception& error) {
    return report(rung.name, error);
  }
}

}  // namespace resnet
