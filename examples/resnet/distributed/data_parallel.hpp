// SPDX-License-Identifier: Apache-2.0
#pragma once

// DataParallel: one model trained by several ranks, each on its part of the batch. All ranks have
// the same parameters; the gradients are summed while the backward pass computes them.
//
//   DataParallel parallel(penstock::Ranks::from_environment(), {});
//   Network network(parallel.network_options(options), ops);
//   parallel.agree({{"--batch", "256"}, ...});      // the same on all ranks, or an error
//   parallel.share(network, stream);                // what rank 0 has
//   ...
//   network.forward(images, n, stream);
//   network.loss(labels, stream);
//   parallel.backward(network, stream);             // sums gradients and metrics
//   network.step(sgd, stream);                      // the same on all ranks
//
// Batch norm's statistics are those of each rank's own batch, as PyTorch's DDP has it, unless
// DistributedOptions say otherwise. The running ones of rank 0 count.
//
// A single rank sends nothing, and does what it would do without this. One thread at a time.

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <penstock/ranks.hpp>
#include <string>
#include <utility>
#include <vector>

#include "../model/network.hpp"
#include "communicator.hpp"
#include "gradient_buckets.hpp"
#include "side_stream.hpp"
#include "steps_under_way.hpp"

namespace resnet {

struct DistributedOptions {
  std::chrono::seconds timeout{60};  ///< CommunicatorOptions::timeout
  bool synchronised_batch_norm = false;
  BucketOptions buckets = {};
};

/// What has to be the same on all ranks: name and value.
using Facts = std::vector<std::pair<std::string, std::string>>;

class DataParallel {
 public:
  /// One rank.
  DataParallel() : DataParallel({}, {}) {}
  /// Waits for the other ranks. Throws what make_communicator throws.
  DataParallel(const penstock::Ranks& ranks, const DistributedOptions& options);
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  int rank() const { return communicator_->rank(); }
  int world_size() const { return communicator_->world_size(); }
  const penstock::Ranks& ranks() const { return ranks_; }
  const DistributedOptions& options() const { return options_; }
  /// Prints, and writes files.
  bool is_first() const { return rank() == 0; }
  /// "train", or "train: rank 2" where there are several.
  std::string named(const std::string& program) const;

  /// A network's options, for one of several ranks.
  NetworkOptions network_options(NetworkOptions options);

  // ---- Collective, on the host: they wait for the other ranks.

  /// Throws std::invalid_argument, on all ranks, that names a rank with another value than rank 0.
  /// DistributedOptions are compared, too.
  void agree(Facts facts);
  /// Until all ranks are here.
  void meet() { communicator_->all_gather({}); }
  /// Everything that rank 0's network has learnt becomes that of all.
  void share(Network& network, cudaStream_t stream);
  /// Its running statistics alone.
  void share_statistics(Network& network, cudaStream_t stream);
  /// The sum of what the ranks' networks have counted. Whether one of them wants to end.
  bool sum_metrics(Network& network, bool wants_to_end, cudaStream_t stream);

  // ---- Collective, on the device: they enqueue their work, and can be captured.

  /// Network::backward. What comes behind it on `stream` sees the sums of all ranks' gradients, and
  /// of their metrics.
  void backward(Network& network, cudaStream_t stream);

  // ---- Around a step, and not captured.

  StepsUnderWay& steps() { return *steps_; }
  /// As cudaStreamSynchronize. Throws RankError.
  void synchronize(cudaStream_t stream) { communicator_->synchronize(stream); }
  void check() { communicator_->check(); }
  void fail(const std::string& why) noexcept { communicator_->fail(why); }

 private:
  void sum(float* values, std::int64_t count, cudaStream_t stream);
  void broadcast(const MemoryBlock& block, cudaStream_t stream);

  penstock::Ranks ranks_;
  DistributedOptions options_;
  std::unique_ptr<Communicator> communicator_;
  std::optional<SideStream> side_;
  std::optional<StepsUnderWay> steps_;
  std::optional<GradientBuckets> buckets_;
};

}  // namespace resnet
