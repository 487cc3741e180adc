// SPDX-License-Identifier: Apache-2.0
#pragma once

// Exchange: sums and broadcasts between the processes of one machine, through sockets and rank 0. A
// call blocks until it is done: they are what host functions of the emulated runtime do in stream
// order. Rank 0 adds in float, in the order of the ranks, and sends the result, so that all have
// the same bits.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "../../ops/ops.hpp"
#include "../connection.hpp"
#include "../control.hpp"

namespace resnet {

class Exchange {
 public:
  /// `sockets` as Control::take_channel has them. `control` is used until close().
  Exchange(Control& control, std::vector<Socket> sockets);

  // As Communicator has them, on memory of the host. One thread at a time. Where a rank is lost,
  // they return and leave the values as they are, perhaps in part.
  void all_reduce(void* values, std::int64_t count, Precision precision);
  void broadcast(void* memory, std::int64_t bytes, int root);

  /// Ends the call that is under way, and those to come: they say nothing of it. Any thread.
  void stop() noexcept;
  /// The same, and waits for the call that is under way.
  void close();

 private:
  /// What a rank is about to do; the same on all.
  struct Call {
    std::int32_t operation, detail;
    std::int64_t size;
    std::uint64_t number;
    bool operator==(const Call&) const = default;
  };

  template <class Work>
  void run(Call call, Work work);
  void agree(const Call& call);
  void sum(std::byte* values, std::int64_t count, Precision precision);
  void send(int rank, const void* memory, std::size_t bytes);
  void receive(int rank, void* memory, std::size_t bytes);

  Control& control_;
  std::vector<Socket> sockets_;
  std::mutex in_call_;
  std::atomic<bool> stopped_{false};
  std::uint64_t calls_ = 0;
  std::vector<float> sum_;
  std::vector<std::byte> part_;
};

}  // namespace resnet
