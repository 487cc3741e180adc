// SPDX-License-Identifier: Apache-2.0

// quickstart: statistics of a CIFAR-10 data set, through the whole pipeline: record files ->
// sampler -> workers -> pinned memory -> copy stream -> device -> a step on the consumer's stream
// -> result read back. The same file is compiled as C++ over the emulated runtime and, by way of
// quickstart.cu, as CUDA C++. Exit codes: 0 done, 1 failed, 2 wrong arguments or data, 130
// interrupted.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <penstock/penstock.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "../common/check.hpp"
#include "../common/progress.hpp"
#include "../common/watch.hpp"
#include "../data/cifar10.hpp"
#include "../data/synthetic.hpp"
#include "programs/command_line.hpp"
#include "programs/interrupt.hpp"
#include "programs/output_file.hpp"
#include "saved_run.hpp"
#include "statistics.hpp"

namespace quickstart {
namespace {

namespace fs = std::filesystem;

using Milliseconds = std::chrono::duration<double, std::milli>;

struct Options {
  fs::path data, cache, resume;
  std::uint64_t records = synthetic::Options{}.train;  // of the synthetic set
  std::int64_t batch = 256;
  std::uint64_t seed = 1;
  bool shuffle = false, unordered = false, verify = false, watch = false;
  double slow_source = 0, slow_compute = 0;  // milliseconds for each batch
  penstock::PrefetcherOptions pipeline;
};

struct ComputeMarker {
  static constexpr const char* message = "compute";
};

/// Zeroed device memory for the totals; freed when all work that uses it is done.
using DeviceTotals = std::unique_ptr<Totals, decltype([](Totals* totals) { cudaFree(totals); })>;

DeviceTotals make_totals(cudaStream_t stream) {
  void* memory = nullptr;
  examples::check(cudaMalloc(&memory, sizeof(Totals)), "cudaMalloc");
  DeviceTotals totals(static_cast<Totals*>(memory));
  examples::check(cudaMemsetAsync(memory, 0, sizeof(Totals), stream), "cudaMemsetAsync");
  return totals;
}

void pause(double milliseconds) {
  std::this_thread::sleep_for(Milliseconds(milliseconds));
}

/// Keeps the stream busy, as slow kernels would.
void pause_stream(cudaStream_t stream, const double* milliseconds) {
  const auto wait = [](void* time) { pause(*static_cast<const double*>(time)); };
  examples::check(cudaLaunchHostFunc(stream, wait, const_cast<double*>(milliseconds)),
                  "cudaLaunchHostFunc");
}

/// Fills batches from record files. Runs on the workers.
class Decoder {
 public:
  Decoder(const penstock::RecordFile& records, double slow) : records_(records), slow_(slow) {}

  void operator()(const penstock::Ticket& ticket, Images& batch) {
    if (slow_ > 0) pause(slow_);
    for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      const std::span<const std::byte> record = records_.read(ticket.samples[i], scratch_);
      batch.labels(row) = label(record, ticket.samples[i]);
      cifar10::decode(record, &batch.pixels(row, 0, 0, 0));
    }
  }

 private:
  int label(std::span<const std::byte> record, std::uint64_t sample) const try {
    return cifar10::label_of(record);
  } catch (const cifar10::DataError& error) {
    throw cifar10::DataError(records_.name(sample) + ": " + error.what());
  }

  const penstock::RecordFile& records_;
  std::vector<std::byte> scratch_;  // of one worker: each has a copy of the source
  double slow_;
};

penstock::Sampler make_sampler(const Options& options, std::uint64_t samples) {
  if (static_cast<std::uint64_t>(options.batch) > samples)
    throw cifar10::DataError("a batch of " + std::to_string(options.batch) +
                             " samples is larger than the data set of " + std::to_string(samples));
  return penstock::Sampler({.samples = samples,
                            .batch_size = options.batch,
                            .shuffle = options.shuffle,
                            .seed = options.seed});
}

/// The loop of the consumer: a step on `stream` for each of the batches behind the first `done`.
/// False when it was interrupted.
bool add_up(penstock::Prefetcher<Images>& prefetcher, std::uint64_t done, std::uint64_t batches,
            const Options& options, Totals* totals, cudaStream_t stream) {
  const auto watch = examples::watch_if(options.watch, prefetcher);
  std::optional<examples::Progress> progress;
  if (!watch) progress.emplace("batches", batches);
  while (!penstock::programs::interrupted()) {
    const auto batch = prefetcher.next(stream);
    if (!batch) return true;
    const penstock::ScopedRange range(ComputeMarker{}, done);
    penstock::for_each(stream, cifar10::pixel_bytes, Accumulate{*batch, totals});
    if (options.slow_compute > 0) pause_stream(stream, &options.slow_compute);
    ++done;
    if (progress) progress->to(done);
  }
  return false;
}

/// What was saved of an interrupted run; else the start.
SavedRun start(const fs::path& file) {
  if (file.empty()) return {};
  const std::optional<SavedRun> saved = read_saved(file);
  if (!saved) return {};
  std::fprintf(stderr, "going on from %s: epoch %llu, batch %llu\n", file.c_str(),
               static_cast<unsigned long long>(saved->state.epoch),
               static_cast<unsigned long long>(saved->state.batch));
  return *saved;
}

/// The sums that lie on the device, when the work of `stream` is done.
Summary read_back(const Totals* totals, const penstock::Stream& stream) {
  const auto result = std::make_unique<Totals>();
  examples::check(
      cudaMemcpyAsync(result.get(), totals, sizeof(Totals), cudaMemcpyDeviceToHost, stream.get()),
      "cudaMemcpyAsync");
  stream.synchronize();
  return summarise(*result);
}

/// The pipeline: from files to sums. Nothing when it was interrupted.
std::optional<Summary> run(const Options& options, const std::vector<fs::path>& files) {
  const penstock::RecordFile records(files, cifar10::record_bytes);
  const penstock::Sampler sampler = make_sampler(options, records.size());
  auto layout = penstock::Layout<Images>(options.batch)
                    .field(&Images::pixels, {cifar10::height, cifar10::width, cifar10::channels})
                    .field(&Images::labels, {});
  const penstock::Stream stream;
  const DeviceTotals totals = make_totals(stream.get());
  penstock::Prefetcher<Images> prefetcher(layout, sampler, Decoder(records, options.slow_source),
                                          options.pipeline);
  const SavedRun saved = start(options.resume);
  if (saved.state.samples != 0) prefetcher.restore(saved.state);
  // At once, so that a file that cannot be written is told before there is something to lose.
  if (!options.resume.empty()) save(options.resume, {prefetcher.state(), saved.summary});
  const bool whole =
      add_up(prefetcher, saved.state.epoch * sampler.batches() + saved.state.batch,
             sampler.batches() * options.pipeline.epochs, options, totals.get(), stream.get());
  if (!whole && options.resume.empty()) return std::nullopt;
  const Summary summary = read_back(totals.get(), stream) + saved.summary;
  if (!whole) {
    save(options.resume, {prefetcher.state(), summary});
    std::fprintf(stderr, "the same command goes on from %s\n", options.resume.c_str());
    return std::nullopt;
  }
  if (!options.resume.empty()) fs::remove(fs::canonical(options.resume));  // A link stays.
  std::cout << prefetcher.stats() << "\n\n";
  return summary;
}

/// The same by a plain loop that shares nothing with the pipeline.
Summary run_serially(const std::vector<fs::path>& files, std::uint64_t epochs) {
  Summary summary;
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    for (std::vector<char> record(cifar10::record_bytes);
         in.read(record.data(), cifar10::record_bytes);) {
      summary.classes[static_cast<std::uint8_t>(record[0])] += epochs;
      for (std::size_t i = 0; i < cifar10::pixel_bytes; ++i) {
        const std::uint64_t value = static_cast<std::uint8_t>(record[i + 1]);
        summary.sum[i / cifar10::plane_bytes] += epochs * value;
        summary.sum_of_squares[i / cifar10::plane_bytes] += epochs * value * value;
      }
    }
  }
  return summary;
}

void print(const Summary& summary, const std::vector<std::string>& names) {
  constexpr std::array<const char*, cifar10::channels> channel_names = {"red", "green", "blue"};
  std::printf("%llu samples\n", static_cast<unsigned long long>(summary.samples()));
  for (std::size_t c = 0; c < channel_names.size(); ++c)
    std::printf("%-8s mean %8.4f  standard deviation %8.4f\n", channel_names[c], summary.mean(c),
                summary.standard_deviation(c));
  for (std::size_t i = 0; i < names.size(); ++i)
    std::printf("%-12s %llu\n", names[i].c_str(),
                static_cast<unsigned long long>(summary.classes[i]));
}

std::vector<std::string> class_names(const fs::path& data) {
  if (fs::exists(data / cifar10::class_names_name)) return cifar10::class_names(data);
  std::vector<std::string> names;
  for (int i = 0; i < cifar10::classes; ++i) names.push_back("class " + std::to_string(i));
  return names;
}

fs::path make_data(const Options& options) {
  const synthetic::Options set{.train = options.records, .test = 1};
  examples::Progress progress("synthetic records", set.train + set.test);
  return synthetic::ensure(options.cache, set, [&](std::uint64_t done) {
    progress.to(done);
    return !penstock::programs::interrupted();
  });
}

int run_all(const Options& options) {
  const fs::path data = options.data.empty() ? make_data(options) : options.data;
  const std::vector<fs::path> files = cifar10::train_files(data);
  const std::vector<std::string> names = class_names(data);
  std::fprintf(stderr, "data: %s\n", data.c_str());
  const std::optional<Summary> summary = run(options, files);
  if (!summary) return penstock::programs::interrupted_exit_code();
  print(*summary, names);
  if (!options.verify) return 0;
  const bool equal = *summary == run_serially(files, options.pipeline.epochs);
  std::printf("verify: %s a serial loop\n", equal ? "equal to" : "DIFFERENT from");
  return equal ? 0 : 1;
}

void describe(CLI::App& app, Options& options) {
  penstock::PrefetcherOptions& pipeline = options.pipeline;
  app.add_option("--data", options.data,
                 "Directory of CIFAR-10's binary version; without it, a synthetic set is made");
  app.add_option("--cache", options.cache,
                 "Where the synthetic set is kept: by default ~/.cache/penstock");
  app.add_option("--records", options.records, "Training records of the synthetic set")
      ->check(CLI::Range(5, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--epochs", pipeline.epochs)
      ->transform(penstock::programs::whole_number(1))
      ->capture_default_str();
  app.add_option("--batch", options.batch, "Samples in a batch")
      ->transform(penstock::programs::whole_number(1))
      ->capture_default_str();
  app.add_option("--workers", pipeline.workers, "Threads that decode; 0: one")
      ->transform(penstock::programs::whole_number())
      ->capture_default_str();
  app.add_option("--host-depth", pipeline.host_depth,
                 "Batches in pinned memory; 0: workers + device depth")
      ->transform(penstock::programs::whole_number())
      ->capture_default_str();
  app.add_option("--device-depth", pipeline.device_depth, "Batches on the device")
      ->transform(penstock::programs::whole_number(1))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Of the shuffle")
      ->transform(penstock::programs::whole_number())
      ->capture_default_str();
  app.add_flag("--shuffle", options.shuffle, "Another order in each epoch");
  auto* const unordered =
      app.add_flag("--unordered", options.unordered, "Batches come as they are ready");
  app.add_option("--resume", options.resume,
                 "File for an interrupted run: Ctrl-C saves position and sums in it, and the same "
                 "command goes on from there")
      ->excludes(unordered);
  app.add_flag("--verify", options.verify,
               "Compare with a serial loop; exit code 1 when it differs");
  app.add_flag("--watch", options.watch,
               "What the pipeline waits for, while it runs, in place of the progress; with device "
               "times");
  app.add_option("--slow-source", options.slow_source,
                 "Milliseconds to add to the filling of a batch")
      ->check(penstock::programs::finite(0, 1e6));
  app.add_option("--slow-compute", options.slow_compute,
                 "Milliseconds to add to the step of a batch")
      ->check(penstock::programs::finite(0, 1e6));
}

int report(const std::exception& error, int exit_code) {
  std::fprintf(stderr, "quickstart: %s\n", error.what());
  return exit_code;
}

/// Is the user's data to blame for what the source threw?
bool from_data(const penstock::SourceError& error) {
  try {
    error.rethrow_nested();
  } catch (const cifar10::DataError&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace
}  // namespace quickstart

int main(int argc, char** argv) {
  quickstart::Options options;
  CLI::App app(
      "Mean and standard deviation of every channel of a CIFAR-10 data set, and its class counts.");
  quickstart::describe(app, options);
  if (const auto status = penstock::programs::parse(app, argc, argv)) return *status;
  options.pipeline.ordered = !options.unordered;
  options.pipeline.device_times = options.watch;
  penstock::programs::watch_interrupts();
  try {
    return quickstart::run_all(options);
  } catch (const synthetic::Interrupted&) {
    return penstock::programs::interrupted_exit_code();
  } catch (const penstock::SourceError& error) {
    return quickstart::report(error, quickstart::from_data(error) ? 2 : 1);
  } catch (const cifar10::DataError& error) {
    return quickstart::report(error, 2);
  } catch (const penstock::StoreError& error) {
    return quickstart::report(error, 2);
  } catch (const std::invalid_argument& error) {
    return quickstart::report(error, 2);
  } catch (const std::exception& error) {
    const bool interrupted = penstock::programs::is_interrupt(error);
    return quickstart::report(error, interrupted ? penstock::programs::interrupted_exit_code() : 1);
  }
}
