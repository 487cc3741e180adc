// SPDX-License-Identifier: Apache-2.0
#include "fake_cupti.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

namespace {

using Callback = std::pair<int, std::uint32_t>;  // domain, id

struct State {
  std::mutex mutex;
  CUpti_CallbackFunc callback = nullptr;
  void* user = nullptr;
  std::string holder;
  std::set<Callback> callbacks;
  std::set<int> kinds;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  std::uint8_t* buffer = nullptr;
  std::size_t size = 0, used = 0;
  std::size_t dropped = 0;
};

State& state() {
  static State& instance = *new State;
  return instance;
}

std::atomic<std::uint32_t> next_number{1};
std::atomic<int> clocks{0};

std::size_t size_of(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return sizeof(CUpti_ActivityMemcpyPtoP4);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      return sizeof(CUpti_ActivityGraphTrace2);
    default:
      return 0;
  }
}

/// Those that the tests call; the others bear names that mean nothing.
const char* name_of(bool runtime, std::uint32_t id) {
  struct Named {
    std::uint32_t id;
    const char* name;
  };
  static constexpr std::array kRuntime{
      Named{CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020, "cudaMemcpyAsync_v3020"},
      Named{CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020, "cudaGetLastError_v3020"},
      Named{CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020, "cudaMalloc_v3020"},
      Named{CUPTI_RUNTIME_TRACE_CBID_cudaMallocHost_v3020, "cudaMallocHost_v3020"},
      Named{CUPTI_RUNTIME_TRACE_CBID_cudaMallocAsync_v11020, "cudaMallocAsync_v11020"},
      Named{CUPTI_RUNTIME_TRACE_CBID_cudaEventQuery_v3020, "cudaEventQuery_v3020"},
      Named{CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000, "__cudaLaunchKernel_v13000"},
      Named{CUPTI_RUNTIME_TRACE_CBID___cudaPushCallConfiguration_v13000,
            "__cudaPushCallConfiguration_v13000"},
      Named{CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStart_v4000, "cudaProfilerStart_v4000"},
      Named{CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStop_v4000, "cudaProfilerStop_v4000"}};
  static constexpr std::array kDriver{
      Named{CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, "cuLaunchKernel"},
      Named{CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, "cuMemAlloc_v2"},
      Named{CUPTI_DRIVER_TRACE_CBID_cuCtxGetDevice, "cuCtxGetDevice"},
      Named{CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize, "cuCtxSynchronize"}};
  if (runtime) {
    for (const Named& named : kRuntime)
      if (named.id == id) return named.name;
  } else {
    for (const Named& named : kDriver)
      if (named.id == id) return named.name;
  }
  return "another";
}

}  // namespace

namespace penstock::test::fake {

std::uint32_t call(CUpti_CallbackDomain domain, std::uint32_t id, std::uint32_t result,
                   const std::function<void()>& body, std::uint32_t number) {
  CUpti_CallbackData data{};
  data.correlationId = number != 0 ? number : next_number++;
  data.functionReturnValue = &result;
  const auto tell = [&](CUpti_ApiCallbackSite site) {
    State& now = state();
    std::unique_lock lock(now.mutex);
    if (now.callbacks.count({domain, id}) == 0) return;
    const auto callback = now.callback;
    void* const user = now.user;
    lock.unlock();
    data.callbackSite = site;
    if (callback != nullptr) callback(user, domain, id, &data);
  };
  tell(CUPTI_API_ENTER);
  if (body) body();
  tell(CUPTI_API_EXIT);
  return data.correlationId;
}

void record(const void* what, std::size_t bytes) {
  State& now = state();
  const std::lock_guard lock(now.mutex);
  CUpti_Activity common{};
  std::memcpy(&common, what, sizeof common);
  if (now.kinds.count(common.kind) == 0) return;
  if (now.buffer == nullptr) {
    std::size_t records = 0;
    now.request(&now.buffer, &now.size, &records);
    now.used = 0;
  }
  if (now.buffer == nullptr || now.used + bytes > now.size) {
    ++now.dropped;
    return;
  }
  std::memcpy(now.buffer + now.used, what, bytes);
  now.used += bytes;
}

void deliver() {
  State& now = state();
  std::unique_lock lock(now.mutex);
  std::uint8_t* const buffer = std::exchange(now.buffer, nullptr);
  const std::size_t size = now.size, used = now.used;
  const auto complete = now.complete;
  lock.unlock();
  if (buffer != nullptr) complete(nullptr, 0, buffer, size, used);
}

void drop(std::size_t records) {
  const std::lock_guard lock(state().mutex);
  state().dropped += records;
}

void hold_subscription(const std::string& holder) {
  const std::lock_guard lock(state().mutex);
  state().holder = holder;
}

bool is_subscribed() {
  const std::lock_guard lock(state().mutex);
  return state().callback != nullptr;
}

bool is_enabled(CUpti_ActivityKind kind) {
  const std::lock_guard lock(state().mutex);
  return state().kinds.count(kind) != 0;
}

int clock_registrations() {
  return clocks;
}

}  // namespace penstock::test::fake

extern "C" {

CUptiResult cuptiGetVersion(std::uint32_t* version) {
  *version = 130001;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult, const char** text) {
  *text = "CUPTI_ERROR_FAKE";
  return CUPTI_SUCCESS;
}
CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback,
                           void* user) {
  const std::lock_guard lock(state().mutex);
  if (!state().holder.empty() || state().callback != nullptr)
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  state().callback = callback;
  state().user = user;
  *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(&state());
  return CUPTI_SUCCESS;
}
CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback,
                              void* user, CUpti_SubscriberParams* parameters) {
  const CUptiResult result = cuptiSubscribe(subscriber, callback, user);
  if (result != CUPTI_SUCCESS)
    std::strncpy(parameters->oldSubscriberName, state().holder.c_str(),
                 parameters->oldSubscriberSize);
  return result;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  const std::lock_guard lock(state().mutex);
  state().callback = nullptr;
  state().callbacks.clear();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiEnableCallback(std::uint32_t enable, CUpti_SubscriberHandle,
                                CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  const std::lock_guard lock(state().mutex);
  if (enable != 0)
    state().callbacks.insert({domain, id});
  else
    state().callbacks.erase({domain, id});
  return CUPTI_SUCCESS;
}
CUptiResult cuptiEnableDomain(std::uint32_t enable, CUpti_SubscriberHandle subscriber,
                              CUpti_CallbackDomain domain) {
  const bool runtime = domain == CUPTI_CB_DOMAIN_RUNTIME_API;
  const auto ids = runtime ? static_cast<CUpti_CallbackId>(CUPTI_RUNTIME_TRACE_CBID_SIZE)
                           : static_cast<CUpti_CallbackId>(CUPTI_DRIVER_TRACE_CBID_SIZE);
  for (CUpti_CallbackId id = 1; id < ids; ++id) cuptiEnableCallback(enable, subscriber, domain, id);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, std::uint32_t id, const char** name) {
  *name = name_of(domain == CUPTI_CB_DOMAIN_RUNTIME_API, id);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetDeviceId(CUcontext, std::uint32_t* device) {
  *device = 0;
  return CUPTI_SUCCESS;
}
/// 13 and up, by the handle; 7 is the default stream.
CUptiResult cuptiGetStreamIdEx(CUcontext, CUstream stream, std::uint8_t, std::uint32_t* id) {
  *id =
      stream == nullptr ? 7 : static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(stream));
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  const std::lock_guard lock(state().mutex);
  state().kinds.insert(kind);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  const std::lock_guard lock(state().mutex);
  state().kinds.erase(kind);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushAll(std::uint32_t) {
  penstock::test::fake::deliver();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t bytes,
                                       CUpti_Activity** record) {
  std::uint8_t* next = buffer;
  if (*record != nullptr)
    next = reinterpret_cast<std::uint8_t*>(*record) + size_of((*record)->kind);
  if (next >= buffer + bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* dropped) {
  const std::lock_guard lock(state().mutex);
  *dropped = std::exchange(state().dropped, 0);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  const std::lock_guard lock(state().mutex);
  state().request = request;
  state().complete = complete;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc) {
  ++clocks;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute, std::size_t*, void*) {
  return CUPTI_SUCCESS;
}

}  // extern "C"
