// SPDX-License-Identifier: Apache-2.0

#include "cufile_library.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <penstock/gds/gds_error.hpp>
#include <system_error>

namespace penstock::inline PENSTOCK_ABI::gds {

CufileLibrary::CufileLibrary(const std::string& file) {
  void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const error =
        ::dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it by thread
    throw GdsError("cuFile cannot be loaded: " + (error != nullptr ? std::string(error) : file) +
                   ". It comes with a CUDA toolkit (Debian packages of NVIDIA: libcufile) and with "
                   "the wheel nvidia-cufile: install one, and set GdsOptions::library to its path "
                   "if the dynamic linker does not find it");
  }
  const auto find = [&](const char* name) { return ::dlsym(handle, name); };
  const auto need = [&](const char* name) {
    if (void* const function = find(name)) return function;
    throw GdsError(file + " has no " + name + ": install cuFile of CUDA 12.4 or newer");
  };
#define PENSTOCK_CUFILE_LOAD(name, ...) name = reinterpret_cast<decltype(name)>(need(#name));
  PENSTOCK_CUFILE_FUNCTIONS(PENSTOCK_CUFILE_LOAD)
#undef PENSTOCK_CUFILE_LOAD
  cuFileGetParameterBool =
      reinterpret_cast<decltype(cuFileGetParameterBool)>(find("cuFileGetParameterBool"));
}

namespace {

const char* meaning(int error) {
  switch (error) {
    case cufile::kNotInitialized:
      return "it is not initialised. Without the kernel module nvidia-fs that needs its "
             "compatibility mode, which the key properties.allow_compat_mode of its configuration "
             "allows (CUFILE_ENV_PATH_JSON names the file; default: /etc/cufile.json)";
    case cufile::kIoNotSupported:
      return "it cannot read this file directly, and its configuration forbids the compatibility "
             "mode (properties.allow_compat_mode)";
    case cufile::kCudaError:
      return "a call of the CUDA driver failed";
    case cufile::kDirectNotSet:
      return "the descriptor is not for direct reads (O_DIRECT), for which the file system has to "
             "be able";
    case cufile::kPermission:
      return "the access is denied: is this process allowed to open /dev/nvidia-fs*?";
    case cufile::kAlreadyOpen:
      return "it is open already";
    case cufile::kIoDisabled:
      return "its configuration disables it for this file system";
    default:
      return "cufile.h and the log of cuFile (cufile.log) say what it means";
  }
}

}  // namespace

std::string cufile_error(cufile::Status status) {
  std::string text =
      "error " + std::to_string(status.error) + " of cuFile: " + meaning(status.error);
  if (status.error == cufile::kCudaError) text += " with error " + std::to_string(status.cuda);
  return text;
}

std::string cufile_read_error(long result, int error_number) {
  if (-result >= cufile::kFirstError) return cufile_error({static_cast<int>(-result), 0});
  // A batch has the negative number of a system error in its result.
  if (result < -1) error_number = static_cast<int>(-result);
  return std::generic_category().message(error_number);
}

}  // namespace penstock::gds
