// SPDX-License-Identifier: Apache-2.0

#include "options.hpp"

#include <CLI/CLI.hpp>
#include <map>

#include "../../train/options.hpp"
#include "programs/command_line.hpp"

namespace resnet::rungs {
namespace {

const std::map<std::string, Precision> precisions = {{"fp32", Precision::fp32},
                                                     {"tf32", Precision::tf32},
                                                     {"fp16", Precision::fp16},
                                                     {"bf16", Precision::bf16}};

void add_network_options(CLI::App& app, Options& options) {
  CLI::Option* prepared =
      app.add_option("--prepared", options.prepared,
                     "What `prepare` wrote: precision, format, fusion and plans are the file's")
          ->check(CLI::ExistingFile);
  app.add_option("--model", options.model, "resnet8, resnet20, resnet18 or resnet50")
      ->excludes(prepared);
  app.add_option("--image-size", options.image_size, "Height and width that images are resized to")
      ->check(CLI::Range(8, 4096))
      ->excludes(prepared);
  app.add_option("--weights", options.weights,
                 "safetensors file with torchvision's names; without it, made-up weights")
      ->check(CLI::ExistingFile)
      ->excludes(prepared);
  app.add_option("--precision", options.precision,
                 "fp32, tf32, fp16 or bf16, in place of the rung's own; int8: by --prepared")
      ->transform(CLI::CheckedTransformer(precisions))
      ->excludes(prepared);
  app.add_option("--plans", options.plans,
                 "File of plans: those in it are taken, others are found and put there");
  app.add_flag("--exhaustive", options.exhaustive,
               "Rungs that choose plans by timing them, I4 and on, time all there are (slow)");
  app.add_flag("--layers", options.layers, "Each layer is a range in a profiler, with its shape");
}

void add_request_options(CLI::App& app, Options& options) {
  const CLI::Range sizes(1, 1 << 20);
  app.add_option("--batches", options.batches, "Batch sizes that there are plans for, as 16,128")
      ->delimiter(',')
      ->check(sizes);
  app.add_option("--requests", options.requests,
                 "Images in a request, by turns, as 16,100,128: padded to the next batch size")
      ->delimiter(',')
      ->check(sizes);
  app.add_option("--steps", options.steps, "Measured requests")
      ->check(CLI::Range(std::int64_t{1}, most_steps));
  app.add_option("--warmup", options.warmup,
                 "Requests before the measured ones; two for each context, at least, from I8 on")
      ->check(CLI::Range(std::int64_t{0}, most_steps));
  app.add_option("--contexts", options.contexts, "Host threads that infer, from I8 on: 2")
      ->check(CLI::Range(1, 64));
}

}  // namespace

std::optional<int> parse(int argc, char** argv, const std::string& about, Options& options) {
  CLI::App app(about);
  add_network_options(app, options);
  add_request_options(app, options);
  app.add_option("--workers", options.workers, "Threads that load")->check(CLI::Range(1, 1024));
  app.add_flag("--uint8", options.uint8,
               "Records cross the bus and are decoded on the device: from I5b on");
  app.add_flag("--watch", options.watch,
               "Rungs with a prefetcher, I5b and on: what it waits for, while it runs");
  app.add_flag("--free-loading", options.free_loading,
               "Host memory is filled once, and sent again and again: the ceiling. The answers are "
               "those of whatever images are there");
  app.add_option("--data", options.data,
                 "Directory of CIFAR-10's binary version; without it, a synthetic set is made");
  app.add_option("--cache", options.cache,
                 "Where the synthetic set is kept: by default ~/.cache/penstock");
  app.add_option("--records", options.records, "Training records of the synthetic set")
      ->check(CLI::Range(5, 1 << 24));
  app.add_option("--answers", options.answers,
                 "Where each image's class goes, in the order of the requests");
  app.add_option("--json", options.json, "Where the result goes, for programs");
  return penstock::programs::parse(app, argc, argv);
}

}  // namespace resnet::rungs
