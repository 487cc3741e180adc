// SPDX-License-Identifier: Apache-2.0

// The main function of a rung: what a run came to, as text and JSON, and which of bus and GPU
// bounds it.

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <penstock/pinned_pool.hpp>
#include <stdexcept>
#include <vector>

#include "../../../common/check.hpp"
#include "../../../common/different_files.hpp"
#include "../../train/options.hpp"
#include "programs/interrupt.hpp"
#include "programs/output_file.hpp"
#include "run.hpp"

namespace resnet::rungs {
namespace {

/// Milliseconds that the bus takes for a request, from pinned memory, with nothing else to do. From
/// block after block, as requests come: a block that is copied again is still in the CPU's cache,
/// and quicker than memory. Waits.
double bus_time(const Run& run) {
  const auto bytes =
      run.options().uint8 ? records_layout(run.batch()).bytes() : run.layout().bytes();
  constexpr std::size_t all_bytes = std::size_t{1} << 30;  // more than caches have
  const auto copies = static_cast<int>(std::clamp<std::size_t>(all_bytes / bytes, 3, 64));
  penstock::PinnedPool pool;
  std::vector<penstock::PinnedBlock> host;
  for (int i = 0; i <= copies; ++i) host.push_back(pool.acquire(bytes));
  const DeviceArray<std::byte> device(static_cast<std::int64_t>(bytes));
  const penstock::Stream stream;
  Measure::Spans spans(copies);
  for (int i = 0; i <= copies; ++i) {
    if (i > 0) spans.begin(stream.get());  // The first is not timed: it finds the bus asleep.
    examples::check(cudaMemcpyAsync(device.data(), host[static_cast<std::size_t>(i)].data(), bytes,
                                    cudaMemcpyHostToDevice, stream.get()),
                    "cudaMemcpyAsync");
    if (i > 0) spans.end(stream.get());
  }
  stream.synchronize();
  return spans.total() / copies * run.images_per_request() / static_cast<double>(run.batch());
}

/// What a request cannot be faster than: milliseconds.
struct Bound {
  std::string by;
  double milliseconds;
};
Bound bound_of(const Run& run, const Timing& timing) {
  const double bus = bus_time(run);
  const double compute = run.compute_time(timing);
  return bus > compute ? Bound{"bus", bus} : Bound{"compute", compute};
}

nlohmann::json result_of(const Run& run, const Timing& timing, const Bound& bound) {
  const Options& options = run.options();
  return {{"rung", run.rung().number},
          {"name", run.rung().name},
          {"after", run.rung().after},
          {"change", run.rung().change},
          {"operations", operations_name()},
          {"emulated", operations_name().starts_with("reference")},
          {"uint8", options.uint8},
          {"free_loading", options.free_loading},
          {"model", options.model},
          {"image_size", options.image_size},
          {"batches", run.network().batches()},
          {"requests", options.requests},
          {"contexts", run.lanes()},
          {"precision", name_of(run.model().precision)},
          {"fusion", name_of(run.model().fusion)},
          {"images_per_second", timing.images_per_second},
          {"batch_ms", timing.step},
          {"load_ms", timing.load},
          {"copy_ms", timing.copy},
          {"compute_ms", timing.compute},
          {"device_bytes", run.device_bytes()},
          {"bound", bound.by},
          {"bound_ms", bound.milliseconds},
          {"logits", run.answers().logits_digest()},
          {"answers", run.answers().classes_digest()}};
}

void write_result(const std::filesystem::path& path, const nlohmann::json& result) {
  penstock::programs::write_file(path, result.dump(1) + '\n');
}

void print_result(const Run& run, const Timing& timing, const Bound& bound) {
  const Options& options = run.options();
  std::string sizes;
  for (const std::int64_t size : options.requests)
    sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  std::printf("%s %s%s: %s, %d x %d, %s, requests of %s, %d context%s, %s\n",
              run.rung().number.c_str(), run.rung().name.c_str(),
              (std::string(options.uint8 ? ", uint8" : "") +
               (options.free_loading ? ", loading for free" : ""))
                  .c_str(),
              options.model.c_str(), options.image_size, options.image_size,
              name_of(run.model().precision).c_str(), sizes.c_str(), run.lanes(),
              run.lanes() == 1 ? "" : "s", operations_name().c_str());
  std::printf("%.1f images/s; a request %.2f ms: load %.2f, copy %.2f, compute %.2f\n",
              timing.images_per_second, timing.step, timing.load, timing.copy, timing.compute);
  std::printf("memory of the device: %s\n", examples::memory_text(run.device_bytes()).c_str());
  std::printf("bound by the %s: %.1f %% of the time\n", bound.by.c_str(),
              100 * bound.milliseconds / timing.step);
}

/// Before there is work that would be lost.
void check_files(const Options& options) {
  using File = examples::NamedFile;
  const File weights("--weights", options.weights), prepared("--prepared", options.prepared),
      plans("--plans", options.plans), answers("--answers", options.answers),
      json("--json", options.json);
  for (const File& other : {weights, prepared, plans, answers})
    examples::require_different(other, json);
  for (const File& other : {weights, prepared, plans}) examples::require_different(other, answers);
  for (const File& other : {weights, prepared}) examples::require_different(other, plans);
  if (!options.json.empty()) penstock::programs::require_writable(options.json);
}

}  // namespace

int run_rung(const Rung& rung, int argc, char** argv) {
  Options options;
  if (const auto status =
          parse(argc, argv, rung.number + " " + rung.name + ": " + rung.change, options))
    return *status;
  penstock::programs::watch_interrupts();
  try {
    check_files(options);
    Run run(rung, options);
    (options.uint8 ? rung.infer_records : rung.infer)(run);
    run.answers().close();
    if (penstock::programs::interrupted()) return penstock::programs::interrupted_exit_code();
    if (!run.answers().complete()) throw std::logic_error("there are requests without an answer");
    const Timing timing = run.timing();
    const Bound bound = bound_of(run, timing);
    print_result(run, timing, bound);
    if (!options.json.empty()) write_result(options.json, result_of(run, timing, bound));
    return 0;
  } catch (const std::exception& error) {
    return report(rung.name, error);
  }
}

}  // namespace resnet::rungs
