// SPDX-License-Identifier: Apache-2.0
#pragma once

// Communicator: the ranks of one job that train one model. Over NCCL on GPUs; over sockets between
// the processes of one machine for the emulated programs.
//
//   const auto ranks = penstock::Ranks::from_environment();
//   const auto communicator = make_communicator(ranks, {.timeout = std::chrono::seconds(60)});
//   communicator->all_reduce(gradients, count, Precision::fp16, stream);
//
// All ranks make the same collective calls in the same order. One thread at a time.

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <penstock/ranks.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "../ops/ops.hpp"

namespace resnet {

/// A rank is lost: what() names it and says what became of it. rank() is -1 where all wait for each
/// other.
class RankError : public std::runtime_error {
 public:
  RankError(int rank, const std::string& what) : std::runtime_error(what), rank_(rank) {}
  int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

struct CommunicatorOptions {
  /// To find each other, and for a rank to keep up with the others: to call check() or to wait for
  /// them, while they wait for it. When a rank is lost, each process has half of it (1 to 30 s) to
  /// see that, and as much again to destroy its communicator: then it is ended, with status 1.
  std::chrono::seconds timeout{60};
};

class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Aborts what is under way where a rank is lost. Captured graphs that hold collective calls are
  /// destroyed before.
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // ---- Collective, on the device. They enqueue their work and return; they can be captured.

  /// The sum over all ranks of `count` values in device memory, in place: the same bits on each
  /// rank. fp32, fp16 or bf16.
  virtual void all_reduce(void* values, std::int64_t count, Precision precision,
                          cudaStream_t stream) = 0;
  /// `bytes` of device memory as they are on rank `root`.
  virtual void broadcast(void* memory, std::int64_t bytes, int root, cudaStream_t stream) = 0;

  // ---- Collective, on the host. They block, up to the time-out.

  /// What each rank says, by rank. For shapes, options, and whether to stop.
  virtual std::vector<std::string> all_gather(const std::string& text) = 0;

  // ---- Not collective.

  /// Call it once a step. Says to the others that this rank goes on; throws RankError when one
  /// died, failed, or has not gone on for the time-out while others wait for it. Does not block.
  virtual void check() = 0;
  /// Waits for `stream` as cudaStreamSynchronize does, but throws RankError when a rank is lost
  /// meanwhile.
  virtual void synchronize(cudaStream_t stream) = 0;
  /// Says to the others why this rank ends, so that they name it. Called where an exception ends
  /// the program.
  virtual void fail(const std::string& why) noexcept = 0;
};

/// With world_size 1 nothing is sent and nobody is waited for. Throws RankError when ranks are
/// missing after the time-out, and names them. Which communicator it is, the linked library says,
/// as make_operations. Over NCCL, the GPU of the local rank becomes the current one: so it comes
/// before all that allocates. Destroy it when its calls are done, and after graphs that hold some.
std::unique_ptr<Communicator> make_communicator(const penstock::Ranks& ranks,
                                                const CommunicatorOptions& options);

}  // namespace resnet
