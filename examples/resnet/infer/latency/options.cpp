// SPDX-License-Identifier: Apache-2.0

#include "options.hpp"

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "programs/command_line.hpp"

namespace resnet::latency {
namespace {

void add_load_options(CLI::App& app, Options& options) {
  app.add_option("--clients", options.clients,
                 "Closed loops: so many clients, each of which sends its next request when its "
                 "answer came; several as 1,2,4")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--rate", options.rates,
                 "Open loops: requests a second, by a schedule; several as 100,200")
      ->delimiter(',')
      ->check(penstock::programs::finite(1e-3, 1e7));
  app.add_flag_callback(
      "--uniform", [&] { options.arrivals = ArrivalKind::uniform; },
      "Requests of open loops arrive one like the other; else at random (Poisson)");
  app.add_option("--seed", options.seed, "Of random arrivals")
      ->transform(penstock::programs::whole_number())
      ->capture_default_str();
  app.add_option("--requests", options.requests, "Measured requests of each loop")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--warmup", options.warmup, "Requests before them")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
}

void add_batch_options(CLI::App& app, Options& options) {
  app.add_option("--deadline", options.deadline,
                 "A batch is sent when its oldest request has waited so long: 2ms (the default), "
                 "500us, 0")
      ->transform(
          CLI::AsNumberWithUnit(std::map<std::string, double>{{"us", 1e-3}, {"ms", 1}, {"s", 1e3}},
                                CLI::AsNumberWithUnit::CASE_SENSITIVE, "TIME"))
      ->check(penstock::programs::finite(0, 1e6));
  app.add_option("--max-batch", options.max_batch,
                 "A batch is sent when it has so many requests: 32; in a closed loop also when all "
                 "clients wait")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option(
         "--batches", options.batches,
         "Batch sizes that plans are made for, without --prepared; a batch is padded to the "
         "next: 1,4,16 ... and --max-batch")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--contexts", options.contexts,
                 "Threads that infer, each with a stream, activations and graphs of its own")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
}

}  // namespace

std::optional<int> parse(int argc, char** argv, Options& options) {
  CLI::App app(
      "Latencies of inference: requests of one image each, from closed loops of clients or open "
      "ones of a given rate, answered in batches that are formed under a deadline.");
  add_load_options(app, options);
  add_batch_options(app, options);
  add_options(app, options.model);
  app.add_option("--images", options.images, "Different images that are asked for, by turns")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_flag("--check", options.check,
               "Compares each answer with the one that its image has alone");
  app.add_option("--json", options.json, "Where the results go, for programs");
  return penstock::programs::parse(app, argc, argv);
}

}  // namespace resnet::latency
