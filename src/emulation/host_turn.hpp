// SPDX-License-Identifier: Apache-2.0
#pragma once

// CUDA may run the host functions of different streams one at a time and in any order, so a host
// function that waits for that of another stream may wait for ever. To find such programs, some
// schedules run one host function at a time. Use it with the runtime's lock held.

#include <cstddef>
#include <penstock/emulation.hpp>
#include <vector>

#include "stream.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

/// Returns true under lazy, and under random with an even seed.
bool serialises_host_functions(const Options& options);

class HostTurn {
 public:
  explicit HostTurn(const Options& options) : options_(options) {}

  /// Returns whether the first host function in the stream may run. If not, the stream must call
  /// this again at its time `look_again`.
  bool take(Stream& stream);
  /// Call it when the stream's first task is done. Returns the stream whose turn it is now; null if
  /// none waits or the turn does not change.
  Stream* give_back(const Stream& stream, std::uint64_t draw);

 private:
  void report_wait(const Stream& waiting);

  const Options& options_;
  Stream* running_ = nullptr;
  Time since_{};
  bool reported_ = false;
  std::vector<Stream*> waiting_;
};

}  // namespace penstock::emulation::detail
