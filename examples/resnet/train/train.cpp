// SPDX-License-Identifier: Apache-2.0

// train: trains a ResNet on CIFAR-10 or on JPEG files to an accuracy, by the best rung's means.
// Validates after each epoch, writes a checkpoint, and goes on from one as if it had never stopped.
// See training.hpp.

#include "training.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

#include "../../common/different_files.hpp"
#include "../../common/progress.hpp"
#include "../../data/synthetic.hpp"
#include "options.hpp"
#include "programs/command_line.hpp"
#include "programs/interrupt.hpp"
#include "programs/output_file.hpp"

namespace resnet {
namespace {

namespace fs = std::filesystem;

/// Of the synthetic set, where there is no other.
struct SetOptions {
  fs::path cache;
  synthetic::Options set;
};

std::optional<int> parse_options(int argc, char** argv, TrainOptions& options,
                                 DistributedOptions& distributed, SetOptions& made_up) {
  CLI::App app("Trains a ResNet on CIFAR-10, or on JPEG files.");
  app.add_option("--model", options.model, "resnet8, resnet20, resnet18 or resnet50");
  app.add_option("--image-size", options.image_size, "Height and width images are resized to")
      ->check(CLI::Range(8, 4096));
  app.add_option("--batch", options.batch, "Samples in a batch")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--epochs", options.epochs, "In all")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--rate", options.rate,
                 "Learning rate behind the warm-up; else by batch and model, see schedule.hpp")
      ->check(penstock::programs::finite(1e-30, 1e30));
  app.add_flag("--steps", options.steps, "A tenth of the rate at each third, not a cosine");
  app.add_option("--target", options.target, "Test accuracy at which to end, 0 ... 1")
      ->check(penstock::programs::finite(0, 1));
  app.add_option("--checkpoint", options.checkpoint,
                 "safetensors file: gone on from if it is there, written after each epoch and at "
                 "Ctrl-C");
  app.add_option("--plans", options.plans,
                 "File that cuDNN's plans are kept in and read from: a second start is fast");
  app.add_flag("--watch", options.watch, "What the pipeline waits for, while it trains");
  auto* const data =
      app.add_option("--data", options.data,
                     "Directory of CIFAR-10's binary version; without it, a synthetic set is made");
  app.add_option(
         "--images", options.images,
         "JPEG files, in place of CIFAR-10: a directory with train and val, each with a folder "
         "for each class; with train-*.tar and val-*.tar; or with train.pack and val.pack; or "
         "the URL of such folders or packed files, with a slash at the end")
      ->excludes(data);
  app.add_option("--classes", options.classes, "Of --images; otherwise as their labels say")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option(
         "--broken", options.broken,
         "Image files that may be broken: others take their places, and they are listed at the end")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--cache", made_up.cache,
                 "Where the synthetic set is kept: by default ~/.cache/penstock");
  app.add_option("--records", made_up.set.train, "Training records of the synthetic set")
      ->check(CLI::Range(5, 1 << 24));
  app.add_option("--test-records", made_up.set.test, "Test records of the synthetic set")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--seed", options.seed, "Of weights, order and augmentation")
      ->transform(penstock::programs::whole_number());
  app.add_option("--workers", options.workers, "Threads that read")->check(CLI::Range(1, 1024));
  add_options(app, distributed);
  if (const auto status = penstock::programs::parse(app, argc, argv)) return status;
  const bool on_the_cpu = operations_name().starts_with("reference");
  if (options.model.empty()) options.model = on_the_cpu ? "resnet8" : "resnet18";
  if (options.image_size == 0) options.image_size = on_the_cpu ? 32 : 224;
  return std::nullopt;
}

/// Of several ranks on a machine one makes it, and the others wait.
fs::path make_data(const SetOptions& made_up, DataParallel& ranks) {
  const synthetic::Options& set = made_up.set;
  examples::Progress progress("synthetic records", set.train + set.test);
  return synthetic::ensure(made_up.cache, set, [&](std::uint64_t done) {
    progress.to(done);
    ranks.check();
    return !penstock::programs::interrupted();
  });
}

void print_start(const TrainOptions& options, int ranks) {
  std::printf("%s, %d x %d, batch %lld", options.model.c_str(), options.image_size,
              options.image_size, static_cast<long long>(options.batch));
  if (ranks > 1) std::printf(" on each of %d ranks", ranks);
  std::printf(", %llu epochs, %s\n", static_cast<unsigned long long>(options.epochs),
              operations_name().c_str());
}

int run(const TrainOptions& options, DataParallel& ranks) {
  if (ranks.is_first()) print_start(options, ranks.world_size());
  const std::optional<double> accuracy = Training(options, ranks).run();
  if (!accuracy) {
    if (!options.checkpoint.empty() && ranks.is_first())
      std::printf("interrupted; the same command goes on from %s\n", options.checkpoint.c_str());
    return interrupted_exit_code();
  }
  if (options.target > 0 && *accuracy < options.target) {
    if (ranks.is_first())
      std::printf("the target of %.2f %% was not reached\n", 100 * options.target);
    return 1;
  }
  return 0;
}

/// Before there is work that would be lost. What is there and no checkpoint, as a folder, is told
/// by whoever reads it.
void check_checkpoint(const TrainOptions& options) {
  examples::require_different({"--checkpoint", options.checkpoint}, {"--plans", options.plans});
  std::error_code none;
  if (!options.checkpoint.empty() && !fs::is_directory(options.checkpoint, none))
    penstock::programs::require_writable(options.checkpoint);
}

/// Options that have to be the same on all ranks: they are compared before anything is read.
Facts option_facts(const TrainOptions& options, const synthetic::Options& set) {
  const auto text = [](auto number) { return std::to_string(number); };
  const auto number = [](double value) { return (std::ostringstream() << value).str(); };
  const auto file = [](const fs::path& path) {
    return path.empty() ? "none" : path.lexically_normal().string();
  };
  return {
      {"--model", options.model},
      {"--image-size", text(options.image_size)},
      {"--batch", text(options.batch)},
      {"--epochs", text(options.epochs)},
      {"--rate", options.rate == 0 ? "the usual one" : number(static_cast<double>(options.rate))},
      {"--steps", options.steps ? "on" : "off"},
      {"--target", options.target == 0 ? "none" : number(options.target)},
      {"--checkpoint", file(options.checkpoint)},
      {"--classes", text(options.classes)},
      {"--broken", text(options.broken)},
      {"--records", text(set.train)},
      {"--test-records", text(set.test)},
      {"--seed", text(options.seed)}};
}

/// What goes wrong here is told to the other ranks.
int run_on(DataParallel& ranks, TrainOptions options, const SetOptions& made_up) try {
  if (ranks.world_size() > 1) ranks.agree(option_facts(options, made_up.set));
  if (ranks.is_first()) check_checkpoint(options);
  if (options.data.empty() && options.images.empty()) options.data = make_data(made_up, ranks);
  return run(options, ranks);
} catch (const std::exception& error) {
  ranks.fail(error.what());
  return report(ranks.named("train"), error);
}

}  // namespace
}  // namespace resnet

int main(int argc, char** argv) {
  resnet::TrainOptions options;
  resnet::DistributedOptions distributed;
  resnet::SetOptions made_up;
  if (const auto status = resnet::parse_options(argc, argv, options, distributed, made_up))
    return *status;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // A line at a time, into a file or a pipe too.
  try {
    resnet::DataParallel ranks(penstock::Ranks::from_environment(), distributed);
    // Only now: a launcher's SIGTERM ends a rank that waits for one that will not come.
    penstock::programs::watch_interrupts();
    return resnet::run_on(ranks, options, made_up);
  } catch (const std::exception& error) {
    return resnet::report("train", error);
  }
}
