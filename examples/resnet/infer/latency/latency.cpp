// SPDX-License-Identifier: Apache-2.0

// latency: how long requests of one image wait for their answers, under loads that the command line
// names, one after the other.

#include <algorithm>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "../../../common/different_files.hpp"
#include "../../train/options.hpp"
#include "options.hpp"
#include "programs/interrupt.hpp"
#include "programs/output_file.hpp"
#include "report.hpp"

namespace resnet::latency {
namespace {

constexpr std::int64_t usual_batch = 32;

std::vector<std::int64_t> batches_of(const Options& options) {
  if (!options.batches.empty()) return options.batches;
  const std::int64_t largest = options.max_batch != 0 ? options.max_batch : usual_batch;
  std::set<std::int64_t> sizes{largest};
  for (std::int64_t size = 1; size < largest; size *= 4) sizes.insert(size);
  return {sizes.begin(), sizes.end()};
}

/// Pixels as they come from a decoder, normalised as ImageNet's.
ImageInput image_input(const InferenceNetwork& network) {
  ImageInput input{.images = network.image(), .format = Format::nhwc};
  constexpr std::array<float, 3> mean = {0.485f, 0.456f, 0.406f};
  constexpr std::array<float, 3> deviation = {0.229f, 0.224f, 0.225f};
  for (std::size_t c = 0; c < mean.size(); ++c) {
    input.factor[c] = 1 / (255 * deviation[c]);
    input.offset[c] = -mean[c] / deviation[c];
  }
  return input;
}

std::vector<Load> loads_of(const Options& options, const InferenceNetwork& network) {
  const std::int64_t largest = network.image().n;
  if (options.max_batch > largest)
    throw std::invalid_argument("--max-batch: " + std::to_string(options.max_batch) +
                                " requests, and the network's largest batch has " +
                                std::to_string(largest));
  Load load{.arrivals = options.arrivals,
            .seed = options.seed,
            .requests = options.requests,
            .warmup = options.warmup,
            .max_batch = static_cast<std::size_t>(
                options.max_batch != 0 ? options.max_batch : std::min(usual_batch, largest))};
  load.deadline = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double, std::milli>(options.deadline));
  std::vector<Load> loads;
  std::vector<int> clients = options.clients;
  if (clients.empty() && options.rates.empty()) clients = {1, 2, 4};
  for (const int number : clients) {
    loads.push_back(load);
    loads.back().clients = number;
    // Nobody else could come.
    loads.back().max_batch = std::min(load.max_batch, static_cast<std::size_t>(number));
  }
  for (const double rate : options.rates) {
    loads.push_back(load);
    loads.back().rate = rate;
  }
  return loads;
}

nlohmann::json network_json(const Model& model, const InferenceNetwork& network) {
  return {{"model", model.architecture.name},
          {"image_size", network.image().h},
          {"precision", name_of(model.precision)},
          {"batches", network.batches()},
          {"operations", operations_name()},
          {"emulated", operations_name().starts_with("reference")}};
}

void write(const std::filesystem::path& path, const nlohmann::json& json) {
  penstock::programs::write_file(path, json.dump(1) + '\n');
}

/// Before there is work that would be lost.
void check_json(const Options& options) {
  const examples::NamedFile json("--json", options.json);
  examples::require_different({"--weights", options.model.weights}, json);
  examples::require_different({"--prepared", options.model.prepared}, json);
  examples::require_different({"--plans", options.model.plans}, json);
  if (!options.json.empty()) penstock::programs::require_writable(options.json);
}

/// Returns the exit status.
int measure(const Options& options) {
  check_json(options);
  const Model model = load(options.model);
  const penstock::Stream stream;
  const auto network = make_network(model, options.model, batches_of(options), stream.get());
  const std::vector<Load> loads = loads_of(options, *network);
  Images images(options.images, network->image().h);
  Server server(*network, image_input(*network), options.contexts);
  server.warm_up();
  if (options.check) images.expect(server);

  nlohmann::json json = network_json(model, *network);
  std::printf("%s, %lld x %lld, %s, %d context%s, %s\n%s", model.architecture.name.c_str(),
              static_cast<long long>(network->image().h),
              static_cast<long long>(network->image().w),
              json["precision"].get<std::string>().c_str(), options.contexts,
              options.contexts == 1 ? "" : "s", operations_name().c_str(), table_head().c_str());
  std::uint64_t wrong = 0;
  for (const Load& one : loads) {
    const Result result = run(server, images, one);
    if (penstock::programs::interrupted()) return penstock::programs::interrupted_exit_code();
    wrong += result.wrong;
    std::fputs(table_row(result, options.contexts).c_str(), stdout);
    std::fflush(stdout);
    json["loads"].push_back(json_of(result, options.contexts));
    if (!options.json.empty()) write(options.json, json);
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace resnet::latency

int main(int argc, char** argv) {
  resnet::latency::Options options;
  if (const auto status = resnet::latency::parse(argc, argv, options)) return *status;
  penstock::programs::watch_interrupts();
  try {
    return resnet::latency::measure(options);
  } catch (const std::exception& error) {
    return resnet::report("latency", error);
  }
}
