// SPDX-License-Identifier: Apache-2.0
#include "observation.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "interface.hpp"
#include "process.hpp"
#include "seam.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation {

using namespace detail;

bool observe(const Observer& observer) {
  const Hidden hidden;
  const Lock lock(runtime_mutex());
  return observation().begin(observer);
}

void stop_observing() {
  const Hidden hidden;
  const Lock lock(runtime_mutex());
  observation().end();
}

namespace detail {

bool Observation::begin(const Observer& observer) {
  if (on()) return false;
  observer_ = observer;
  on_.store(true, std::memory_order_relaxed);
  return true;
}

namespace {

bool find_stream(cudaStream_t handle, int* device, std::uint64_t* number) {
  const Hidden hidden;
  Lock lock(runtime_mutex());
  Runtime* const runtime = running_runtime(Function::cudaStreamGetId);
  if (runtime == nullptr || runtime->devices.empty()) return false;
  Stream* stream = nullptr;
  const Call call(Function::cudaStreamGetId, *runtime, lock);
  if (call.find(handle, &stream) != cudaSuccess) return false;
  *device = stream->device.index;
  *number = stream->number;
  return true;
}

void await_idle() {
  const Hidden hidden;
  Lock lock(runtime_mutex());
  if (this_thread().in_host_function) return;
  if (Runtime* const runtime = running_runtime(Function::cudaDeviceSynchronize))
    runtime->await_idle(lock, nullptr, true);
}

void device_bytes(void* context, void (*tell)(void* context, int device, std::size_t bytes)) {
  const Hidden hidden;
  const Lock lock(runtime_mutex());
  const Runtime* const runtime = running_runtime(Function::cudaMemGetInfo);
  if (runtime == nullptr) return;
  int device = 0;
  for (const std::size_t bytes : runtime->memory.device_used()) tell(context, device++, bytes);
}

}  // namespace

extern "C" const Interface* penstock_emulated_runtime() {
  static constexpr Interface the_interface{kInterfaceVersion, &observe,    &stop_observing,
                                           &find_stream,      &await_idle, &device_bytes};
  return &the_interface;
}

namespace {

void start_running() {
  const Hidden hidden;
  const Lock lock(runtime_mutex());
  try {
    running_runtime(Function::cudaGetDeviceCount);
  } catch (const std::bad_alloc&) {  // The call that led here tries again and returns the error.
  }
}

void complain(const char* path, const char* why) {
  std::fprintf(stderr, "penstock: CUDA_INJECTION64_PATH=%s: %s\n", path, why);
}

/// A library that does not accept the interface is a tool for CUDA's driver. The one of nsys 2022.4
/// crashes without a driver.
void initialize(const char* path, void* library) {
  void* const attach = ::dlsym(library, kAttach);
  void* const begin = ::dlsym(library, "InitializeInjection");
  if (begin == nullptr) return complain(path, "it has no InitializeInjection");
  if (attach == nullptr)
    return complain(path, "it records CUDA's driver, and the CUDA runtime is emulated: left alone");
  reinterpret_cast<Attach>(attach)(penstock_emulated_runtime());
  reinterpret_cast<int (*)()>(begin)();
}

}  // namespace

void load_injected_library() {
  static std::atomic<bool> begun{false};
  if (begun.exchange(true)) return;
  // The runtime starts first, so that the library's exit handlers run before the runtime unloads.
  start_running();
  const char* const path = std::getenv("CUDA_INJECTION64_PATH");  // NOLINT(concurrency-mt-unsafe)
  if (path != nullptr && *path != '\0') {
    void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      complain(path, ::dlerror());  // NOLINT(concurrency-mt-unsafe)
    else
      initialize(path, library);
  }
  injection_is_settled.store(true, std::memory_order_relaxed);
}

}  // namespace detail
}  // namespace penstock::emulation
