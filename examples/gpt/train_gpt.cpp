// SPDX-License-Identifier: Apache-2.0

// train_gpt: trains a GPT on files of tokens. train_gpt_emulated is the same program on the CPU.
// See README.md. Exit statuses: 0; 2 for an error of the user (an option, a file); 1 for any other
// error; 130 after Ctrl-C.

#include <cuda_profiler_api.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <numbers>
#include <optional>
#include <penstock/markers.hpp>
#include <penstock/readback.hpp>
#include <penstock/store.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../common/check.hpp"
#include "../common/device_memory.hpp"
#include "../common/progress.hpp"
#include "../common/watch.hpp"
#include "input.hpp"
#include "products.hpp"
#include "programs/command_line.hpp"
#include "programs/interrupt.hpp"
#include "programs/output_file.hpp"
#include "step_times.hpp"

namespace gpt {
namespace {

enum class InputKind { files, synthetic, both };

struct Options {
  ModelOptions model;
  InputOptions input;
  Precision precision = Precision::bf16;
  InputKind kind = InputKind::files;
  std::int64_t steps = 1000, warmup = 100;
  double rate = 6e-4;
  std::filesystem::path log;
  bool watch = false;
};

struct StepRange {
  static constexpr const char* message = "step";
  static constexpr penstock::MarkerCategory category = penstock::markers::category::loop;
};
struct GetBatchRange {
  static constexpr const char* message = "get batch";
  static constexpr penstock::MarkerCategory category = penstock::markers::category::get_batch;
};

std::optional<int> parse(int argc, char** argv, Options& options) {
  if (Products::on_the_host()) {
    options.model = {
        .layers = 2, .heads = 2, .channels = 32, .length = 64, .vocabulary = 512, .batch = 4};
    options.precision = Precision::fp32;
  }
  CLI::App app("Trains a GPT on files of tokens.");
  auto* const files = app.add_option_group("files", "The tokens");
  files->add_option("--megatron", options.input.megatron, "Prefix of Megatron's .bin and .idx");
  files->add_option("--llm-c", options.input.llm_c, "Files in the format of llm.c");
  files->require_option(1);
  app.add_option("--begin-of-document", options.input.begin_of_document,
                 "--llm-c: the token with which each document begins")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--packing", options.input.method,
                 "best-fit: documents are whole, if they fit; concatenate: cut anywhere")
      ->transform(CLI::CheckedTransformer(std::map<std::string, penstock::PackingMethod>{
          {"best-fit", penstock::PackingMethod::best_fit},
          {"concatenate", penstock::PackingMethod::concatenate}}));
  app.add_flag("--in-order", options.input.in_order, "Sequences are not shuffled");
  app.add_option("--workers", options.input.workers, "Threads that pack")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--input", options.kind,
                 "files; synthetic: one batch that stays on the device; both: in turn, to compare")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, InputKind>{{"files", InputKind::files},
                                           {"synthetic", InputKind::synthetic},
                                           {"both", InputKind::both}}));
  const auto size = [&](const char* name, std::int64_t& value, const char* about) {
    app.add_option(name, value, about)
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
        ->capture_default_str();
  };
  size("--layers", options.model.layers, "Blocks");
  size("--heads", options.model.heads, "Heads of the attention");
  size("--channels", options.model.channels, "Width, a multiple of the heads");
  size("--length", options.model.length, "Tokens in a sequence");
  size("--vocabulary", options.model.vocabulary, "Rows of the token embedding");
  size("--batch", options.model.batch, "Sequences in a batch");
  size("--steps", options.steps, "Steps");
  app.add_option("--precision", options.precision, "bf16 or fp32")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, Precision>{{"bf16", Precision::bf16}, {"fp32", Precision::fp32}}));
  app.add_option("--rate", options.rate, "Learning rate behind the warm-up")
      ->check(penstock::programs::finite(0, 1e3))
      ->capture_default_str();
  app.add_option("--warmup", options.warmup, "Steps in which the rate rises")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--seed", options.input.seed, "Of weights and order")
      ->transform(penstock::programs::whole_number());
  app.add_option("--log", options.log, "A line for each step: step, loss, gradient norm, rate");
  app.add_flag("--watch", options.watch, "What the pipeline waits for, in place of the progress");
  return penstock::programs::parse(app, argc, argv);
}

/// It rises linearly, and falls by a cosine to a tenth.
double rate_of(const Options& options, std::int64_t step) {
  if (step < options.warmup)
    return options.rate * static_cast<double>(step + 1) / static_cast<double>(options.warmup);
  const double part =
      static_cast<double>(step - options.warmup) /
      static_cast<double>(std::max<std::int64_t>(1, options.steps - options.warmup));
  return options.rate * (0.55 + 0.45 * std::cos(std::numbers::pi * part));
}

/// What has come back of the steps. One thread tells, another one asks.
class Results {
 public:
  explicit Results(const Options& options) : options_(options) {
    if (!options.log.empty()) log_.reserve(static_cast<std::size_t>(options.steps));
  }

  void tell(std::int64_t step, const Metrics& metrics) {
    if (step == 0) first_ = metrics.loss;
    if (!options_.log.empty()) log_.push_back(metrics);
    if (!std::isfinite(metrics.loss) && failed_ < 0) failed_ = step;
    loss_ = metrics.loss;
    done_.store(step + 1, std::memory_order_release);
  }
  double loss() const { return loss_; }
  /// Ends the run at the first loss that is no number.
  void check() const {
    if (failed_ >= 0)
      throw std::runtime_error("the loss of step " + std::to_string(failed_) +
                               " is not finite: is the rate too high?");
  }
  std::string text() const {
    const auto done = done_.load(std::memory_order_acquire);
    if (done == 0) return {};
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start_;
    char text[80];
    std::snprintf(
        text, sizeof(text), "%.0f tokens/s, loss %.4f",
        static_cast<double>(done * options_.model.batch * options_.model.length) / time.count(),
        loss());
    return text;
  }
  /// After the last step.
  void print() const {
    const auto done = done_.load(std::memory_order_acquire);
    if (done > 0)
      std::printf("loss %.4f in step 0, %.4f in step %lld\n", first_, loss(),
                  static_cast<long long>(done - 1));
    if (options_.log.empty()) return;
    std::ostringstream text;
    text.precision(10);
    text << "step,loss,gradient_norm,rate\n";
    for (std::size_t i = 0; i < log_.size(); ++i)
      text << i << ',' << log_[i].loss << ',' << log_[i].gradient_norm << ','
           << rate_of(options_, static_cast<std::int64_t>(i)) << '\n';
    penstock::programs::write_file(options_.log, text.str());
  }

 private:
  const Options& options_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::atomic<std::int64_t> done_{0}, failed_{-1};
  std::atomic<double> loss_{0};
  double first_ = 0;
  std::vector<Metrics> log_;
};

void print_start(const Options& options, const Model& model, const penstock::Packing& packing) {
  const Parameter last = parameters_of(options.model).back();
  std::printf(
      "%.1f M parameters, %s on the device, %s; %llu sequences of %lld tokens, %.2f %% of "
      "them padding\n",
      static_cast<double>(last.begin + last.size()) / 1e6,
      examples::memory_text(model.bytes()).c_str(),
      Products::on_the_host() ? "products on the host" : "products by cuBLASLt",
      static_cast<unsigned long long>(packing.size()), static_cast<long long>(packing.length()),
      100 * packing.padding());
}

void print_times(const Options& options, const StepTimes& times) {
  const auto with = times.median(true), without = times.median(false);
  for (const auto& [name, time] : {std::pair("", with), std::pair(" without input", without)})
    if (time)
      std::printf("a step%s: %.3f ms (median), %.0f tokens/s\n", name, *time,
                  1000 * static_cast<double>(options.model.batch * options.model.length) / *time);
  if (with && without) std::printf("step time without input / with: %.4f\n", *without / *with);
}

/// Behind this step, a profiler's capture range begins.
constexpr std::int64_t kProfiledFrom = 10;
/// Steps that have the input, and as many that have not, come in turn.
constexpr std::int64_t kTurn = 50;

int train(const Options& options) {
  if (!options.log.empty()) penstock::programs::require_writable(options.log);
  InputOptions input_options = options.input;
  if (options.kind != InputKind::files) ++input_options.device_depth;  // A batch stays.
  const auto packing = open_packing(input_options, options.model.length, options.model.vocabulary);
  const auto input = make_input(packing, input_options, options.model.batch);
  const auto model = make_model(options.model, options.precision, options.input.seed);
  print_start(options, *model, packing);

  const penstock::Stream stream;
  StepTimes times(options.steps);
  Results results(options);
  {
    const auto watch = examples::watch_if(options.watch, *input);
    std::optional<examples::Progress> progress;
    if (!watch) progress.emplace("steps", static_cast<std::uint64_t>(options.steps));
    penstock::Lease<Sequences> kept;
    if (options.kind != InputKind::files) kept = input->next(stream.get());
    penstock::Readback<Metrics> metrics(16);
    for (std::int64_t step = 0; step < options.steps && !penstock::programs::interrupted();
         ++step) {
      if (step == kProfiledFrom) examples::check(cudaProfilerStart(), "cudaProfilerStart");
      const penstock::ScopedRange range(StepRange{}, static_cast<std::uint64_t>(step));
      const bool has_input = options.kind == InputKind::files ||
                             (options.kind == InputKind::both && step / kTurn % 2 == 0);
      penstock::Lease<Sequences> fresh;
      if (has_input) {
        const penstock::ScopedRange get_batch(GetBatchRange{}, static_cast<std::uint64_t>(step));
        fresh = input->next(stream.get());
      }
      const Sequences& batch = has_input ? *fresh : *kept;
      model->forward(batch, stream.get());
      model->backward(batch, stream.get());
      model->update({.step = step + 1, .rate = rate_of(options, step)}, stream.get());
      times.end_step(has_input, stream.get());
      metrics.push(model->metrics(), stream.get(),
                   [&results, step](const Metrics& of_step) { results.tell(step, of_step); });
      results.check();
      if (progress)
        progress->to(static_cast<std::uint64_t>(step + 1), [&results] { return results.text(); });
    }
    metrics.drain();
    stream.synchronize();
    examples::check(cudaProfilerStop(), "cudaProfilerStop");
  }
  results.check();
  results.print();
  print_times(options, times);
  if (options.kind == InputKind::files)
    std::printf("%s\n", input->stats().verdict().sentence.c_str());
  return penstock::programs::interrupted() ? penstock::programs::interrupted_exit_code() : 0;
}

/// Can the user put it right? What a source throws is within another exception.
bool is_mistake(const std::exception& error) {
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& inner) {
    return is_mistake(inner);
  }
  return dynamic_cast<const std::invalid_argument*>(&error) != nullptr ||
         dynamic_cast<const penstock::StoreError*>(&error) != nullptr;
}

}  // namespace
}  // namespace gpt

int main(int argc, char** argv) {
  gpt::Options options;
  if (const auto status = gpt::parse(argc, argv, options)) return *status;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // A line at a time, into a file or a pipe too.
  penstock::programs::watch_interrupts();
  try {
    return gpt::train(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_gpt: %s\n", error.what());
    return gpt::is_mistake(error) ? 2 : 1;
  }
}
