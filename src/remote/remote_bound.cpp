// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <penstock/detail/observe/units.hpp>
#include <penstock/remote_bound.hpp>

namespace penstock::inline PENSTOCK_ABI::remote {
namespace {

using Seconds = std::chrono::duration<double>;
using detail::in_bytes;
using detail::in_milliseconds;
using detail::with_unit;

constexpr double kThrottled = 0.01, kBusy = 0.85, kAtLimit = 0.5, kDemand = 0.5;

/// What happened between two Stats.
struct Interval {
  Interval(const Stats& before, const Stats& then)
      : now(then),
        seconds(std::max(Seconds(then.time - before.time).count(), 1e-9)),
        requests(then.requests - before.requests),
        throttled(then.throttled - before.throttled),
        rate(static_cast<double>(then.bytes - before.bytes) / seconds),
        running(Seconds(then.request_time - before.request_time).count() / seconds),
        at_limit(Seconds(then.limited_time - before.limited_time).count() / seconds),
        busy(Seconds(then.processor_time - before.processor_time).count() / seconds /
             std::max(then.reactors, 1)) {}

  Bound bound() const {
    if (static_cast<double>(throttled) > kThrottled * static_cast<double>(requests))
      return Bound::throttling;
    if (busy > kBusy) return Bound::processor;
    if (at_limit > kAtLimit) return now.limit < now.most_limit ? Bound::bandwidth : Bound::latency;
    return running < kDemand ? Bound::demand : Bound::latency;
  }

  std::string sentence() const {
    const std::string many = with_unit(running, 1, "requests at the same time");
    const std::string bring =
        many + " bring " + in_bytes(static_cast<std::uint64_t>(rate)) + " a second";
    const std::string each = ", and each takes " + in_milliseconds(now.latency_p50);
    switch (bound()) {
      case Bound::demand:
        return many + ": the readers do not wait for the server";
      case Bound::throttling:
        return "the server answers 429 or 503 to " + std::to_string(throttled) + " of " +
               std::to_string(requests) + " requests; " + std::to_string(now.limit) +
               " run at the same time now";
      case Bound::processor:
        return bring + ", and the reactors are busy for " + with_unit(100 * busy, 0, "%") +
               " of the time: more Options::reactors (now " + std::to_string(now.reactors) + ")";
      case Bound::bandwidth:
        return bring + ", and more of them brought no more: the network or the server has no more";
      case Bound::latency:
        break;
    }
    if (at_limit > kAtLimit)
      return bring + each + ": raise Options::max_requests (this rank's part is " +
             std::to_string(now.most_limit) + ")";
    return bring + each + ": announce more batches (read_ahead), or take more workers";
  }

  const Stats& now;
  double seconds;
  std::uint64_t requests, throttled;
  double rate, running, at_limit, busy;
};

}  // namespace

Diagnosis diagnose(const Stats& before, const Stats& now) {
  const Interval interval(before, now);
  return {interval.bound(), interval.sentence()};
}

std::string explain(const Verdict& verdict, const Stats& before, const Stats& now) {
  const bool waits =
      verdict.stage == Bottleneck::source || verdict.stage == Bottleneck::waiting_for_data;
  return waits ? verdict.sentence + "; remote: " + diagnose(before, now).sentence
               : verdict.sentence;
}

const char* to_string(Bound bound) {
  switch (bound) {
    case Bound::demand:
      return "demand";
    case Bound::throttling:
      return "throttling";
    case Bound::processor:
      return "processor";
    case Bound::bandwidth:
      return "bandwidth";
    case Bound::latency:
      return "latency";
  }
  return "";
}

}  // namespace penstock::remote
