// SPDX-License-Identifier: Apache-2.0

// The backend over CUPTI. The work of the devices comes from activity records, in CUPTI's own
// threads. Calls come from callbacks at their begin and end, on the caller's thread. Activity
// records for calls would not do: only callbacks show that a driver's call is a part of a runtime's
// call, their thread is the system's, as in NVTX, and cudaProfilerStart and cudaProfilerStop need
// callbacks anyway.

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <penstock/trace/call_traits.hpp>
#include <penstock/trace/session.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "backend.hpp"
#include "cupti_records.hpp"
#include "cupti_visits.hpp"
#include "engine_use.hpp"
#include "kept_number.hpp"
#include "thread_id.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

constexpr std::uint32_t kNotReady = 600;  // for runtime and driver: an answer, not a failure

/// Calls of the runtime that query the thread's own state, or that the compiler's code makes around
/// each launch. Programs make many of them, and none takes a noticeable time.
bool is_left_out(std::string_view runtime_call) {
  const std::string_view name = plain_name(runtime_call);
  return name == "cudaGetLastError" || name == "cudaPeekAtLastError" || name == "cudaGetDevice" ||
         (name.starts_with("__cuda") && name != "__cudaLaunchKernel");
}

/// Calls of the driver that put work on a stream, wait or allocate. Other driver calls are recorded
/// only as a part of the runtime's calls.
bool is_taken(std::string_view driver_call) {
  for (const std::string_view prefix : {"cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset"})
    if (driver_call.starts_with(prefix)) return true;
  const CallTraits traits = traits_of(driver_call);
  return traits.blocking || traits.allocating;
}

enum class MemoryChange : std::uint8_t { none, at_once, in_stream_order };

/// Whether the call may change the amount of memory in use on a device. Calls for page-locked
/// memory do not count. Launches, which may load code, do not count either: the next of these calls
/// shows that change.
MemoryChange change_of(std::string_view call) {
  const std::string_view name = plain_name(call);
  for (const std::string_view part :
       {"GraphInstantiate", "GraphExecDestroy", "ModuleLoad", "ModuleUnload", "LibraryLoad",
        "LibraryUnload", "MemPoolTrimTo"})
    if (name.find(part) != std::string_view::npos) return MemoryChange::at_once;
  if (!traits_of(name).allocating || name.find("Host") != std::string_view::npos)
    return MemoryChange::none;
  return name.ends_with("Async") ? MemoryChange::in_stream_order : MemoryChange::at_once;
}

bool changes_memory(std::string_view call) {
  return change_of(call) != MemoryChange::none;
}

/// Returns the values for all calls of a domain, by their numbers.
std::vector<MemoryChange> memory_changes(const Cupti& cupti, CUpti_CallbackDomain domain,
                                         CUpti_CallbackId count) {
  std::vector<MemoryChange> changes(count, MemoryChange::none);
  const char* name = nullptr;
  for (CUpti_CallbackId id = 1; id < count; ++id)
    if (cupti.get_callback_name(domain, id, &name) == CUPTI_SUCCESS && name != nullptr)
      changes[id] = change_of(name);
  return changes;
}

/// A query of the driver takes longer than an allocation from a pool, so queries are at least this
/// far apart.
constexpr Time kBetweenAsyncLooks = 1'000'000;

BufferPool& buffers() {
  static BufferPool& pool = *new BufferPool;
  return pool;
}

/// Returns a number for a recorded window. No backend reuses a number.
std::uint64_t next_window() {
  static std::atomic<std::uint64_t> number{0};
  return ++number;
}

// ---- Functions that CUPTI calls

std::uint64_t CUPTIAPI on_clock() {
  return static_cast<std::uint64_t>(now());
}

void CUPTIAPI on_call(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data);

void CUPTIAPI on_buffer_wanted(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
  *buffer = buffers().take();
  *size = *buffer == nullptr ? 0 : BufferPool::kBytes;
  *records = 0;  // as many as fit
}

void CUPTIAPI on_buffer_done(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                             std::size_t bytes);

/// Throws an exception unless the result is a success.
void require(const Cupti& cupti, CUptiResult result, const char* what) {
  if (result != CUPTI_SUCCESS)
    throw Unavailable(std::string("CUPTI cannot ") + what + ": " + cupti.text(result));
}

CUpti_SubscriberHandle subscribe(const Cupti& cupti) {
  CUpti_SubscriberHandle subscriber = nullptr;
  const CUptiResult result = cupti.subscribe(&subscriber, on_call, nullptr);
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ||
      result == CUPTI_ERROR_MAX_LIMIT_REACHED) {
    const std::string name = subscriber_name(cupti.subscribe_v2, cupti.unsubscribe, on_call);
    throw Unavailable(
        "another tool holds CUPTI's one subscription in this process" +
        (name.empty() ? std::string() : " (" + name + ')') +
        ": nsys, ncu, compute-sanitizer, cuda-gdb or PyTorch's profiler. Run without it to trace");
  }
  require(cupti, result, "subscribe");
  return subscriber;
}

/// Sets CUPTI's clock for the whole process. It is set only once, because the first records after a
/// second time use the earlier clock. It is set before the subscription, because CUPTI then reads
/// the clock for the existing contexts. If CUPTI refuses, RecordReader converts its own times.
void set_clock(const Cupti& cupti) {
  static const CUptiResult once = cupti.activity_register_clock(on_clock);
  static_cast<void>(once);
}

/// Each backend sets them again, because another user of CUPTI may have set its own in the
/// meantime.
void set_buffers(const Cupti& cupti) {
  std::uint8_t zeroed = 1;
  std::size_t size = sizeof zeroed;
  // A CUPTI that does not know this attribute zeroes buffers itself.
  cupti.activity_set_attribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &zeroed);
  require(cupti, cupti.activity_register_callbacks(on_buffer_wanted, on_buffer_done),
          "register buffers");
}

}  // namespace

// ---- The backend

class CuptiBackend : public Backend {
 public:
  CuptiBackend(EventSink& sink, const SessionOptions& options, ProfilerSwitch profiler,
               void* context);
  ~CuptiBackend() override;
  CuptiBackend(const CuptiBackend&) = delete;
  CuptiBackend& operator=(const CuptiBackend&) = delete;

  std::string name() const override { return cupti_.version(); }
  std::string device_name() const override { return driver_.name_of_first_device(); }
  void resume() override;
  void pause() override;
  void flush() override;
  void hand_over() override;
  std::vector<EngineUse> engine_use(const Timeline& timeline) const override;
  bool identify(cudaStream_t stream, int* device, std::uint64_t* id) const override;

  void on_call(VisitingThread& thread, CUpti_CallbackDomain domain, CUpti_CallbackId id,
               const CUpti_CallbackData& data);
  void on_buffer(std::uint8_t* buffer, std::size_t bytes);

 private:
  using Names = std::vector<KeptNumber>;  // numbers of the sink

  CUptiResult enable();
  void disable();
  CUptiResult enable_kinds();
  CUptiResult enable_calls();
  CUptiResult enable_memory_calls();
  void enable_profiler_switch();
  void drain(std::uint32_t how);
  void begin_call(VisitingThread& thread, bool runtime, CUpti_CallbackId id, std::uint32_t number);
  void end_call(VisitingThread& thread, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                const CUpti_CallbackData& data);
  void add_call(VisitingThread& thread, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                const CUpti_CallbackData& data, Time begin);
  std::uint32_t name_of(CUpti_CallbackDomain domain, CUpti_CallbackId id);
  void look_at_memory(CUpti_CallbackDomain domain, CUpti_CallbackId id);
  void look_at_all_memory();
  void hold_memory();

  const Cupti& cupti_;
  const Driver& driver_;
  EventSink& sink_;
  const SessionOptions options_;
  const ProfilerSwitch profiler_;
  void* const context_;
  RecordReader reader_;
  Names runtime_names_ = Names(CUPTI_RUNTIME_TRACE_CBID_SIZE);
  Names driver_names_ = Names(CUPTI_DRIVER_TRACE_CBID_SIZE);
  const std::vector<MemoryChange> runtime_changes_ =
      memory_changes(cupti_, CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_SIZE);
  const std::vector<MemoryChange> driver_changes_ =
      memory_changes(cupti_, CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_SIZE);
  CUpti_SubscriberHandle subscriber_ = nullptr;

  std::mutex mutex_;  // guards what is enabled
  std::atomic<bool> recording_{false};
  std::atomic<Time> last_async_look_{0};
  std::atomic<std::uint64_t> window_{next_window()};
};

namespace {

void CUPTIAPI on_call(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  if (domain != CUPTI_CB_DOMAIN_RUNTIME_API && domain != CUPTI_CB_DOMAIN_DRIVER_API) return;
  const Visit visit;
  if (visit.backend() != nullptr)
    visit.backend()->on_call(visit.thread(), domain, id,
                             *static_cast<const CUpti_CallbackData*>(data));
}

void CUPTIAPI on_buffer_done(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                             std::size_t bytes) {
  {
    const Visit visit;
    if (visit.backend() != nullptr && bytes > 0) visit.backend()->on_buffer(buffer, bytes);
  }
  buffers().give_back(buffer);
}

bool is_start(bool runtime, CUpti_CallbackId id) {
  return id == (runtime ? CUpti_CallbackId{CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStart_v4000}
                        : CUpti_CallbackId{CUPTI_DRIVER_TRACE_CBID_cuProfilerStart});
}

bool is_stop(bool runtime, CUpti_CallbackId id) {
  return id == (runtime ? CUpti_CallbackId{CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStop_v4000}
                        : CUpti_CallbackId{CUPTI_DRIVER_TRACE_CBID_cuProfilerStop});
}

/// While one exists, CUDA calls of this thread are the backend's own, and are not recorded.
class Muted {
 public:
  Muted() : thread_(Visit::this_thread()) { set(true); }
  ~Muted() { set(false); }
  Muted(const Muted&) = delete;
  Muted& operator=(const Muted&) = delete;

 private:
  void set(bool muted) {
    if (thread_ != nullptr) thread_->muted = muted;
  }
  VisitingThread* thread_;
};

}  // namespace

CuptiBackend::CuptiBackend(EventSink& sink, const SessionOptions& options, ProfilerSwitch profiler,
                           void* context)
    : cupti_(cupti()),
      driver_(driver()),
      sink_(sink),
      options_(options),
      profiler_(profiler),
      context_(context),
      reader_(cupti_, sink) {
  set_clock(cupti_);
  subscriber_ = subscribe(cupti_);
  try {
    set_buffers(cupti_);
    enable_profiler_switch();
    if (options_.capture_range) {
      // A failure is reported here, because the program's cudaProfilerStart could not report it.
      require(cupti_, enable_kinds(), "record what devices do");
      disable();
    }
  } catch (...) {
    disable();
    cupti_.unsubscribe(subscriber_);
    throw;
  }
  Visit::lead_to(this);
}

/// It does not call cuptiFinalize, which must not be called while other threads are within CUDA
/// calls. Without a subscription and enabled records, CUPTI costs almost nothing.
CuptiBackend::~CuptiBackend() {
  pause();
  drain(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  Visit::lead_to(nullptr);
  cupti_.unsubscribe(subscriber_);
}

void CuptiBackend::enable_profiler_switch() {
  cupti_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_RUNTIME_API,
                         CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStart_v4000);
  cupti_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_RUNTIME_API,
                         CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStop_v4000);
  cupti_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API,
                         CUPTI_DRIVER_TRACE_CBID_cuProfilerStart);
  cupti_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API,
                         CUPTI_DRIVER_TRACE_CBID_cuProfilerStop);
}

CUptiResult CuptiBackend::enable_kinds() {
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
        CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET}) {
    const CUptiResult result = cupti_.activity_enable(kind);
    if (result != CUPTI_SUCCESS) return result;
  }
  return options_.graph_nodes ? CUPTI_SUCCESS
                              : cupti_.activity_enable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
}

/// Enables the calls one by one, by their names, because each version of CUDA has more.
CUptiResult CuptiBackend::enable_calls() {
  if (!options_.calls) return enable_memory_calls();
  const CUptiResult result = cupti_.enable_domain(1, subscriber_, CUPTI_CB_DOMAIN_RUNTIME_API);
  const char* name = nullptr;
  for (CUpti_CallbackId id = 1; id < CUPTI_RUNTIME_TRACE_CBID_SIZE; ++id)
    if (cupti_.get_callback_name(CUPTI_CB_DOMAIN_RUNTIME_API, id, &name) == CUPTI_SUCCESS &&
        name != nullptr && is_left_out(name))
      cupti_.enable_callback(0, subscriber_, CUPTI_CB_DOMAIN_RUNTIME_API, id);
  for (CUpti_CallbackId id = 1; id < CUPTI_DRIVER_TRACE_CBID_SIZE; ++id)
    if (cupti_.get_callback_name(CUPTI_CB_DOMAIN_DRIVER_API, id, &name) == CUPTI_SUCCESS &&
        name != nullptr && (is_taken(name) || (options_.memory && changes_memory(name))))
      cupti_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, id);
  return result;
}

/// For recordings without calls. The driver's calls are within those of the runtime.
CUptiResult CuptiBackend::enable_memory_calls() {
  if (!options_.memory) return CUPTI_SUCCESS;
  const char* name = nullptr;
  for (CUpti_CallbackId id = 1; id < CUPTI_DRIVER_TRACE_CBID_SIZE; ++id)
    if (cupti_.get_callback_name(CUPTI_CB_DOMAIN_DRIVER_API, id, &name) == CUPTI_SUCCESS &&
        name != nullptr && changes_memory(name))
      cupti_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, id);
  return CUPTI_SUCCESS;
}

CUptiResult CuptiBackend::enable() {
  const CUptiResult result = enable_kinds();
  return result == CUPTI_SUCCESS ? enable_calls() : result;
}

void CuptiBackend::disable() {
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
        CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET})
    cupti_.activity_disable(kind);
  if (!options_.graph_nodes) cupti_.activity_disable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  cupti_.enable_domain(0, subscriber_, CUPTI_CB_DOMAIN_RUNTIME_API);
  cupti_.enable_domain(0, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API);
  enable_profiler_switch();
}

/// NVIDIA's own tools also switch activities within the callbacks of cudaProfilerStart and
/// cudaProfilerStop.
void CuptiBackend::resume() {
  const std::lock_guard lock(mutex_);
  if (recording_.load(std::memory_order_relaxed)) return;
  const CUptiResult result = enable();
  window_.store(next_window(), std::memory_order_relaxed);
  recording_.store(true, std::memory_order_release);
  const VisitingThread* const thread = Visit::this_thread();
  const bool in_callback = thread != nullptr && thread->depth.load(std::memory_order_relaxed) != 0;
  // A library that the driver injects begins within cuInit: there are no contexts yet, and the
  // driver must not be queried. NOLINTNEXTLINE(concurrency-mt-unsafe)
  if (in_callback || std::getenv("CUDA_INJECTION64_PATH") == nullptr) look_at_all_memory();
  if (!in_callback) require(cupti_, result, "record what devices do");
}

/// Waits for the devices, so that all work that was submitted before is recorded.
void CuptiBackend::pause() {
  const std::lock_guard lock(mutex_);
  if (!recording_.load()) return;
  look_at_all_memory();
  recording_.store(false);
  drain(0);
  disable();
}

void CuptiBackend::flush() {
  drain(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
}

/// The flush is forced. Otherwise CUPTI keeps each buffer that contains unfinished work, and there
/// is always such a buffer.
void CuptiBackend::hand_over() {
  const Muted muted;
  const RecordReader::Unfinished unfinished(reader_);
  cupti_.activity_flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
}

void CuptiBackend::drain(std::uint32_t how) {
  const Muted muted;
  driver_.synchronise();
  cupti_.activity_flush_all(how);
}

void CuptiBackend::on_buffer(std::uint8_t* buffer, std::size_t bytes) {
  reader_.read(buffer, bytes);
  std::size_t dropped = 0;
  if (cupti_.activity_get_dropped(nullptr, 0, &dropped) == CUPTI_SUCCESS && dropped > 0)
    sink_.drop(dropped);
}

std::vector<EngineUse> CuptiBackend::engine_use(const Timeline& timeline) const {
  return detail::engine_use(timeline, [this](int device) { return driver_.bus_id(device); });
}

bool CuptiBackend::identify(cudaStream_t stream, int* device, std::uint64_t* id) const {
  CUcontext context = nullptr;
  if (driver_.stream_context(stream, &context) != CUDA_SUCCESS) return false;
  std::uint32_t device_id = 0, stream_id = 0;
  if (cupti_.get_device_id(context, &device_id) != CUPTI_SUCCESS) return false;
  const bool is_default = stream == cudaStreamLegacy || stream == cudaStreamPerThread;
  const std::uint8_t per_thread = stream == cudaStreamPerThread ? 1 : 0;
  if (cupti_.get_stream_id(context, is_default ? nullptr : stream, per_thread, &stream_id) !=
      CUPTI_SUCCESS)
    return false;
  *device = static_cast<int>(device_id);
  *id = stream_id;
  return true;
}

// ---- Calls

void CuptiBackend::on_call(VisitingThread& thread, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                           const CUpti_CallbackData& data) {
  if (thread.muted) return;
  const std::uint64_t window = window_.load(std::memory_order_relaxed);
  if (thread.window != window) {
    thread.window = window;
    thread.track.forget();
    thread.runtime = thread.driver = {};
  }
  if (data.callbackSite == CUPTI_API_ENTER)
    begin_call(thread, domain == CUPTI_CB_DOMAIN_RUNTIME_API, id, data.correlationId);
  else
    end_call(thread, domain, id, data);
}

void CuptiBackend::begin_call(VisitingThread& thread, bool runtime, CUpti_CallbackId id,
                              std::uint32_t number) {
  if (!runtime && thread.runtime.correlation != 0) return;  // It is a part of the runtime's call.
  if (is_stop(runtime, id)) profiler_(context_, false);
  VisitingThread::Call& call = runtime ? thread.runtime : thread.driver;
  call = {number, recording_.load(std::memory_order_acquire) ? now() : 0};
}

void CuptiBackend::end_call(VisitingThread& thread, CUpti_CallbackDomain domain,
                            CUpti_CallbackId id, const CUpti_CallbackData& data) {
  const bool runtime = domain == CUPTI_CB_DOMAIN_RUNTIME_API;
  VisitingThread::Call& open = runtime ? thread.runtime : thread.driver;
  if (open.correlation != data.correlationId) return;  // The begin was not seen, or not recorded.
  const VisitingThread::Call call = std::exchange(open, {});
  if (call.begin != 0) add_call(thread, domain, id, data, call.begin);
  if (call.begin != 0) look_at_memory(domain, id);
  if (is_start(runtime, id)) profiler_(context_, true);
}

void CuptiBackend::add_call(VisitingThread& thread, CUpti_CallbackDomain domain,
                            CUpti_CallbackId id, const CUpti_CallbackData& data, Time begin) {
  if (!options_.calls) return;
  const std::uint32_t result = data.functionReturnValue == nullptr
                                   ? 0
                                   : *static_cast<const std::uint32_t*>(data.functionReturnValue);
  Event event;
  event.begin = begin;
  event.end = now();
  event.value = result;
  event.correlation = data.correlationId;
  event.name = name_of(domain, id);
  event.track = thread.track.get(sink_, [&] { return sink_.thread_track(this_thread_id()); });
  event.kind = Kind::call;
  if (result != 0 && result != kNotReady) event.flags = failed;
  sink_.add(event);
}

// ---- Memory

void CuptiBackend::hold_memory() {
  int device = 0;
  std::uint64_t bytes = 0;
  if (driver_.memory_taken(&device, &bytes)) sink_.hold_memory(device, now(), bytes);
}

/// Runs in a callback when the call is about to return. The context is that of the call.
void CuptiBackend::look_at_memory(CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  const auto& changes = domain == CUPTI_CB_DOMAIN_RUNTIME_API ? runtime_changes_ : driver_changes_;
  const MemoryChange change = id < changes.size() ? changes[id] : MemoryChange::none;
  if (!options_.memory || change == MemoryChange::none) return;
  if (change == MemoryChange::in_stream_order) {
    Time last = last_async_look_.load(std::memory_order_relaxed);
    const Time time = now();
    if (time - last < kBetweenAsyncLooks || !last_async_look_.compare_exchange_strong(last, time))
      return;
  }
  const Muted muted;
  hold_memory();
}

void CuptiBackend::look_at_all_memory() {
  if (!options_.memory) return;
  const Muted muted;
  driver_.for_each_context([this](int) { hold_memory(); });
}

std::uint32_t CuptiBackend::name_of(CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  const auto ask = [&] {
    const char* text = nullptr;
    if (cupti_.get_callback_name(domain, id, &text) != CUPTI_SUCCESS || text == nullptr) text = "?";
    std::string_view plain = plain_name(text);
    if (plain.starts_with("__"))
      plain.remove_prefix(2);  // __cudaLaunchKernel, of compiled launches
    return sink_.name(plain);
  };
  Names& names = domain == CUPTI_CB_DOMAIN_RUNTIME_API ? runtime_names_ : driver_names_;
  // The installed CUPTI may be newer than its header.
  return id < names.size() ? names[id].get(sink_, ask) : ask();
}

std::unique_ptr<Backend> make_cupti_backend(EventSink& sink, const SessionOptions& options,
                                            ProfilerSwitch profiler, void* context) {
  cupti();  // This precedes the driver's initialisation, so that CUPTI sees all later contexts.
  initialise(driver());
  return std::make_unique<CuptiBackend>(sink, options, profiler, context);
}

}  // namespace penstock::trace::detail
