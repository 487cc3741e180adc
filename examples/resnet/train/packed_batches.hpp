// SPDX-License-Identifier: Apache-2.0
#pragma once

// PackedBatches: batches of a network's input, on the device, from records or from JPEG files.
//
//   const auto batches = packed_batches(data, input, {.seed = 7, .size = 224}, {.batch = 256});
//   while (const penstock::Lease<Packed> batch = batches->next(stream)) ...

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <penstock/failure.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/ranks.hpp>
#include <penstock/state.hpp>
#include <penstock/stats.hpp>
#include <vector>

#include "../data/input.hpp"
#include "training_data.hpp"

namespace resnet {

/// What its members do is what Prefetcher's do.
class PackedBatches {
 public:
  virtual ~PackedBatches() = default;
  virtual penstock::Lease<Packed> next(cudaStream_t stream) = 0;
  virtual penstock::State state() const = 0;
  virtual penstock::Stats stats() const = 0;
  virtual std::vector<penstock::Failure> failures() const = 0;
};

struct PackedOptions {
  std::uint64_t epochs = 1;
  int workers = 2;
  bool device_times = false;
  /// Image files that may be broken: another takes the place of one. To evaluate, it is left out.
  std::uint64_t broken = 0;
  penstock::Ranks ranks = {};
  /// To train on from, also of a run on other ranks.
  std::optional<penstock::State> resumed = {};
};

/// Augmentation::random: shuffled, and without the last batch if it is not full; all ranks have as
/// many. To evaluate: the batches that one rank would have, dealt out to the ranks: each sample is
/// in one of them, and a rank may have none (null). The data outlive the batches. Throws
/// std::invalid_argument where `resumed` is of another run.
std::unique_ptr<PackedBatches> packed_batches(const TrainingData& data, const InputFormat& input,
                                              const Augmentation& augmentation,
                                              const PackedOptions& options);

}  // namespace resnet
