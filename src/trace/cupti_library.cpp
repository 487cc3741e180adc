// SPDX-License-Identifier: Apache-2.0
#include "cupti_library.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <penstock/trace/session.hpp>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

namespace fs = std::filesystem;

/// The newest comes first, because a newer CUPTI knows the older runtimes.
constexpr std::array kNames{"libcupti.so.13", "libcupti.so", "libcupti.so.12"};
constexpr std::array kRuntimes{"libcudart.so.13", "libcudart.so", "libcudart.so.12"};

/// Adds the places of CUPTI next to the CUDA runtime `library`, in a toolkit and in its Python
/// packages.
void add_neighbours(const fs::path& library, std::vector<fs::path>& directories) {
  const fs::path lib = library.parent_path();
  directories.push_back(lib);
  directories.push_back(lib.parent_path() / "extras/CUPTI/lib64");
  directories.push_back(lib.parent_path().parent_path() / "cuda_cupti/lib");
}

std::vector<fs::path> directories() {
  std::vector<fs::path> found;
  for (const char* name : kRuntimes)
    if (void* runtime = dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) {
      Dl_info info{};
      const void* function = dlsym(runtime, "cudaGetDeviceCount");
      if (function != nullptr && dladdr(function, &info) != 0 && info.dli_fname != nullptr)
        add_neighbours(info.dli_fname, found);
      dlclose(runtime);
    }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* home = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe)
    if (home != nullptr) add_neighbours(fs::path(home) / "lib64/", found);
  }
  add_neighbours("/usr/local/cuda/lib64/", found);
  return found;
}

/// The library is never closed, because its threads may run until the process ends.
void* open_cupti() {
  // A second copy in the process would not see the events of the first one.
  for (const char* name : kNames)
    if (void* library = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return library;
  for (const char* name : kNames)
    if (void* library = dlopen(name, RTLD_NOW)) return library;
  for (const fs::path& directory : directories())
    for (const char* name : kNames)
      if (void* library = dlopen((directory / name).c_str(), RTLD_NOW)) return library;
  throw Unavailable(
      "libcupti.so.13 was not found: install CUPTI (it comes with the CUDA toolkit), or put its "
      "directory into LD_LIBRARY_PATH or the toolkit's into CUDA_HOME");
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr)
    throw Unavailable(std::string(name) + " is missing in the library that was found: too old");
}

Cupti load_cupti() {
  void* library = open_cupti();
  Cupti cupti;
  find(library, "cuptiGetVersion", cupti.get_version);
  find(library, "cuptiGetResultString", cupti.get_result_string);
  find(library, "cuptiSubscribe", cupti.subscribe);
  cupti.subscribe_v2 =
      reinterpret_cast<decltype(cupti.subscribe_v2)>(dlsym(library, "cuptiSubscribe_v2"));
  find(library, "cuptiUnsubscribe", cupti.unsubscribe);
  find(library, "cuptiEnableCallback", cupti.enable_callback);
  find(library, "cuptiEnableDomain", cupti.enable_domain);
  find(library, "cuptiGetCallbackName", cupti.get_callback_name);
  find(library, "cuptiGetDeviceId", cupti.get_device_id);
  find(library, "cuptiGetStreamIdEx", cupti.get_stream_id);
  find(library, "cuptiActivityEnable", cupti.activity_enable);
  find(library, "cuptiActivityDisable", cupti.activity_disable);
  find(library, "cuptiActivityFlushAll", cupti.activity_flush_all);
  find(library, "cuptiActivityGetNextRecord", cupti.activity_get_next_record);
  find(library, "cuptiActivityGetNumDroppedRecords", cupti.activity_get_dropped);
  find(library, "cuptiActivityRegisterCallbacks", cupti.activity_register_callbacks);
  find(library, "cuptiActivityRegisterTimestampCallback", cupti.activity_register_clock);
  find(library, "cuptiActivitySetAttribute", cupti.activity_set_attribute);
  return cupti;
}

Driver load_driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr)
    throw Unavailable("libcuda.so.1 was not found: there is no NVIDIA driver on this machine");
  Driver driver;
  find(library, "cuInit", driver.init);
  find(library, "cuGetErrorString", driver.get_error_string);
  find(library, "cuDeviceGetCount", driver.device_count);
  find(library, "cuDeviceGet", driver.device_get);
  find(library, "cuDeviceGetName", driver.device_name);
  find(library, "cuDeviceGetPCIBusId", driver.device_bus_id);
  find(library, "cuDevicePrimaryCtxGetState", driver.primary_state);
  find(library, "cuDevicePrimaryCtxRetain", driver.primary_retain);
  find(library, "cuDevicePrimaryCtxRelease_v2", driver.primary_release);
  find(library, "cuCtxPushCurrent_v2", driver.context_push);
  find(library, "cuCtxPopCurrent_v2", driver.context_pop);
  find(library, "cuCtxGetCurrent", driver.context_current);
  find(library, "cuCtxGetDevice", driver.context_device);
  find(library, "cuCtxSynchronize", driver.context_synchronize);
  find(library, "cuThreadExchangeStreamCaptureMode", driver.exchange_capture_mode);
  find(library, "cuMemGetInfo_v2", driver.memory_info);
  find(library, "cuStreamGetCtx", driver.stream_context);
  return driver;
}

}  // namespace

const Cupti& cupti() {
  static const Cupti loaded = load_cupti();
  return loaded;
}

const Driver& driver() {
  static const Driver loaded = load_driver();
  return loaded;
}

std::string Cupti::version() const {
  std::uint32_t number = 0;
  if (get_version(&number) != CUPTI_SUCCESS) return "CUPTI";
  // 130001 means 13.0. Before CUDA 13, the version was a count, such as 26.
  if (number < 10000) return "CUPTI, API version " + std::to_string(number);
  return "CUPTI " + std::to_string(number / 10000) + '.' + std::to_string(number / 100 % 100);
}

std::string Cupti::text(CUptiResult result) const {
  const char* text = nullptr;
  if (get_result_string(result, &text) != CUPTI_SUCCESS || text == nullptr)
    return "CUPTI error " + std::to_string(static_cast<int>(result));
  return text;
}

void Driver::synchronise() const {
  CUcontext current = nullptr;
  if (context_current(&current) == CUDA_SUCCESS && current != nullptr) context_synchronize();
  for_each_context([this](int) { context_synchronize(); });
}

bool Driver::memory_taken(int* device, std::uint64_t* bytes) const {
  CUdevice current = 0;
  std::size_t free = 0, total = 0;
  if (context_device(&current) != CUDA_SUCCESS) return false;
  // This query must not invalidate a stream capture of the program.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  const bool exchanged = exchange_capture_mode(&mode) == CUDA_SUCCESS;
  const CUresult result = memory_info(&free, &total);
  if (exchanged) exchange_capture_mode(&mode);
  if (result != CUDA_SUCCESS) return false;
  *device = current;  // The handle of a device is its number.
  *bytes = total - free;
  return true;
}

void Driver::for_each_context(const std::function<void(int device)>& visit) const {
  int devices = 0;
  if (device_count(&devices) != CUDA_SUCCESS) return;
  for (int ordinal = 0; ordinal < devices; ++ordinal) {
    CUdevice device = 0;
    unsigned flags = 0;
    int active = 0;
    if (device_get(&device, ordinal) != CUDA_SUCCESS) continue;
    if (primary_state(device, &flags, &active) != CUDA_SUCCESS || active == 0) continue;
    CUcontext context = nullptr;
    if (primary_retain(&context, device) != CUDA_SUCCESS) continue;
    if (context_push(context) == CUDA_SUCCESS) {
      visit(ordinal);
      context_pop(&context);
    }
    primary_release(device);
  }
}

std::string Driver::name_of_first_device() const {
  CUdevice device = 0;
  std::array<char, 256> name{};
  if (device_get(&device, 0) != CUDA_SUCCESS) return {};
  if (device_name(name.data(), static_cast<int>(name.size()), device) != CUDA_SUCCESS) return {};
  return name.data();
}

std::string Driver::bus_id(int number) const {
  CUdevice device = 0;
  std::array<char, 32> bus{};
  if (device_get(&device, number) != CUDA_SUCCESS) return {};
  if (device_bus_id(bus.data(), static_cast<int>(bus.size()), device) != CUDA_SUCCESS) return {};
  return bus.data();
}

void initialise(const Driver& driver) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  if (std::getenv("CUDA_INJECTION64_PATH") != nullptr) return;
  int devices = 0;
  CUresult status = driver.init(0);
  if (status == CUDA_SUCCESS) status = driver.device_count(&devices);
  if (status == CUDA_SUCCESS && devices > 0) return;
  const char* text = "no device";
  if (status != CUDA_SUCCESS) driver.get_error_string(status, &text);
  throw Unavailable(std::string("there is no CUDA device to trace: ") +
                    (text != nullptr ? text : "unknown error"));
}

}  // namespace penstock::trace::detail
