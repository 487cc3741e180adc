// SPDX-License-Identifier: Apache-2.0

// The backend over the emulated CUDA runtime, which reports calls and operations when they end. A
// host function stands for a kernel, because a program without nvcc has no other compute work.

#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "backend.hpp"
#include "emulated_runtime.hpp"
#include "function_name.hpp"
#include "kept_number.hpp"
#include "thread_id.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

namespace emulation = penstock::emulation;
using emulation::ApiCall;
using emulation::Operation;
using emulation::OperationKind;

Time time_of(std::chrono::steady_clock::time_point time) {
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

std::uint32_t correlation_of(std::uint64_t call) {
  return static_cast<std::uint32_t>(call);
}

bool is(const char* name, const char* wanted) {
  return std::strcmp(name, wanted) == 0;
}

/// As over CUPTI, calls that only query the thread's own state are not recorded.
bool is_ignored(const char* name) {
  return is(name, "cudaGetLastError") || is(name, "cudaPeekAtLastError") ||
         is(name, "cudaGetDevice");
}

Direction direction_of(const Operation& copy) {
  if (std::strncmp(copy.name, "cudaMemcpyPeer", std::strlen("cudaMemcpyPeer")) == 0)
    return Direction::peer_to_peer;
  switch (copy.copy) {
    case cudaMemcpyHostToDevice:
      return Direction::host_to_device;
    case cudaMemcpyDeviceToHost:
      return Direction::device_to_host;
    case cudaMemcpyDeviceToDevice:
      return Direction::device_to_device;
    case cudaMemcpyHostToHost:
      return Direction::host_to_host;
    default:
      return Direction::none;
  }
}

/// The last time windows in which something is recorded. The very last one may still be open.
class Windows {
 public:
  bool open() const { return !all_.empty() && all_.back().second == kNoEnd; }
  void begin() {
    if (open()) return;
    if (all_.size() == kMost) all_.pop_front();
    all_.emplace_back(now(), kNoEnd);
  }
  void end() {
    if (open()) all_.back().second = now();
  }
  bool contain(Time time) const {
    for (auto window = all_.rbegin(); window != all_.rend(); ++window)
      if (time >= window->first) return time <= window->second;
    return false;
  }

 private:
  static constexpr Time kNoEnd = std::numeric_limits<Time>::max();
  static constexpr std::size_t kMost = 1024;
  std::deque<std::pair<Time, Time>> all_;
};

class EmulatedBackend : public Backend {
 public:
  EmulatedBackend(const EmulatedRuntime& runtime, EventSink& sink, const SessionOptions& options,
                  ProfilerSwitch profiler, void* context)
      : runtime_(runtime), sink_(sink), options_(options), profiler_(profiler), context_(context) {
    const auto on_call = [](void* self, const ApiCall& call) {
      static_cast<EmulatedBackend*>(self)->on_call(call);
    };
    const auto on_operation = [](void* self, const Operation& operation) {
      static_cast<EmulatedBackend*>(self)->on_operation(operation);
    };
    if (!runtime_.observe({this, on_call, on_operation}))
      throw Unavailable(
          "the emulated CUDA runtime of this process is observed already, by penstock-trace or by "
          "a call of penstock::emulation::observe: record in one way at a time");
    const auto tell = [](void* self, int device, std::size_t bytes) {
      static_cast<EmulatedBackend*>(self)->take_level(device, bytes);
    };
    runtime_.device_bytes(this, tell);
  }
  ~EmulatedBackend() override { runtime_.stop_observing(); }
  EmulatedBackend(const EmulatedBackend&) = delete;
  EmulatedBackend& operator=(const EmulatedBackend&) = delete;

  std::string name() const override { return "emulated CUDA runtime"; }
  std::string device_name() const override { return "penstock emulated device"; }
  // It does not take the runtime's lock, which a caller within a callback already holds.
  void resume() override {
    const std::lock_guard lock(mutex_);
    windows_.begin();
    hold_levels();
  }
  void pause() override {
    const std::lock_guard lock(mutex_);
    hold_levels();
    windows_.end();
  }
  void flush() override { runtime_.await_idle(); }
  void complete(Timeline& timeline) const override;
  bool identifies_gone_streams() const override { return true; }
  bool identify(cudaStream_t stream, int* device, std::uint64_t* id) const override {
    return runtime_.find_stream(stream, device, id);
  }

 private:
  using Operations = std::unordered_map<std::uint64_t, Time>;

  void take_level(int device, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    levels_.try_emplace(device, bytes);  // A concurrent call has a newer value.
  }
  void hold_levels();
  void note_memory(const ApiCall& call);
  void on_call(const ApiCall& call);
  void on_operation(const Operation& operation);
  bool records(const Operation& operation);
  bool begins_graph(const Operation& operation, Time* begin);
  Event event_of(const Operation& operation);
  std::uint32_t kernel_name(void (*function)());

  const EmulatedRuntime& runtime_;
  EventSink& sink_;
  const SessionOptions options_;
  const ProfilerSwitch profiler_;
  void* const context_;

  mutable std::mutex mutex_;
  Windows windows_;
  std::map<int, std::size_t> levels_;                        // bytes in use on each device
  std::unordered_map<void (*)(), KeptNumber> kernel_names_;  // by address

  // These belong to the callbacks, which run one at a time.
  std::unordered_map<const char*, KeptNumber> call_names_;
  Operations graphs_;  // graphs that have not ended: when they began, by call
};

/// Work that is in progress when recording pauses is recorded. So is work that was submitted before
/// recording resumed, if it ends within the window.
bool EmulatedBackend::records(const Operation& operation) {
  const std::lock_guard lock(mutex_);
  return windows_.open() || windows_.contain(time_of(operation.submitted));
}

/// This function and the next are called with the lock held.
void EmulatedBackend::hold_levels() {
  if (!options_.memory || !windows_.open()) return;
  for (const auto& [device, bytes] : levels_) sink_.hold_memory(device, now(), bytes);
}

void EmulatedBackend::note_memory(const ApiCall& call) {
  for (int device = 0; device < call.devices; ++device) {
    std::size_t& level = levels_[device];
    if (level == call.device_bytes[device]) continue;
    level = call.device_bytes[device];
    if (options_.memory && windows_.open()) sink_.hold_memory(device, time_of(call.end), level);
  }
}

void EmulatedBackend::on_call(const ApiCall& call) {
  const bool starts = is(call.name, "cudaProfilerStart"), stops = is(call.name, "cudaProfilerStop");
  if (starts || stops) return profiler_(context_, starts);
  if (is_ignored(call.name)) return;
  {
    const std::lock_guard lock(mutex_);
    note_memory(call);
    if (!options_.calls || !windows_.open()) return;
  }
  Event event;
  event.kind = Kind::call;
  event.begin = time_of(call.begin);
  event.end = time_of(call.end);
  event.value = static_cast<std::uint64_t>(call.result);
  event.correlation = correlation_of(call.number);
  event.name = call_names_[call.name].get(sink_, [&] { return sink_.name(call.name); });
  event.track = sink_.thread_track(this_thread_id());
  if (call.result != cudaSuccess && call.result != cudaErrorNotReady) event.flags = failed;
  sink_.add(event);
}

/// A launched graph begins and ends with an operation of its own. Returns true at its begin. At its
/// end, `*begin` is set to the time of the begin.
bool EmulatedBackend::begins_graph(const Operation& operation, Time* begin) {
  const auto found = graphs_.find(operation.call);
  if (found == graphs_.end()) {
    graphs_.emplace(operation.call, time_of(operation.begin));
    return true;
  }
  *begin = found->second;
  graphs_.erase(found);
  return false;
}

void EmulatedBackend::on_operation(const Operation& operation) {
  const bool of_graph = is(operation.name, "cudaGraphLaunch");
  if (of_graph && !options_.graph_nodes) {
    Time begin = 0;
    if (operation.kind != OperationKind::graph || begins_graph(operation, &begin)) return;
    Event event = event_of(operation);
    event.kind = Kind::graph;
    event.begin = begin;
    if (records(operation)) sink_.add(event);
    return;
  }
  switch (operation.kind) {
    case OperationKind::copy:
    case OperationKind::fill:
    case OperationKind::host_function:
      if (records(operation)) sink_.add(event_of(operation));
      return;
    default:
      return;  // takes no time on a device
  }
}

Event EmulatedBackend::event_of(const Operation& operation) {
  Event event;
  event.begin = time_of(operation.begin);
  event.end = time_of(operation.end);
  event.value = operation.bytes;
  event.correlation = correlation_of(operation.call);
  event.track = sink_.stream_track(operation.device, operation.stream);
  if (operation.pageable) event.flags |= pageable;
  if (operation.synchronous) event.flags |= synchronous;
  if (operation.kind == OperationKind::copy) {
    event.kind = Kind::copy;
    event.direction = direction_of(operation);
  } else if (operation.kind == OperationKind::fill) {
    event.kind = Kind::fill;
  } else {
    event.kind = Kind::kernel;
    event.name = kernel_name(operation.function);
  }
  return event;
}

std::string text_of_address(void (*function)()) {
  std::ostringstream text;
  text << "host function at " << reinterpret_cast<void*>(function);
  return text.str();
}

std::uint32_t EmulatedBackend::kernel_name(void (*function)()) {
  const std::lock_guard lock(mutex_);
  return kernel_names_[function].get(sink_, [&] { return sink_.name(text_of_address(function)); });
}

void EmulatedBackend::complete(Timeline& timeline) const {
  const std::lock_guard lock(mutex_);
  std::unordered_map<std::string_view, std::uint32_t> names;
  for (std::uint32_t i = 0; i < timeline.names.size(); ++i) names.emplace(timeline.names[i], i);
  std::map<std::string, std::uint32_t> known;
  std::map<std::uint32_t, std::uint32_t> same;  // a functor has two functions; see HostTask
  for (const auto& [function, kept] : kernel_names_) {
    const auto name = names.find(text_of_address(function));
    const std::string text = name == names.end() ? "" : function_name(function);
    if (!text.empty()) same[name->second] = known.emplace(text, name->second).first->second;
  }
  for (const auto& [text, name] : known) timeline.names[name] = text;
  for (const auto& [name, one] : same) timeline.names[name] = timeline.names[one];
  for (Event& event : timeline.events) {
    const auto found = event.kind == Kind::kernel ? same.find(event.name) : same.end();
    if (found != same.end()) event.name = found->second;
  }
}

}  // namespace

std::unique_ptr<Backend> make_emulated_backend(EventSink& sink, const SessionOptions& options,
                                               ProfilerSwitch profiler, void* context) {
  const EmulatedRuntime* const runtime = emulated_runtime();
  if (runtime == nullptr) throw Unavailable("this program has no emulated CUDA runtime");
  if (runtime->version != emulation::detail::kInterfaceVersion)
    throw Unavailable(
        "the emulated CUDA runtime of this program is of another version of penstock than its "
        "trace: build the program with the penstock that penstock-trace comes from");
  return std::make_unique<EmulatedBackend>(*runtime, sink, options, profiler, context);
}

bool emulated_runtime_is_linked() {
  return emulated_runtime() != nullptr;
}

}  // namespace penstock::trace::detail
