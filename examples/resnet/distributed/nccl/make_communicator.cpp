// SPDX-License-Identifier: Apache-2.0
//
// The communicator over NCCL.
//
// NCCL's communicator does not block (config.blocking = 0): where a rank is lost in the middle of
// anything, the others get back from NCCL. Its rules (2.28):
//   - a call goes on in a thread of NCCL's own after it has returned, until the communicator's state
//     is no longer ncclInProgress: only then is its work on the stream, and only then may the next
//     call be made. So each call waits for that (ready()), before a capture ends too. It asks for no
//     state of CUDA's, which is what a thread that captures may do.
//   - that thread allocates, and queues into the stream that is being captured. So captures are those
//     of one thread (cudaStreamCaptureModeThreadLocal), as StepGraph's: a global one would forbid it.
//   - whether a call is captured is the same on all ranks, and so are the launches of its graph.
//   - one communicator for each process: no call needs ncclGroupStart.
//   - ncclCommFinalize, ncclCommDestroy and ncclCommAbort wait until all graphs that hold calls are
//     destroyed. Who finds a rank lost still has his graph: so abort() has a thread of its own, which
//     ends at once what runs on the device, and which the destructor waits for.
//   - ncclCommDestroy and ncclCommAbort may wait for the other ranks of the machine to close their
//     connections, by the same calls or by their end. Control ends who waits there for too long.
// NCCL_NVLS_ENABLE and all else that NCCL reads from the environment is the user's.

#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "../../../common/check.hpp"
#include "../alone.hpp"
#include "../communicator.hpp"
#include "../control.hpp"

namespace resnet {

namespace {

ncclDataType_t type_of(Precision precision) {
  switch (precision) {
    case Precision::fp32:
    case Precision::tf32:
      return ncclFloat32;
    case Precision::fp16:
      return ncclFloat16;
    case Precision::bf16:
      return ncclBfloat16;
    case Precision::int8:
      break;
  }
  throw std::invalid_argument("all_reduce: fp32, fp16 and bf16 can be added");
}

/// The one of this rank, which becomes the current one. A launcher may show each rank its own
/// alone.
void select_device(const penstock::Ranks& ranks) {
  int devices = 0;
  examples::check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  const int device = devices == 1 ? 0 : ranks.local_rank;
  if (device >= devices)
    throw std::invalid_argument("rank " + std::to_string(ranks.rank) + " is number " +
                                std::to_string(ranks.local_rank) + " on its machine, which has " +
                                std::to_string(devices) + " GPUs: start one rank for each GPU");
  examples::check(cudaSetDevice(device), "cudaSetDevice");
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const penstock::Ranks& ranks, const CommunicatorOptions& options)
      : control_(ranks, options.timeout, 1) {
    try {
      initialise();
    } catch (const RankError&) {
      abort();
      throw;
    } catch (const std::exception& error) {
      control_.fail(error.what());
      abort();
      throw;
    }
  }

  ~NcclCommunicator() override {
    if (std::uncaught_exceptions() > exceptions_) fail("an exception ended it");
    try {
      finalise();
    } catch (const std::exception&) {
      abort();  // A rank is lost now: this one was through.
    }
  }

  int rank() const override { return control_.rank(); }
  int world_size() const override { return control_.world_size(); }

  void all_reduce(void* values, std::int64_t count, Precision precision,
                  cudaStream_t stream) override {
    const ncclDataType_t type = type_of(precision);
    throw_if_lost();
    control_.count_collective();
    ready(ncclAllReduce(values, values, static_cast<std::size_t>(count), type, ncclSum, nccl_,
                        stream),
          "ncclAllReduce");
  }

  void broadcast(void* memory, std::int64_t bytes, int root, cudaStream_t stream) override {
    throw_if_lost();
    control_.count_collective();
    ready(ncclBroadcast(memory, memory, static_cast<std::size_t>(bytes), ncclUint8, root, nccl_,
                        stream),
          "ncclBroadcast");
  }

  std::vector<std::string> all_gather(const std::string& text) override {
    throw_if_lost();
    try {
      return control_.all_gather(text);
    } catch (const RankError&) {
      abort();
      throw;
    }
  }

  void check() override {
    throw_if_lost();
    look_for_error();
    control_.count_step();
  }

  void synchronize(cudaStream_t stream) override {
    const Waiting waiting(control_);
    auto next_look = Clock::now() + kBetweenLooks;
    for (cudaError_t status = cudaStreamQuery(stream); status != cudaSuccess;
         status = cudaStreamQuery(stream)) {
      throw_if_lost();
      if (status != cudaErrorNotReady)
        give_up(std::string("cudaStreamQuery: ") + cudaGetErrorString(status));
      std::this_thread::sleep_for(kBetweenQueries);  // The core is for those who load.
      if (Clock::now() < next_look) continue;
      look_for_error();
      next_look = Clock::now() + kBetweenLooks;
    }
    throw_if_lost();
  }

  void fail(const std::string& why) noexcept override {
    control_.fail(why);
    abort();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kBetweenQueries{20};
  static constexpr std::chrono::milliseconds kBetweenLooks{1};
  static constexpr std::chrono::seconds kToQueue{1};

  void initialise() {
    // From rank 0 to all. (Not by NCCL_COMM_ID: rendezvous.hpp says why.)
    ncclUniqueId id{};
    std::string bytes;
    if (rank() == 0) {
      require(ncclGetUniqueId(&id), "ncclGetUniqueId");
      bytes.assign(id.internal, sizeof id.internal);
    }
    const std::string from_0 = control_.all_gather(bytes).front();
    std::memcpy(id.internal, from_0.data(), std::min(from_0.size(), sizeof id.internal));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ready(ncclCommInitRankConfig(&nccl_, world_size(), id, rank(), &config),
          "ncclCommInitRankConfig");
  }

  /// Until NCCL is through with the call. Its thread uses the stream until then, which whoever is
  /// told of a lost rank destroys. A call that has only to be queued comes to its end without that
  /// rank too. One that waits for it, to connect, does not: abort() ends it.
  void ready(ncclResult_t result, const char* call) {
    const Waiting waiting(control_);
    auto patience = Clock::time_point::max();
    while (result == ncclInProgress) {
      if (control_.is_lost()) patience = std::min(patience, Clock::now() + kToQueue);
      if (Clock::now() > patience) throw_if_lost();
      std::this_thread::yield();
      ncclResult_t state = ncclSuccess;
      require(ncclCommGetAsyncError(nccl_, &state), "ncclCommGetAsyncError");
      result = state;
    }
    require(result, call);
  }

  void look_for_error() {
    ncclResult_t state = ncclSuccess;
    require(ncclCommGetAsyncError(nccl_, &state), "ncclCommGetAsyncError");
    if (state != ncclInProgress) require(state, "a collective call");
  }

  void require(ncclResult_t result, const char* call) {
    if (result == ncclSuccess) return;
    give_up(std::string(call) + " of NCCL: " + ncclGetErrorString(result) + " (" +
            ncclGetLastError(nccl_) + ")");
  }

  /// Most often another rank is gone, and its memory with it, which the watch is about to say.
  void give_up(const std::string& what) {
    control_.suspect(rank(), "rank " + std::to_string(rank()) + " failed: " + what);
    throw_if_lost();
  }

  void throw_if_lost() {
    if (!control_.is_lost()) return;
    abort();
    control_.throw_if_lost();
  }

  void finalise() {
    if (nccl_ == nullptr) return;
    const Waiting waiting(control_);
    ready(ncclCommFinalize(nccl_), "ncclCommFinalize");
    ncclCommDestroy(std::exchange(nccl_, nullptr));
  }

  void abort() noexcept {
    const ncclComm_t nccl = std::exchange(nccl_, nullptr);
    if (nccl == nullptr) return;
    try {
      aborting_ = std::jthread([nccl] { ncclCommAbort(nccl); });
    } catch (const std::system_error&) {  // No more threads. Where it waits, Control ends it.
      ncclCommAbort(nccl);
    }
  }

  Control control_;
  const int exceptions_ = std::uncaught_exceptions();
  ncclComm_t nccl_ = nullptr;
  std::jthread aborting_;  // last: joined before Control, which ends the process if that takes long
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(const penstock::Ranks& ranks,
                                                const CommunicatorOptions& options) {
  if (ranks.world_size == 1) return std::make_unique<Alone>();
  select_device(ranks);
  return std::make_unique<NcclCommunicator>(ranks, options);
}

}  // namespace resnet
