// SPDX-License-Identifier: Apache-2.0

#include "options.hpp"

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <map>
#include <penstock/store.hpp>
#include <stdexcept>

#include "../../data/cifar10.hpp"
#include "../../data/synthetic.hpp"
#include "../data/jpeg_images.hpp"
#include "../model/safetensors.hpp"
#include "programs/command_line.hpp"
#include "programs/interrupt.hpp"
#include "programs/output_file.hpp"

namespace resnet {
namespace {

const std::map<std::string, Precision> precisions = {{"fp32", Precision::fp32},
                                                     {"tf32", Precision::tf32},
                                                     {"fp16", Precision::fp16},
                                                     {"bf16", Precision::bf16}};

/// START:COUNT
void read_profile(const std::string& text, Options& options) {
  const auto wrong = [&] {
    return CLI::ValidationError("--profile", text + " is not START:COUNT");
  };
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) throw wrong();
  if (!CLI::detail::lexical_cast(text.substr(0, colon), options.profile_start) ||
      !CLI::detail::lexical_cast(text.substr(colon + 1), options.profile_count) ||
      options.profile_start < 0 || options.profile_count < 1)
    throw wrong();
}

/// Can the user put it right? Of a nested exception the inner one tells.
bool is_mistake(const std::exception& error) {
  const auto* outer = dynamic_cast<const std::nested_exception*>(&error);
  if (outer != nullptr && outer->nested_ptr() != nullptr) {
    try {
      outer->rethrow_nested();
    } catch (const std::exception& inner) {
      return is_mistake(inner);
    } catch (...) {
      return false;
    }
  }
  return dynamic_cast<const std::invalid_argument*>(&error) != nullptr ||
         dynamic_cast<const cifar10::DataError*>(&error) != nullptr ||
         dynamic_cast<const penstock::StoreError*>(&error) != nullptr ||
         dynamic_cast<const penstock::images::ImageError*>(&error) != nullptr ||
         dynamic_cast<const safetensors::FormatError*>(&error) != nullptr;
}

}  // namespace

std::string to_string(Precision precision) {
  for (const auto& [name, value] : precisions)
    if (value == precision) return name;
  return "?";
}

std::string to_string(PlanChoice plans) {
  switch (plans) {
    case PlanChoice::heuristic:
      return "heuristic";
    case PlanChoice::timed:
      return "timed";
    case PlanChoice::exhaustive:
      return "exhaustive";
  }
  return "?";
}

void add_options(CLI::App& app, DistributedOptions& options) {
  app.add_option_function<std::int64_t>(
         "--timeout",
         [&](std::int64_t seconds) { options.timeout = std::chrono::seconds(seconds); },
         "Several ranks: seconds to find each other, and to wait for one that hangs; 60")
      ->check(CLI::Range(1, 1 << 20));
  app.add_flag("--sync-batch-norm", options.synchronised_batch_norm,
               "Several ranks: batch norm with the statistics of all of them");
  const auto mebibytes = [&app](const char* name, std::size_t& bytes, const char* about) {
    app.add_option_function<double>(
           name,
           [&bytes](double number) {
             bytes = number == 0 ? SIZE_MAX : static_cast<std::size_t>(number * (1 << 20));
           },
           about)
        ->check(penstock::programs::finite(0, 1e6));
  };
  mebibytes("--first-bucket", options.buckets.first,
            "Several ranks: MiB of gradients that are summed first; 1");
  mebibytes("--bucket", options.buckets.others,
            "Several ranks: MiB of gradients that are summed then at a time; 25; 0: all the rest");
}

int interrupted_exit_code() {
  return penstock::programs::interrupted() ? penstock::programs::interrupted_exit_code()
                                           : 128 + SIGINT;
}

int report(const std::string& program, const std::exception& error) {
  if (dynamic_cast<const synthetic::Interrupted*>(&error) != nullptr)
    return penstock::programs::interrupted_exit_code();
  std::fprintf(stderr, "%s: %s\n", program.c_str(), error.what());
  if (penstock::programs::is_interrupt(error)) return interrupted_exit_code();
  return is_mistake(error) ? 2 : 1;
}

std::optional<int> parse(int argc, char** argv, const std::string& about, Options& options) {
  CLI::App app(about);
  app.add_option("--model", options.model, "resnet8, resnet20, resnet18 or resnet50");
  app.add_option("--image-size", options.image_size, "Height and width that images are resized to")
      ->check(CLI::Range(8, 4096));
  app.add_option("--batch", options.batch, "Images in a batch; in T17 the frames of all its clips")
      ->check(CLI::Range(1, 1 << 20));
  auto* const steps = app.add_option("--steps", options.steps, "Measured steps")
                          ->check(CLI::Range(std::int64_t{1}, most_steps));
  app.add_option("--epochs", options.epochs, "Measured epochs, instead of --steps")
      ->check(CLI::Range(1, 1 << 20))
      ->excludes(steps);
  app.add_option("--warmup", options.warmup, "Steps before the measured ones")
      ->check(CLI::Range(std::int64_t{0}, most_steps));
  app.add_option("--seed", options.seed, "Of weights, order and augmentation")
      ->transform(penstock::programs::whole_number());
  app.add_option("--rate", options.rate,
                 "Learning rate behind the warm-up; else by batch and model, see schedule.hpp")
      ->check(penstock::programs::finite(1e-30, 1e30));
  app.add_option("--workers", options.workers, "Threads that load: 8, 3 in T16, 16 in T17")
      ->check(CLI::Range(1, 1024));
  app.add_option_function<std::string>(
         "--cpu-share",
         [&](const std::string& text) {
           options.cpu_share = text == "auto" ? std::nullopt : std::optional(std::stod(text));
         },
         "T16: of the images that the engines take, the share that the CPU decodes: a number, or "
         "auto: found while it runs; 0")
      ->check(penstock::programs::finite(0, 1) | CLI::IsMember({"auto"}));
  app.add_option("--nvjpeg-decoders", options.nvjpeg_decoders, "T16: decoders of nvJPEG")
      ->check(CLI::Range(1, 8));
  app.add_option("--cpu-threads", options.cpu_threads, "T16: threads of each worker that decode")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--precision", options.precision, "fp32, tf32, fp16 or bf16")
      ->transform(CLI::CheckedTransformer(precisions));
  app.add_flag("--exhaustive", options.exhaustive,
               "Rungs that choose plans by timing them, T6 and on, time all there are (slow)");
  app.add_option("--plans", options.plans,
                 "File that cuDNN's plans are kept in and read from: a second start is fast");
  app.add_flag("--synthetic", options.synthetic, "One batch that lies on the device: the ceiling");
  app.add_flag("--layers", options.layers, "Each layer is a range in a profiler, with its shape");
  app.add_option("--device-depth", options.device_depth,
                 "T14b and T14 to T17: batches on the device: 2, and from T16 on two more than "
                 "workers")
      ->check(CLI::Range(1, 64));
  auto* const synthetic = app.get_option("--synthetic");
  app.add_flag(
         "--input-apart", options.input_apart,
         "T14 to T17: train on one batch that stays on the device, while another thread takes "
         "the others as fast as they come: what the input could give beside the training")
      ->excludes(synthetic);
  app.add_flag("--watch", options.watch,
               "Rungs with a prefetcher, T12 and on: what it waits for, while it runs");
  auto* const data =
      app.add_option("--data", options.data,
                     "Directory of CIFAR-10's binary version; without it, a synthetic set is made");
  app.add_option("--images", options.images,
                 "JPEG files, in place of CIFAR-10: a folder for each class, tar shards, a packed "
                 "file; or a directory with such for train and val; or a URL")
      ->excludes(data);
  app.add_option(
         "--videos", options.videos,
         "T17: folder of video files, .mp4, .mov, .mkv and .webm, with a directory for each "
         "class; without directories, each file is a class")
      ->excludes(data)
      ->excludes("--images");
  app.add_option("--frames", options.frames, "T17: frames of a clip")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--clips-per-file", options.clips_per_file, "T17: clips of a file in an epoch")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--video-engines", options.video_engines,
                 "T17: whether the GPU's video engines decode: none, if_possible, if_free (the CPU "
                 "decodes the clips for which no engine is free) or required")
      ->check(CLI::IsMember({"none", "if_possible", "if_free", "required"}))
      ->capture_default_str();
  app.add_option("--broken", options.broken,
                 "T17: batches that may be replaced because a clip cannot be decoded")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--classes", options.classes,
                 "Of --images or --videos; otherwise as their labels say")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--cache", options.cache,
                 "Where the synthetic set is kept: by default ~/.cache/penstock");
  app.add_option("--records", options.records, "Training records of the synthetic set")
      ->check(CLI::Range(5, 1 << 24));
  app.add_option("--save", options.save,
                 "Checkpoint (safetensors) to write at the end, or at Ctrl-C");
  app.add_option("--load", options.load,
                 "Checkpoint to start from: weights, momenta, step; the data begin anew");
  app.add_option("--json", options.json, "Where the result goes, for programs");
  app.add_option_function<std::string>(
      "--profile", [&](const std::string& text) { read_profile(text, options); },
      "START:COUNT, the steps between cudaProfilerStart and Stop; else the measured ones");
  add_options(app, options.distributed);
  if (const auto status = penstock::programs::parse(app, argc, argv)) return status;
  for (const char* name :
       {"--cpu-share", "--nvjpeg-decoders", "--cpu-threads", "--device-depth", "--input-apart",
        "--videos", "--frames", "--clips-per-file", "--video-engines", "--broken"})
    if (app.count(name) > 0) options.special.emplace_back(name);
  return std::nullopt;
}

}  // namespace resnet
