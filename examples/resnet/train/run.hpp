// SPDX-License-Identifier: Apache-2.0
#pragma once

// Run: what every rung of the ladder has in common: data, a network, a stream, and steps that are
// counted, timed and told. A rung is the loop itself:
//
//   void train(Run& run) {
//     run.for_each_step([&](Step& step) {
//       step.load([&] { ... });                 // host: make the batch
//       step.copy(stream, [&] { ... });         // to the device
//       step.compute(pixels, labels, stream);   // forward, loss, backward, optimizer
//       run.tell(step.number(), run.read_metrics());
//     });
//   }
//   int main(int argc, char** argv) {
//     return run_rung({.number = "T1", .name = "baseline", .change = "...", .train = train}, argc,
//                     argv);
//   }

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <penstock/markers.hpp>
#include <penstock/sampler.hpp>
#include <penstock/stats.hpp>
#include <string>
#include <vector>

#include "../../common/copy_time.hpp"
#include "../../common/device_memory.hpp"
#include "../data/input.hpp"
#include "../distributed/data_parallel.hpp"
#include "../model/network.hpp"
#include "measure.hpp"
#include "options.hpp"
#include "pace.hpp"
#include "ranges.hpp"
#include "skipped_steps.hpp"
#include "training_data.hpp"

namespace resnet {

class Run;

/// Steps that the host enqueues before the loss of the first of them is back.
inline constexpr std::size_t kStepsAhead = 4;

struct Rung {
  std::string number;  ///< in the published ladder; with a letter where we have more of them
  std::string name;
  std::string after = {};  ///< number of the rung that it changes; empty: none
  std::string change;      ///< against that one
  Settings settings = {};
  std::int64_t batch = 32;
  int workers = 8;
  bool loss_scale = true;      ///< in fp16
  bool graph = false;          ///< a step is one graph, on images that come packed
  bool prefetcher = false;     ///< there is one that --watch can watch
  bool distributed = false;    ///< the rung itself does what several ranks need; else Run does
  bool own_synthetic = false;  ///< the rung itself does what --synthetic needs; else Run does
  std::vector<std::string> special = {};  ///< the options that few rungs have, and this one
  void (*train)(Run&) = nullptr;
};

/// One step of a run; valid within for_each_step.
class Step {
 public:
  std::int64_t number() const { return number_; }
  std::uint64_t epoch() const;
  std::uint64_t batch() const;  ///< within the epoch
  /// For a Readback: tells the run this step's metrics.
  std::function<void(Metrics)> teller() const;

  /// Runs `f`, which gets a batch, and times it.
  template <class F>
  void load(F&& f);
  /// Runs `f`, which queues a copy on `stream`, and times what the stream does.
  template <class F>
  void copy(cudaStream_t stream, F&& f);
  /// Queues forward, loss, backward and optimizer for images in device memory (sample x 3 x height
  /// x width), packed as the network takes them: floats; bytes, which are normalised, too.
  void compute(const float* pixels, const std::int32_t* labels, cudaStream_t stream);
  void compute(const std::uint8_t* pixels, const std::int32_t* labels, cudaStream_t stream);
  /// The same for what is packed already.
  void compute(const std::byte* packed, const std::int32_t* labels, cudaStream_t stream);
  /// The same by a function that queues it all.
  template <class F>
  void compute(cudaStream_t stream, F&& f);

 private:
  friend class Run;
  Step(Run& run, std::int64_t number) : run_(run), number_(number) {}

  Run& run_;
  std::int64_t number_;
};

class Run {
 public:
  /// Opens the data, makes network and operations, loads the checkpoint (whose schedule goes on:
  /// its end moves by the steps of this run). `ranks` outlive this; each has a batch of its own.
  Run(const Rung& rung, const Options& options, DataParallel& ranks);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  const Rung& rung() const { return rung_; }
  const Options& options() const { return options_; }
  /// That a BatchProducer's batches take: those it makes, two that are taken, one in flight.
  std::size_t host_blocks() const { return static_cast<std::size_t>(options_.workers) + 5; }
  /// Batches on the device, of a prefetcher: one more where one stays there.
  std::size_t device_depth(std::size_t usual) const {
    return (options_.device_depth > 0 ? options_.device_depth : usual) +
           (options_.input_apart ? 1 : 0);
  }
  std::int64_t batch() const { return options_.batch; }  ///< images of this rank
  DataParallel& ranks() const { return ranks_; }
  /// Bytes of a batch of float images.
  std::size_t pixel_bytes() const;
  std::size_t label_bytes() const;
  /// Epochs that the steps take, begun ones counted.
  std::uint64_t epochs() const;

  const penstock::Sampler& sampler() const { return sampler_; }
  /// Of all ranks' samples, in batches of this rank's size.
  penstock::SamplerOptions sampler_options() const;
  const TrainingData& data() const { return data_; }
  /// How samples become images.
  const Augmentation& augmentation() const { return augmentation_; }
  /// Makes float images on the CPU; copies of it are independent.
  const FloatSource& image_source() const { return image_source_; }
  /// The same as bytes, of records alone. Throws std::invalid_argument for JPEG files.
  ByteImageSource byte_source() const { return {&data_.records(), augmentation_}; }
  Network& network() { return *network_; }
  const Operations& operations() const { return *operations_; }
  InputFormat input_format() const;
  cudaStream_t stream() const { return stream_.get(); }

  /// Calls body(step) for the warm-up and the measured steps, or until somebody interrupts this
  /// rank, or another.
  void for_each_step(const std::function<void(Step&)>& body);

  /// Whether this step may be a graph. The first one of several ranks may not: in it, NCCL sets up
  /// what its collectives need.
  bool captures(const Step& step) const { return ranks_.world_size() == 1 || step.number() > 0; }
  /// Queues: images, as Step::compute takes them, become what the network takes, at packed().
  template <class T>
  void pack(const T* pixels, cudaStream_t stream) {
    pack_images(pixels, batch(), input_format(), input_.data(), stream);
  }
  const void* packed() const { return input_.data(); }
  /// Queues what a step computes on images that are packed already.
  void train_step(const void* input, const std::int32_t* labels, cudaStream_t stream);
  const SgdOptions& sgd() const { return sgd_; }
  /// Queues a copy to the device, on the stream that computes.
  void copy(void* to, const void* from, std::size_t bytes) const;
  /// The same, and waits for it. (A plain cudaMemcpy would not do: it is on the legacy stream, and
  /// of pageable memory it returns while the device still copies.)
  void copy_and_wait(void* to, const void* from, std::size_t bytes) const;
  /// What network().metrics() says now. Waits for the stream.
  Metrics read_metrics() const;
  /// Of one step, as network().metrics() says; each step's once, in their order, from one thread.
  /// Throws what SkippedSteps::add throws.
  void tell(std::int64_t step, const Metrics& metrics);

  /// A prefetcher knows how long it copies, and when its first batch came.
  void set_stats(const penstock::Stats& stats) {
    measure_.set_copy_time(examples::copy_time(stats));
    first_batch_ = stats.first_batch;
  }
  std::chrono::nanoseconds first_batch() const { return first_batch_; }
  /// Of --input-apart: images a second, beside the measured steps; otherwise 0.
  void set_input_rate(double rate) { input_rate_ = rate; }
  double input_rate() const { return input_rate_; }
  Timing timing() const;
  /// The most that the run takes of this rank's device, in its steps and after them, without what
  /// was taken before the run: CUDA's context, and NCCL's first buffers.
  std::size_t device_bytes() const { return memory_.most(); }
  bool interrupted() const { return interrupted_; }
  /// By step, of all ranks' samples; of a step that was skipped it may be no number.
  const std::vector<float>& losses() const { return losses_; }
  const SkippedSteps& skipped() const { return skipped_; }
  void save();

 private:
  friend class Step;

  void load();
  Facts facts() const;
  void profile(std::int64_t step);
  void open(ranges::AroundSteps& around, const Step& step) const;
  void stop_profiler();

  const Rung& rung_;
  DataParallel& ranks_;
  examples::DeviceMemory memory_;  // Before all that allocates.
  const TrainingData data_;
  const Options options_;
  penstock::Sampler sampler_;
  Augmentation augmentation_;
  FloatSource image_source_;
  penstock::Stream stream_;
  std::unique_ptr<Operations> operations_;
  std::unique_ptr<Network> network_;
  DeviceArray<std::byte> input_;  // packed images
  SgdOptions sgd_;
  Measure measure_;
  std::vector<float> losses_;
  SkippedSteps skipped_;
  std::int64_t done_ = 0;  // measured steps
  std::chrono::nanoseconds first_batch_{0};
  double input_rate_ = 0;
  bool profiling_ = false, interrupted_ = false;
  std::optional<Pace> pace_;  // of the steps, once they have begun
};

/// The main function of a rung: command line, run, result as text and JSON.
int run_rung(const Rung& rung, int argc, char** argv);

// -------------------------------------------------------------------------------------------------

template <class F>
void Step::load(F&& f) {
  const penstock::ScopedRange range(ranges::GetBatch{}, static_cast<std::uint64_t>(number_));
  const auto begin = Measure::Clock::now();
  f();
  if (run_.measure_.running()) run_.measure_.load += Measure::Clock::now() - begin;
}

template <class F>
void Step::copy(cudaStream_t stream, F&& f) {
  const penstock::ScopedRange range(ranges::CopyBatch{}, static_cast<std::uint64_t>(number_));
  const bool timed = run_.measure_.running();
  if (timed) run_.measure_.copies.begin(stream);
  f();
  if (timed) run_.measure_.copies.end(stream);
}

template <class F>
void Step::compute(cudaStream_t stream, F&& f) {
  const bool timed = run_.measure_.running();
  if (timed) run_.measure_.computes.begin(stream);
  f();
  if (timed) run_.measure_.computes.end(stream);
  // Here a step holds all that it takes. The warm-up's steps hold what the measured ones do.
  if (!timed || number_ == 0) run_.memory_.look();
}

}  // namespace resnet
