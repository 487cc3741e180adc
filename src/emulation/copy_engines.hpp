// SPDX-License-Identifier: Apache-2.0
#pragma once

// The copy engines of one device, and the time that the modelled machine takes for a copy or a
// fill. If there are two engines, each serves one direction, and both serve copies within the
// device. If there is another number of engines, each serves all copies. Each engine runs at the
// full rate of its copy.

#include <driver_types.h>

#include <cstdint>
#include <penstock/emulation.hpp>
#include <vector>

#include "task.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

/// Returns zero if the machine adds no delay.
Clock::duration modelled_duration(const Machine& machine, const CopyWork& copy);
Clock::duration modelled_duration(const Machine& machine, const FillWork& fill);

/// Whether some copies take modelled time.
bool models_time(const Machine& machine);

class CopyEngines {
 public:
  explicit CopyEngines(int count)
      : free_at_(static_cast<std::size_t>(count)), busy_(static_cast<std::size_t>(count)) {}

  /// Assigns a free engine (Stream::engine) to `stream`, which is about to copy in `direction`, or
  /// lets it wait for one. Returns whether it has one.
  bool take(Stream& stream, cudaMemcpyKind direction);
  /// Frees the engine of `stream` at `end`. Returns the waiting stream that gets it, or null. The
  /// stream with the highest priority is chosen; among equals the first that asked, or one chosen
  /// by `draw`.
  Stream* give_back(Stream& stream, Time end, const std::uint64_t* draw);
  /// When the stream's engine finished its last copy.
  Time free_at(const Stream& stream) const;

 private:
  struct Waiting {
    Stream* stream;
    cudaMemcpyKind direction;
  };
  bool serves(std::size_t engine, cudaMemcpyKind direction) const;

  std::vector<Time> free_at_;
  std::vector<char> busy_;
  std::vector<Waiting> waiting_;  // in the order of their requests
};

}  // namespace penstock::emulation::detail
