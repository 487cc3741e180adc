// SPDX-License-Identifier: Apache-2.0
#pragma once

// Run: what every rung of the inference ladder has in common: data, a network, requests that are
// counted, timed and answered. A rung is the loop itself:
//
//   void infer(Run& run) {
//     Lane& lane = run.lane(0);                       // this thread, and its stream
//     InferenceContext context(run.network());
//     lane.for_each_request([&] {
//       lane.load([&] { ... });                       // host: get the batch
//       lane.copy(lane.stream(), [&] { ... });        // to the device
//       lane.compute([&] { context.run(...); });
//       lane.read_answers(request, logits);
//     });
//   }
//   int main(int argc, char** argv) {
//     return run_rung({.number = "I1", .name = "baseline", .change = "...", .infer = infer}, argc,
//                     argv);
//   }

#include <cuda_runtime_api.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <penstock/markers.hpp>
#include <penstock/record_file.hpp>
#include <penstock/source.hpp>
#include <penstock/stats.hpp>
#include <string>
#include <vector>

#include "../../../common/device_memory.hpp"
#include "../../data/input.hpp"
#include "../../train/measure.hpp"
#include "../network.hpp"
#include "answers.hpp"
#include "options.hpp"
#include "requests.hpp"

namespace resnet::rungs {

class Run;

struct Rung {
  std::string number;  ///< in the published ladder; with a letter where we have more of them
  std::string name;
  std::string after = {};  ///< number of the rung that it changes; empty: none
  std::string change;      ///< against that one
  Precision precision = Precision::fp32;
  Format format = Format::nchw;
  Fusion fusion = Fusion::none;
  PlanChoice plans = PlanChoice::heuristic;
  std::vector<std::int64_t> batches = {128};
  bool profiles = false;  ///< takes several batch sizes, and requests in between
  bool contexts = false;  ///< as many as the command line says; else one
  void (*infer)(Run&) = nullptr;
  void (*infer_records)(Run&) = nullptr;  ///< for --uint8; null: the rung has no such way
};

namespace ranges {
namespace category = penstock::markers::category;

struct EntireInference {
  static constexpr const char* message = "entire inference";
  static constexpr penstock::MarkerCategory category = category::loop;
};
struct Request {
  static constexpr const char* message = "request";
  static constexpr penstock::MarkerCategory category = category::loop;
};
struct GetBatch {
  static constexpr const char* message = "get batch";
  static constexpr penstock::MarkerCategory category = category::get_batch;
};
struct CopyBatch {
  static constexpr const char* message = "copy batch";
  static constexpr penstock::MarkerCategory category = category::copy;
};
/// The host waits until the device has done a request, and takes its answers.
struct ReadAnswers {
  static constexpr const char* message = "read answers";
  static constexpr penstock::MarkerCategory category = category::read;
};
}  // namespace ranges

/// A host thread that infers, with its stream: one thread at a time.
class Lane {
 public:
  Lane(Run& run, int index);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  int index() const { return index_; }
  cudaStream_t stream() const { return stream_.get(); }

  /// Calls `body` for its share of the warm-up, and of the measured requests, or until somebody
  /// interrupts; and `finish` after either share: the time until all is answered counts. Waits for
  /// the stream, and between the shares for the other lanes.
  void for_each_request(
      const std::function<void()>& body, const std::function<void()>& finish = [] {});

  /// Runs `f`, which gets a batch, and times it.
  template <class F>
  void load(F&& f);
  /// Runs `f`, which queues a copy on `stream`, and times what the stream does.
  template <class F>
  void copy(cudaStream_t stream, F&& f);
  /// The same for what it queues on stream(): a batch's inference.
  template <class F>
  void compute(F&& f);

  /// Copies the logits of a request from the device, waits for them, and tells them.
  void read_answers(std::uint64_t request, const float* logits);

 private:
  friend class Run;

  Run& run_;
  const int index_;
  const penstock::Stream stream_;
  Measure measure_;
  std::vector<float> logits_;  // on the host
};

class Run {
 public:
  /// Opens the data, makes the network: of weights, or as it was prepared.
  Run(const Rung& rung, const Options& options);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  const Rung& rung() const { return rung_; }
  const Options& options() const { return options_; }
  const Requests& requests() const { return requests_; }
  /// Images of a batch; of the largest, where there are several.
  std::int64_t batch() const { return network_->image().n; }
  /// Of float images, for the largest batch.
  penstock::Layout<Images> layout() const { return images_layout(batch(), options_.image_size); }
  /// That a BatchProducer's batches take: those it makes, one that is taken, and one in flight.
  std::size_t host_blocks() const { return static_cast<std::size_t>(options_.workers) + 4; }
  /// n images of such a batch, for InferenceContext::run.
  ImageInput images(std::int64_t n) const;
  /// Of the largest batch: floats.
  std::int64_t logits() const { return batch() * network_->classes(); }

  /// Makes float images on the CPU, or copies records; copies of it are independent.
  penstock::Source<Images> image_source() const;
  penstock::Source<Records> record_source() const;
  /// Images as they are, resized.
  Augmentation augmentation() const { return {.size = options_.image_size, .random = false}; }
  const Model& model() const { return model_; }
  const InferenceNetwork& network() const { return *network_; }
  Answers& answers() const { return *answers_; }

  /// One, but for rungs with several contexts.
  int lanes() const { return static_cast<int>(lanes_.size()); }
  Lane& lane(int index) { return *lanes_[static_cast<std::size_t>(index)]; }
  /// Calls `work` for each lane, on a thread for each. Throws the first exception, once all have
  /// ended.
  void in_every_lane(const std::function<void(Lane&)>& work);
  /// So many of the first requests are answered before the lanes take theirs: they count as
  /// warm-up.
  void answered_before(std::size_t requests);

  /// Where a prefetcher copies, it knows how long.
  void set_copy_time(const penstock::Stats& stats);
  /// Where contexts compute side by side: milliseconds that the device takes for a request.
  void set_compute_time(double milliseconds) { compute_ = milliseconds; }
  /// Milliseconds that a request takes to compute, whatever else there is to wait for.
  double compute_time(const Timing& timing) const { return compute_.value_or(timing.compute); }
  /// Of the measured ones.
  double images_per_request() const;
  /// Milliseconds of the lanes together, for each request. Call when all lanes are done.
  Timing timing() const;
  /// The most that the run takes of the device, in its requests and after them, without CUDA's
  /// context.
  std::size_t device_bytes() const { return memory_.most(); }

 private:
  friend class Lane;
  using Clock = Measure::Clock;
  /// At a barrier, while all lanes wait.
  struct PhaseEnd {
    Run* run;
    void operator()() const noexcept { run->end_phase(); }
  };

  bool claim();
  void end_phase() noexcept;
  void give_up() noexcept;

  const Rung& rung_;
  examples::DeviceMemory memory_;  // Before all that allocates.
  const Model model_;
  const Options options_;
  std::unique_ptr<penstock::RecordFile> records_;
  const Requests requests_;
  std::unique_ptr<InferenceNetwork> network_;
  std::unique_ptr<Answers> answers_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<std::barrier<PhaseEnd>> phase_;
  std::atomic<std::int64_t> unclaimed_;  // requests of this phase
  std::atomic<bool> given_up_{false};
  int phases_ended_ = 0;
  Clock::time_point start_, stop_;    // of the measured requests
  std::chrono::nanoseconds copy_{0};  // of a batch
  std::optional<double> compute_;
};

/// The main function of a rung: command line, run, result as text and JSON.
int run_rung(const Rung& rung, int argc, char** argv);

// -------------------------------------------------------------------------------------------------

template <class F>
void Lane::load(F&& f) {
  const penstock::ScopedRange range(ranges::GetBatch{}, static_cast<std::uint64_t>(index_));
  const auto begin = Measure::Clock::now();
  f();
  if (measure_.running()) measure_.load += Measure::Clock::now() - begin;
}

template <class F>
void Lane::copy(cudaStream_t stream, F&& f) {
  const penstock::ScopedRange range(ranges::CopyBatch{}, static_cast<std::uint64_t>(index_));
  const bool timed = measure_.running();
  if (timed) measure_.copies.begin(stream);
  f();
  if (timed) measure_.copies.end(stream);
}

template <class F>
void Lane::compute(F&& f) {
  const bool timed = measure_.running();
  if (timed) measure_.computes.begin(stream());
  f();
  if (timed) measure_.computes.end(stream());
  // Here a request holds all that it takes. The warm-up's requests hold what the measured ones do.
  if (!timed) run_.memory_.look();
}

}  // namespace resnet::rungs
