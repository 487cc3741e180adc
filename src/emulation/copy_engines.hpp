// SPDX-License-Identifier: Apache-2.0
#pragma once

// The copy engines of one device, and how long the modelled machine takes for a copy or a fill.
// With two engines one serves each direction, and both serve copies within the device; one engine,
// or three and more, serve everything. Each engine runs at the full rate of its copy.

#include <driver_types.h>

#include <cstdint>
#include <penstock/emulation.hpp>
#include <vector>

#include "task.hpp"

namespace penstock::emulation::detail {

/// Zero where the machine adds no delay.
Clock::duration modelled_duration(const Machine& machine, const CopyWork& copy);
Clock::duration modelled_duration(const Machine& machine, const FillWork& fill);

/// True when some copies take modelled time.
bool models_time(const Machine& machine);

class CopyEngines {
 public:
  explicit CopyEngines(int count)
      : free_at_(static_cast<std::size_t>(count)), busy_(static_cast<std::size_t>(count)) {}

  /// Gives `stream`, which is about to copy in `direction`, a free engine (Stream::engine), or lets
  /// it wait for one. True when it has one.
  bool take(Stream& stream, cudaMemcpyKind direction);
  /// The engine of `stream` is free from `end` on. Returns the waiting stream that has it now, or
  /// null. The most urgent goes first; among equals the first to ask, or one drawn by `draw`.
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
  std::vector<Waiting> waiting_;  // in the order of asking
};

}  // namespace penstock::emulation::detail
