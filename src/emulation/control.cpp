// SPDX-License-Identifier: Apache-2.0
//
// The functions of penstock/emulation.hpp.

#include <algorithm>
#include <penstock/emulation.hpp>
#include <stdexcept>
#include <string>

#include "annotations.hpp"
#include "process.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation {

using namespace detail;

namespace {

/// Runs `body` with the lock held, hidden from race detection.
template <class Body>
auto with_runtime(Body body) {
  const Hidden hidden;
  const Lock lock(runtime_mutex());
  return body(last_runtime());
}

Function function_called(std::string_view name) {
  if (const auto function = find_function(name)) return *function;
  throw std::invalid_argument("the emulated runtime has no function " + std::string(name));
}

void require_nth(std::uint64_t nth) {
  if (nth == 0) throw std::invalid_argument("the first call is number 1");
}

}  // namespace

void reset(const Options& options) {
  const Hidden hidden;
  Lock lock(runtime_mutex());
  restart(lock, options);
}

Options options() {
  return with_runtime([](const Runtime& runtime) { return runtime.options; });
}

// ---- Counters

std::uint64_t calls(std::string_view function) {
  const auto index = static_cast<std::size_t>(function_called(function));
  return with_runtime([&](const Runtime& runtime) { return runtime.counters.calls[index]; });
}

std::vector<CallCount> calls() {
  return with_runtime([](const Runtime& runtime) {
    std::vector<CallCount> counts;
    for (std::size_t i = 0; i < kFunctionCount; ++i)
      if (runtime.counters.calls[i] != 0)
        counts.push_back({facts(static_cast<Function>(i)).name, runtime.counters.calls[i]});
    return counts;
  });
}

CallClasses call_classes() {
  return with_runtime([](const Runtime& runtime) {
    CallClasses classes;
    for (std::size_t i = 0; i < kFunctionCount; ++i) {
      const std::uint64_t count = runtime.counters.calls[i];
      const unsigned traits = facts(static_cast<Function>(i)).traits;
      classes.all += count;
      if ((traits & traits::allocating) != 0) classes.allocating += count;
      if ((traits & traits::creating) != 0) classes.creating += count;
      if ((traits & traits::blocking) != 0) classes.blocking += count;
      if ((traits & traits::launching) != 0) classes.launching += count;
    }
    classes.blocking += runtime.counters.pageable;
    return classes;
  });
}

void reset_counters() {
  with_runtime([](Runtime& runtime) { runtime.counters = {}; });
}

// ---- Failures

void fail_call(std::string_view function, cudaError_t error, std::uint64_t nth) {
  require_nth(nth);
  std::optional<Function> which;
  if (function != "*") {
    which = function_called(function);
    if ((facts(*which).traits & traits::infallible) != 0)
      throw std::invalid_argument(std::string(function) + " cannot fail");
  }
  with_runtime([&](Runtime& runtime) { runtime.failures.add_call(which, error, nth); });
}

void fail_operation(OperationKind kind, cudaError_t error, std::uint64_t nth) {
  require_nth(nth);
  if (!is_sticky(error)) throw std::invalid_argument("an operation fails with a sticky error only");
  with_runtime([&](Runtime& runtime) { runtime.failures.add_operation(kind, error, nth); });
}

bool clear_failures() {
  return with_runtime([](Runtime& runtime) { return runtime.failures.clear(); });
}

// ---- Live objects

Live live() {
  return with_runtime([](const Runtime& runtime) {
    Live live;
    live.streams = runtime.streams.size();
    live.events = runtime.events.size();
    live.graphs = runtime.count_graphs();
    live.graph_execs = runtime.graph_execs.size();
    live.user_objects = runtime.user_objects.size();
    live.memory_pools = runtime.pools.size() - runtime.default_pools();
    for (const auto& [address, allocation] : runtime.memory.all()) {
      (allocation.page_locked() ? live.pinned_allocations : live.device_allocations) += 1;
      (allocation.page_locked() ? live.pinned_bytes : live.device_bytes) += allocation.bytes;
    }
    return live;
  });
}

// ---- The timeline

void record_timeline(bool on) {
  with_runtime([&](Runtime& runtime) { runtime.timeline.record(on); });
}

std::vector<Operation> timeline() {
  return with_runtime([](const Runtime& runtime) { return runtime.timeline.operations(); });
}

}  // namespace penstock::emulation
