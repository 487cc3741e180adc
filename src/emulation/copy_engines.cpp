// SPDX-License-Identifier: Apache-2.0
#include "copy_engines.hpp"

#include <algorithm>

#include "stream.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

Clock::duration at_rate(std::size_t bytes, double bytes_per_second) {
  if (bytes_per_second <= 0) return {};
  constexpr double kYear = 365.0 * 24 * 3600;  // Longer durations do not fit the clock.
  const std::chrono::duration<double> seconds(
      std::min(kYear, static_cast<double>(bytes) / bytes_per_second));
  return std::chrono::duration_cast<Clock::duration>(seconds);
}

}  // namespace

Clock::duration modelled_duration(const Machine& machine, const CopyWork& copy) {
  const double share = copy.pageable ? machine.pageable_share : 1.0;
  switch (copy.direction) {
    case cudaMemcpyHostToDevice:
      return at_rate(copy.bytes(), machine.host_to_device * share);
    case cudaMemcpyDeviceToHost:
      return at_rate(copy.bytes(), machine.device_to_host * share);
    case cudaMemcpyDeviceToDevice:
      return at_rate(copy.bytes(), machine.device_to_device);
    default:
      return {};  // A copy from host to host runs at the CPU's own speed.
  }
}

Clock::duration modelled_duration(const Machine& machine, const FillWork& fill) {
  return at_rate(fill.bytes(), machine.device_to_device);
}

bool models_time(const Machine& machine) {
  return machine.host_to_device > 0 || machine.device_to_host > 0 || machine.device_to_device > 0 ||
         machine.launch_latency.count() > 0;
}

bool CopyEngines::serves(std::size_t engine, cudaMemcpyKind direction) const {
  if (busy_.size() != 2) return true;
  if (direction == cudaMemcpyHostToDevice) return engine == 0;
  if (direction == cudaMemcpyDeviceToHost) return engine == 1;
  return true;
}

bool CopyEngines::take(Stream& stream, cudaMemcpyKind direction) {
  if (stream.engine >= 0) return true;
  for (std::size_t engine = 0; engine < busy_.size(); ++engine) {
    if (busy_[engine] != 0 || !serves(engine, direction)) continue;
    busy_[engine] = 1;
    stream.engine = static_cast<int>(engine);
    return true;
  }
  for (const Waiting& waiting : waiting_)
    if (waiting.stream == &stream) return false;
  waiting_.push_back({&stream, direction});
  return false;
}

Time CopyEngines::free_at(const Stream& stream) const {
  return free_at_[static_cast<std::size_t>(stream.engine)];
}

Stream* CopyEngines::give_back(Stream& stream, Time end, const std::uint64_t* draw) {
  const auto engine = static_cast<std::size_t>(stream.engine);
  stream.engine = -1;
  free_at_[engine] = end;
  std::size_t candidates = 0;  // waiting streams of the most urgent priority
  int most_urgent = 0;
  for (const Waiting& waiting : waiting_) {
    if (!serves(engine, waiting.direction)) continue;
    if (candidates == 0 || waiting.stream->priority < most_urgent) {
      most_urgent = waiting.stream->priority;
      candidates = 0;
    }
    if (waiting.stream->priority == most_urgent) ++candidates;
  }
  if (candidates == 0) {
    busy_[engine] = 0;
    return nullptr;
  }
  std::size_t to_skip = draw == nullptr ? 0 : *draw % candidates;
  const auto chosen = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) {
    return serves(engine, waiting.direction) && waiting.stream->priority == most_urgent &&
           to_skip-- == 0;
  });
  Stream* const next = chosen->stream;
  waiting_.erase(chosen);
  next->engine = static_cast<int>(engine);
  return next;
}

}  // namespace penstock::emulation::detail
