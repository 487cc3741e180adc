// SPDX-License-Identifier: Apache-2.0
#pragma once

// CUDA may run the host functions of different streams one at a time, and in any order: a host
// function that waits for another stream's may wait for ever. Under the schedules that look for
// such programs one host function runs at a time. Used under the runtime's lock.

#include <cstddef>
#include <penstock/emulation.hpp>
#include <vector>

#include "stream.hpp"

namespace penstock::emulation::detail {

/// Under lazy, and under random with an even seed.
bool serialises_host_functions(const Options& options);

class HostTurn {
 public:
  explicit HostTurn(const Options& options) : options_(options) {}

  /// Whether the host function that is first in the stream may run. If not, the stream waits, and
  /// has to ask again at its time `look_again`.
  bool take(Stream& stream);
  /// The stream's first task is done: whose turn is it now? Null: nobody's, or as before.
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
