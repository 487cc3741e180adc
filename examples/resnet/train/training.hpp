// SPDX-License-Identifier: Apache-2.0
#pragma once

// Training: a ResNet on CIFAR-10 or on JPEG files by the best rungs' means (records, or decoded
// crops, cross the bus; a step is one graph), with validation after each epoch, and checkpoints
// from which it goes on as if it had never stopped: at any batch, with any number of workers, on
// the reference operations to the last bit.
//
//   DataParallel ranks;                          // one; see data_parallel.hpp for several
//   // Goes on from the checkpoint, if it is there.
//   Training training({.model = "resnet8", .data = directory, .checkpoint = file}, ranks);
//   const std::optional<double> accuracy = training.run();
//
// Several ranks have a batch each, and train as one with the batch of all. Rank 0 prints, and
// writes the checkpoint, from which any number of ranks goes on.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/step_graph.hpp>
#include <string>

#include "../distributed/data_parallel.hpp"
#include "../model/checkpoint.hpp"
#include "../model/network.hpp"
#include "pace.hpp"
#include "packed_batches.hpp"
#include "skipped_steps.hpp"
#include "training_data.hpp"

namespace resnet {

struct TrainOptions {
  std::string model;
  std::int32_t image_size = 0;
  std::int64_t batch = 128;  ///< of each rank
  std::uint64_t epochs = 3;
  float rate = 0;      ///< behind the warm-up; 0: the usual one (schedule.hpp)
  bool steps = false;  ///< a tenth of the rate at each third, not a cosine
  double target = 0;   ///< accuracy at which training ends; 0: after the epochs
  std::uint64_t seed = 1;
  int workers = 2;
  bool watch = false;  ///< what the pipeline waits for, while it trains, in place of the progress
  std::filesystem::path data = {};        ///< CIFAR-10's directory
  std::filesystem::path images = {};      ///< JPEG files in place of it, see open_images
  std::int32_t classes = 0;               ///< of these; 0: as their labels say
  std::uint64_t broken = 0;               ///< image files that may be broken in a run
  std::filesystem::path checkpoint = {};  ///< empty: none is read or written
  std::filesystem::path plans = {};       ///< Settings::plan_file
};

/// Fp32 and NCHW on the reference operations; on a GPU what is fastest.
Settings train_settings(const std::filesystem::path& plans);

class Training {
 public:
  /// Goes on from the checkpoint where there is one. `ranks` outlive this. Throws
  /// std::invalid_argument for a checkpoint of another run (another model, data set, seed, ...:
  /// what decides the result), and what load_checkpoint throws.
  Training(const TrainOptions& options, DataParallel& ranks);

  /// Trains, validates and saves until the target or the last epoch. The accuracy on the test set,
  /// 0 ... 1; none when it was interrupted, behind the batch that was under way; with several
  /// ranks, all end some batches later, behind the same one. Throws what SkippedSteps::add throws,
  /// RankError and std::runtime_error for a loss on the test set that is no number,
  /// and leaves the checkpoint as it was.
  std::optional<double> run();

 private:
  /// Sums over the batches of an epoch.
  struct Totals {
    double loss = 0, correct = 0, samples = 0;
  };

  std::unique_ptr<PackedBatches> batches(
      const TrainingData& data, bool training,
      const std::optional<penstock::State>& resumed = std::nullopt) const;
  std::int64_t batch_of_all() const { return options_.batch * ranks_.world_size(); }
  std::map<std::string, std::string> identity() const;
  Facts facts() const;
  CheckpointNotes load();
  void resume();
  /// Throws std::invalid_argument.
  static Totals parse_totals(const std::string& text);
  void start_from_weights();
  bool train_epoch();
  penstock::Lease<Packed> get_batch(std::uint64_t step);
  void queue_step(const penstock::Lease<Packed>& batch);
  void train_step(const Packed& batch);
  void tell(const penstock::State& position, const Metrics& metrics);
  void print_epoch(std::uint64_t epoch, std::uint64_t done, const Pace& pace) const;
  bool evaluate(PackedBatches& test);
  std::optional<double> validate(std::uint64_t epoch);
  void save();
  void write_checkpoint();

  /// Tells the files that could not be read or decoded, by name. Each rank tells its own.
  void print_failures(const std::string& where, const PackedBatches& batches) const;
  std::optional<double> train_epochs();

  DataParallel& ranks_;
  const TrainOptions options_;
  const TrainingData data_, test_data_;
  penstock::Stream stream_;
  std::unique_ptr<Operations> operations_;
  std::unique_ptr<Network> network_;
  SgdOptions sgd_;
  std::unique_ptr<PackedBatches> batches_;
  bool resumed_ = false;
  bool captures_ = false;  // a step may be a graph
  penstock::StepGraph graphs_;
  std::uint64_t batches_per_epoch_ = 0;
  Totals totals_;  // of the epoch under way, what was before a resume included
  SkippedSteps skipped_;
};

}  // namespace resnet
