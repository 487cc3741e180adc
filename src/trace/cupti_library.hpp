// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions of CUPTI and of the CUDA driver that a trace needs, looked up at run time. A
// program with penstock::trace therefore starts where neither exists. No function of the CUDA
// runtime is called, so a traced program may use any version of it.

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <penstock/version.hpp>
#include <string>

#include "cupti_version.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// The C API of CUPTI, without its prefix.
struct Cupti {
  decltype(&cuptiGetVersion) get_version = nullptr;
  decltype(&cuptiGetResultString) get_result_string = nullptr;
  decltype(&cuptiSubscribe) subscribe = nullptr;
  SubscribeV2 subscribe_v2 = nullptr;  ///< null before CUPTI 13
  decltype(&cuptiUnsubscribe) unsubscribe = nullptr;
  decltype(&cuptiEnableCallback) enable_callback = nullptr;
  decltype(&cuptiEnableDomain) enable_domain = nullptr;
  decltype(&cuptiGetCallbackName) get_callback_name = nullptr;
  decltype(&cuptiGetDeviceId) get_device_id = nullptr;
  decltype(&cuptiGetStreamIdEx) get_stream_id = nullptr;
  decltype(&cuptiActivityEnable) activity_enable = nullptr;
  decltype(&cuptiActivityDisable) activity_disable = nullptr;
  decltype(&cuptiActivityFlushAll) activity_flush_all = nullptr;
  decltype(&cuptiActivityGetNextRecord) activity_get_next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) activity_get_dropped = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) activity_register_callbacks = nullptr;
  decltype(&cuptiActivityRegisterTimestampCallback) activity_register_clock = nullptr;
  decltype(&cuptiActivitySetAttribute) activity_set_attribute = nullptr;

  /// Returns "CUPTI 13.0", for example.
  std::string version() const;
  /// Returns CUPTI's text for one of its errors.
  std::string text(CUptiResult result) const;
};

/// Loads libcupti on the first call: the one that the process has loaded already, else the one that
/// the dynamic linker finds, else the one next to the CUDA runtime. Throws Unavailable. Any thread
/// may call it.
const Cupti& cupti();

/// The C API of the driver, with the names in libcuda.so.1.
struct Driver {
  CUresult (*init)(unsigned flags) = nullptr;
  CUresult (*get_error_string)(CUresult, const char** text) = nullptr;
  CUresult (*device_count)(int* count) = nullptr;
  CUresult (*device_get)(CUdevice* device, int ordinal) = nullptr;
  CUresult (*device_name)(char* name, int size, CUdevice) = nullptr;
  CUresult (*device_bus_id)(char* bus, int size, CUdevice) = nullptr;
  CUresult (*primary_state)(CUdevice, unsigned* flags, int* active) = nullptr;
  CUresult (*primary_retain)(CUcontext* context, CUdevice) = nullptr;
  CUresult (*primary_release)(CUdevice) = nullptr;
  CUresult (*context_push)(CUcontext) = nullptr;
  CUresult (*context_pop)(CUcontext* popped) = nullptr;
  CUresult (*context_current)(CUcontext* current) = nullptr;
  CUresult (*context_device)(CUdevice* device) = nullptr;
  CUresult (*context_synchronize)() = nullptr;
  CUresult (*exchange_capture_mode)(CUstreamCaptureMode* mode) = nullptr;
  CUresult (*memory_info)(std::size_t* free, std::size_t* total) = nullptr;
  CUresult (*stream_context)(CUstream, CUcontext* context) = nullptr;

  /// Waits for the current context and for every device that has a primary context. It creates
  /// none.
  void synchronise() const;
  /// Calls `visit` with each device that has a primary context, and makes that context current
  /// during the call.
  void for_each_context(const std::function<void(int device)>& visit) const;
  /// Finds the number of bytes in use on the device of the current context. Returns false if there
  /// is none.
  bool memory_taken(int* device, std::uint64_t* bytes) const;
  /// Returns the name of device 0, or an empty string before cuInit or if there is none.
  std::string name_of_first_device() const;
  /// Returns the PCI bus id of a device, or an empty string if there is none.
  std::string bus_id(int device) const;
};

/// Loads libcuda.so.1 on the first call, and does not initialise it. Throws Unavailable. Any thread
/// may call it.
const Driver& driver();

/// Initialises the driver. Throws Unavailable if there is no device. It does nothing in a process
/// into which the driver injects a library (CUDA_INJECTION64_PATH): such a library starts within
/// cuInit, which must not be called again there.
void initialise(const Driver& driver);

}  // namespace penstock::trace::detail
