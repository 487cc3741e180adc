// SPDX-License-Identifier: Apache-2.0
//
// penstock::penstock and penstock::emulated define the same functions, so a program may link only
// one of them. Each library has this file, and each dependent refers to PENSTOCK_RUNTIME. In a
// program that links both, a function below is defined twice, and the linker's message names both
// libraries. CMake reports most such cases earlier, but not a library that a static library links
// PRIVATE. Neither sees through a shared library that links its runtime PRIVATE; each call of CUDA
// would then reach the runtime that the loader finds first. So such a process ends when it loads
// the second of them.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

extern "C" {

void PENSTOCK_RUNTIME() {}
[[gnu::weak]] void PENSTOCK_OTHER_RUNTIME();

[[gnu::visibility("hidden")]] void link_penstock_penstock_or_penstock_emulated_not_both();
void link_penstock_penstock_or_penstock_emulated_not_both() {}

}  // extern "C"

namespace {

void check_at_load();

/// Returns the program or shared library that has the address.
Dl_info object_with(void* address) {
  Dl_info object{};
  if (address != nullptr) ::dladdr(address, &object);
  return object;
}

/// Looks for a runtime that is not emulated, in the order of the loader. `from` is RTLD_DEFAULT for
/// the first one or RTLD_NEXT for the next behind this object. Returns the object that has it.
Dl_info runtime_of_cuda(void* from) {
  const Dl_info found = object_with(::dlsym(from, "cudaGetDeviceCount"));
  const Dl_info own = object_with(reinterpret_cast<void*>(&check_at_load));
  const Dl_info emulated = object_with(::dlsym(from, "penstock_runtime_emulated"));
  return found.dli_fbase == own.dli_fbase || found.dli_fbase == emulated.dli_fbase ? Dl_info{}
                                                                                   : found;
}

Dl_info other_runtime() {
  Dl_info other = object_with(reinterpret_cast<void*>(PENSTOCK_OTHER_RUNTIME));
  if (PENSTOCK_EMULATES && other.dli_fbase == nullptr) other = runtime_of_cuda(RTLD_DEFAULT);
  if (PENSTOCK_EMULATES && other.dli_fbase == nullptr) other = runtime_of_cuda(RTLD_NEXT);
  return other;
}

/// The loader calls it, before main() or inside of dlopen().
[[gnu::constructor]] void check_at_load() {
  const Dl_info other = other_runtime();
  if (other.dli_fbase == nullptr) return;
  const Dl_info own = object_with(reinterpret_cast<void*>(&check_at_load));
  std::fprintf(
      stderr,
      "penstock: two CUDA runtimes are in this process: the emulated one in %s, and CUDA's in %s. "
      "A call of "
      "CUDA could reach either. Link all parts of the program to penstock::penstock, or all to "
      "penstock::emulated\n",
      PENSTOCK_EMULATES ? own.dli_fname : other.dli_fname,
      PENSTOCK_EMULATES ? other.dli_fname : own.dli_fname);
  std::abort();
}

}  // namespace
