// SPDX-License-Identifier: Apache-2.0
//
// The communicator of programs over the emulated runtime: the ranks are processes of one machine.

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <penstock/launch.hpp>
#include <stdexcept>
#include <thread>
#include <utility>

#include "../../../common/check.hpp"
#include "../alone.hpp"
#include "../communicator.hpp"
#include "../control.hpp"
#include "exchange.hpp"

namespace resnet {

namespace {

class CpuCommunicator final : public Communicator {
 public:
  CpuCommunicator(const penstock::Ranks& ranks, const CommunicatorOptions& options)
      : control_(ranks, options.timeout, 2),
        exchange_(std::make_shared<Exchange>(control_, control_.take_channel(1))) {
    control_.on_loss([exchange = exchange_] { exchange->stop(); });
  }
  /// What is still queued runs, and does nothing.
  ~CpuCommunicator() override {
    if (std::uncaught_exceptions() > exceptions_) fail("an exception ended it");
    exchange_->close();
  }

  int rank() const override { return control_.rank(); }
  int world_size() const override { return control_.world_size(); }

  void all_reduce(void* values, std::int64_t count, Precision precision,
                  cudaStream_t stream) override {
    if (precision == Precision::int8)
      throw std::invalid_argument("all_reduce: fp32, fp16 and bf16 can be added");
    require_size("all_reduce", count);
    penstock::for_each(stream, 1, [exchange = exchange_, values, count, precision](std::int64_t) {
      exchange->all_reduce(values, count, precision);
    });
  }

  void broadcast(void* memory, std::int64_t bytes, int root, cudaStream_t stream) override {
    if (root < 0 || root >= world_size())
      throw std::invalid_argument("broadcast: there is no rank " + std::to_string(root));
    require_size("broadcast", bytes);
    penstock::for_each(stream, 1, [exchange = exchange_, memory, bytes, root](std::int64_t) {
      exchange->broadcast(memory, bytes, root);
    });
  }

  std::vector<std::string> all_gather(const std::string& text) override {
    return control_.all_gather(text);
  }

  void check() override {
    control_.throw_if_lost();
    control_.count_step();
  }

  void synchronize(cudaStream_t stream) override {
    const Waiting waiting(control_);
    std::chrono::microseconds pause{10};
    // A lost rank ends the calls on the stream: it gets to its end in any case.
    for (cudaError_t status = cudaStreamQuery(stream); status != cudaSuccess;
         status = cudaStreamQuery(stream)) {
      if (status != cudaErrorNotReady) examples::check(status, "cudaStreamQuery");
      control_.throw_if_lost();
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::microseconds(500));
    }
    control_.throw_if_lost();
  }

  void fail(const std::string& why) noexcept override { control_.fail(why); }

 private:
  static void require_size(const char* call, std::int64_t size) {
    if (size < 0) throw std::invalid_argument(call + (": size " + std::to_string(size)));
  }

  const int exceptions_ = std::uncaught_exceptions();
  Control control_;
  std::shared_ptr<Exchange> exchange_;  ///< calls that are queued or captured have a part in it
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(const penstock::Ranks& ranks,
                                                const CommunicatorOptions& options) {
  if (ranks.world_size == 1) return std::make_unique<Alone>();
  if (ranks.local_size != ranks.world_size)
    throw std::invalid_argument("emulated ranks are processes of one machine; here are " +
                                std::to_string(ranks.local_size) + " of " +
                                std::to_string(ranks.world_size));
  return std::make_unique<CpuCommunicator>(ranks, options);
}

}  // namespace resnet
