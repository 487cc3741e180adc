// SPDX-License-Identifier: Apache-2.0
//
// scripts/profile preloads this into a program under an nsys whose importer stops at newer calls of
// the CUDA runtime. Two calls that penstock makes have new numbers since CUDA 12.8:
// cudaEventElapsedTime and cudaStreamGetDevice. Here the driver's older functions, which every
// importer knows, answer these calls. If they fail, the runtime is called, and the program sees its
// error. A program that links the runtime statically still makes the runtime's calls.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

enum { success = 0, not_ready = 600 };  // the same numbers in the driver and in the runtime

// Returns a function of the driver, or NULL while the program has not loaded the driver. `known` keeps
// it for the next call.
static void* of_driver(const char* name, void** known) {
  void* function = __atomic_load_n(known, __ATOMIC_RELAXED);
  if (!function) {
    void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    function = driver ? dlsym(driver, name) : NULL;
    __atomic_store_n(known, function, __ATOMIC_RELAXED);
  }
  return function;
}

// The driver's symbol without _v2 is the function of before 12.8.
static int elapsed(const char* name, float* milliseconds, void* start, void* end) {
  static void* known;
  int (*older)(float*, void*, void*) = of_driver("cuEventElapsedTime", &known);
  int (*newer)(float*, void*, void*);
  int status = older ? older(milliseconds, start, end) : -1;
  if (status == success || status == not_ready) return status;
  newer = dlsym(RTLD_NEXT, name);
  return newer(milliseconds, start, end);
}

int cudaEventElapsedTime(float* milliseconds, void* start, void* end) {
  return elapsed("cudaEventElapsedTime", milliseconds, start, end);
}

// The name in CUDA 12.8 and 12.9.
int cudaEventElapsedTime_v2(float* milliseconds, void* start, void* end) {
  return elapsed("cudaEventElapsedTime_v2", milliseconds, start, end);
}

int cudaStreamGetDevice(void* stream, int* device) {
  static void* known[4];
  int (*context_of)(void*, void**) = of_driver("cuStreamGetCtx", &known[0]);
  int (*push)(void*) = of_driver("cuCtxPushCurrent_v2", &known[1]);
  int (*device_of)(int*) = of_driver("cuCtxGetDevice", &known[2]);
  int (*pop)(void**) = of_driver("cuCtxPopCurrent_v2", &known[3]);
  int (*newer)(void*, int*);
  void* context;
  if (device && context_of && push && device_of && pop && context_of(stream, &context) == success &&
      push(context) == success) {
    int status = device_of(device);
    pop(&context);
    if (status == success) return success;
  }
  newer = dlsym(RTLD_NEXT, "cudaStreamGetDevice");
  return newer(stream, device);
}
