// SPDX-License-Identifier: Apache-2.0

#include "run.hpp"

#include <cuda_profiler_api.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "../../../common/check.hpp"
#include "../../../common/copy_time.hpp"
#include "programs/interrupt.hpp"
#include "source.hpp"

namespace resnet::rungs {
namespace {

Model model_of(const Rung& rung, const Options& options) {
  Model model = rungs::model_of(options);
  if (!options.prepared.empty()) return model;
  model.precision = options.precision.value_or(rung.precision);
  model.format = rung.format;
  model.fusion = rung.fusion;
  return model;
}

void check(const Rung& rung, const Options& options) {
  if (options.uint8 && rung.infer_records == nullptr)
    throw std::invalid_argument("--uint8: " + rung.number +
                                " copies images; records are decoded on the device from I5b on");
  if (options.watch && rung.infer_records == nullptr)
    throw std::invalid_argument("--watch: " + rung.number +
                                " has no prefetcher; I5b and on have one");
  if (!rung.profiles && options.batches.size() > 1)
    throw std::invalid_argument("--batches: " + rung.number +
                                " has one batch size; I9 has several");
  if (!rung.profiles && options.requests != options.batches)
    throw std::invalid_argument("--requests: to " + rung.number +
                                " a request is a batch; I9 takes requests of any size");
  if (!rung.contexts && options.contexts > 1)
    throw std::invalid_argument("--contexts: " + rung.number + " has one; I8 and I9 have several");
  const std::int64_t largest = *std::max_element(options.batches.begin(), options.batches.end());
  for (const std::int64_t size : options.requests)
    if (size > largest)
      throw std::invalid_argument("--requests: " + std::to_string(size) +
                                  " images, and the largest batch has " + std::to_string(largest));
}

/// With everything that was left to the rung and the model.
Options completed(Options options, const Rung& rung, const Model& model) {
  options.model = model.architecture.name;
  options.image_size = static_cast<std::int32_t>(model.image.h);
  if (options.batches.empty()) options.batches = rung.batches;
  if (options.requests.empty()) options.requests = options.batches;
  check(rung, options);
  if (options.contexts == 0) options.contexts = rung.contexts ? 2 : 1;
  if (!rung.contexts) return options;
  // Two slots for each context, of which the graphs are captured in the warm-up.
  options.warmup = std::max<std::int64_t>(options.warmup, 2 * options.contexts);
  return options;
}

std::unique_ptr<InferenceNetwork> make_network(const Model& model, const Rung& rung,
                                               const Options& options, cudaStream_t stream) {
  InferenceOptions network{.batches = options.batches,
                           .plans = rung.plans,
                           .plan_file = options.plans,
                           .layer_ranges = options.layers};
  if (options.exhaustive && rung.plans == PlanChoice::timed) network.plans = PlanChoice::exhaustive;
  if (options.plans.empty() && !options.prepared.empty())
    network.plan_file = plan_file_of(options.prepared);
  auto made = std::make_unique<InferenceNetwork>(model, network, stream);
  if (!options.plans.empty()) made->save_plans();
  return made;
}

}  // namespace

// ---- Lane ---------------------------------------------------------------------------------------

Lane::Lane(Run& run, int index)
    : run_(run),
      index_(index),
      measure_(run.options().steps),
      logits_(static_cast<std::size_t>(run.logits())) {}

void Lane::for_each_request(const std::function<void()>& body,
                            const std::function<void()>& finish) {
  const auto take_share = [&] {
    while (run_.claim()) {
      const penstock::ScopedRange range(ranges::Request{}, static_cast<std::uint64_t>(index_));
      body();
    }
    finish();
    stream_.synchronize();
    run_.phase_->arrive_and_wait();
  };
  take_share();
  const penstock::ScopedRange range(ranges::EntireInference{}, run_.requests_.count);
  measure_.start();
  take_share();
  measure_.stop();
  run_.memory_.look();  // The first lane that looks does so before any of them has freed anything.
}

void Lane::read_answers(std::uint64_t request, const float* logits) {
  const penstock::ScopedRange range(ranges::ReadAnswers{}, request);
  const std::int64_t count = run_.requests_.size(request) * run_.network().classes();
  examples::check(
      cudaMemcpyAsync(logits_.data(), logits, static_cast<std::size_t>(count) * sizeof(float),
                      cudaMemcpyDeviceToHost, stream()),
      "cudaMemcpyAsync");
  stream_.synchronize();
  run_.answers_->tell(request, 0, {logits_.data(), static_cast<std::size_t>(count)});
}

// ---- Run ----------------------------------------------------------------------------------------

Run::Run(const Rung& rung, const Options& options)
    : rung_(rung),
      model_(model_of(rung, options)),
      options_(completed(options, rung, model_)),
      records_(open_records(options_)),
      requests_{options_.requests, static_cast<std::uint64_t>(options_.warmup + options_.steps),
                records_->size()},
      unclaimed_(options_.warmup) {
  const penstock::Stream stream;
  network_ = make_network(model_, rung_, options_, stream.get());
  answers_ = std::make_unique<Answers>(requests_, network_->classes(), options_.answers);
  const int lanes = rung_.contexts ? options_.contexts : 1;
  for (int i = 0; i < lanes; ++i) lanes_.push_back(std::make_unique<Lane>(*this, i));
  phase_ = std::make_unique<std::barrier<PhaseEnd>>(lanes, PhaseEnd{this});
}

penstock::Source<Images> Run::image_source() const {
  const ImageSource source{records_.get(), augmentation()};
  if (options_.free_loading) return FilledOnce<Images>(source);
  return source;
}

penstock::Source<Records> Run::record_source() const {
  const RecordSource source{records_.get()};
  if (options_.free_loading) return FilledOnce<Records>(source);
  return source;
}

ImageInput Run::images(std::int64_t n) const {
  Extents extents = network_->image();
  extents.n = n;
  return {extents};
}

bool Run::claim() {
  return !penstock::programs::interrupted() && !given_up_ && unclaimed_.fetch_sub(1) > 0;
}

void Run::answered_before(std::size_t requests) {
  unclaimed_ -= static_cast<std::int64_t>(requests);
}

void Run::end_phase() noexcept {
  if (phases_ended_++ == 0) {
    unclaimed_ = options_.steps;
    cudaProfilerStart();  // Without a profiler there is nothing to be told.
    start_ = Clock::now();
  } else if (stop_ == Clock::time_point()) {
    stop_ = Clock::now();
    cudaProfilerStop();
  }
}

/// This lane takes no further part: the others do not wait for it, and end.
void Run::give_up() noexcept {
  given_up_ = true;
  phase_->arrive_and_drop();
}

void Run::in_every_lane(const std::function<void(Lane&)>& work) {
  std::mutex mutex;
  std::exception_ptr error;
  const auto work_guarded = [&](Lane& lane) {
    try {
      work(lane);
    } catch (...) {
      give_up();
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (const auto& lane : lanes_)
      threads.emplace_back([&work_guarded, &lane] { work_guarded(*lane); });
  }
  if (error) std::rethrow_exception(error);
}

void Run::set_copy_time(const penstock::Stats& stats) {
  copy_ = examples::copy_time(stats);
}

double Run::images_per_request() const {
  const std::uint64_t first = requests_.first_image(static_cast<std::uint64_t>(options_.warmup));
  return static_cast<double>(requests_.images() - first) / static_cast<double>(options_.steps);
}

Timing Run::timing() const {
  using Milliseconds = std::chrono::duration<double, std::milli>;
  const auto steps = static_cast<double>(options_.steps);
  const double all = Milliseconds(stop_ - start_).count();
  Timing timing;
  timing.step = all / steps;
  timing.copy = Milliseconds(copy_).count();
  for (const auto& lane : lanes_) {
    timing.load += Milliseconds(lane->measure_.load).count() / steps;
    timing.copy += lane->measure_.copies.total() / steps;
    timing.compute += lane->measure_.computes.total() / steps;
  }
  timing.images_per_second = 1000 * images_per_request() / timing.step;
  return timing;
}

}  // namespace resnet::rungs
