// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a run is made of: the data, and the model.

#include <map>
#include <memory>
#include <mutex>
#include <penstock/record_file.hpp>
#include <penstock/source.hpp>
#include <utility>

#include "../../data/input.hpp"
#include "../model.hpp"
#include "options.hpp"

namespace resnet::rungs {

/// Weights of no training: He's distribution for convolutions, batch norms that do nothing.
TensorSource made_up_weights();

/// Blocks. As `prepare` wrote it; or of weights, folded, in fp32.
Model model_of(const Options& options);

/// Blocks. The training records, of a set that is made the first time where there is no other.
std::unique_ptr<penstock::RecordFile> open_records(const Options& options);

/// Fills host memory that has not so many samples yet, and leaves all other as it is: what a run
/// could reach with loading for free. Copies share what they know, so that a block is filled once,
/// whichever worker has it.
template <class Batch>
class FilledOnce {
 public:
  explicit FilledOnce(penstock::Source<Batch> source) : source_(std::move(source)) {}

  void operator()(const penstock::Ticket& ticket, Batch& batch) {
    std::size_t& there = filled_->samples(memory_of(batch));
    if (there >= ticket.samples.size()) return;
    source_(ticket, batch);
    there = ticket.samples.size();
  }

 private:
  /// The samples of a block are its worker's alone, until the block goes on.
  class Filled {
   public:
    std::size_t& samples(const void* memory) {
      const std::lock_guard lock(mutex_);
      return samples_[memory];  // stays where it is when others are added
    }

   private:
    std::mutex mutex_;
    std::map<const void*, std::size_t> samples_;
  };

  static const void* memory_of(const Images& images) { return images.pixels.data_handle(); }
  static const void* memory_of(const Records& records) { return records.bytes.data_handle(); }

  penstock::Source<Batch> source_;
  std::shared_ptr<Filled> filled_ = std::make_shared<Filled>();
};

}  // namespace resnet::rungs
