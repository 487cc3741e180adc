// SPDX-License-Identifier: Apache-2.0

// An NVTX injection that stands for two: what the program tells NVTX goes to the recorder that
// PENSTOCK_FIRST_RECORDER names and to that of CUDA_INJECTION64_PATH, one right after the other. So
// one run has two recordings, and they can be compared. It passes on what markers.hpp uses: pushed
// ranges, registered names, domains, threads, streams.
//
// It is to be preloaded: nsys sets NVTX_INJECTION64_PATH for whatever its program starts, so it is
// set here, when the program has begun.

#include <dlfcn.h>
#include <nvtx3/nvToolsExtCudaRt.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr unsigned kFunctions = 64;  // of a module, at most

/// A recorder, and the functions that it has attached to NVTX.
struct Recorder {
  std::array<std::array<NvtxFunctionPointer, kFunctions>, NVTX_CB_MODULE_SIZE> functions{};
  std::array<std::array<NvtxFunctionPointer*, kFunctions + 1>, NVTX_CB_MODULE_SIZE> table{};
};

std::array<Recorder, 2> recorders;
Recorder* beginning = nullptr;  // its InitializeInjectionNvtx2 runs
NvtxGetExportTableFunc_t program_tables = nullptr;

/// Domains, names and resources are something else to each recorder.
struct Handles {
  std::array<void*, recorders.size()> of{};
};

template <class Function, class... Arguments>
auto call(const Recorder& recorder, NvtxCallbackModule module, unsigned id,
          Arguments... arguments) {
  const auto function = reinterpret_cast<Function>(recorder.functions.at(module).at(id));
  using Result = decltype(function(arguments...));
  return function != nullptr ? function(arguments...) : Result();
}

void* handle(const void* handles, std::size_t recorder) {
  return handles == nullptr ? nullptr : static_cast<const Handles*>(handles)->of.at(recorder);
}

template <class Handle, class Make>
Handle handles_of(Make make) {
  auto* const handles = new Handles;  // NVTX keeps them for the process's life.
  for (std::size_t i = 0; i < recorders.size(); ++i) handles->of.at(i) = make(i);
  return reinterpret_cast<Handle>(handles);
}

// ---- What the program calls

nvtxDomainHandle_t create_domain(const char* name) {
  return handles_of<nvtxDomainHandle_t>([&](std::size_t i) {
    return call<nvtxDomainHandle_t (*)(const char*)>(recorders.at(i), NVTX_CB_MODULE_CORE2,
                                                     NVTX_CBID_CORE2_DomainCreateA, name);
  });
}

nvtxDomainHandle_t domain_of(nvtxDomainHandle_t domain, std::size_t recorder) {
  return static_cast<nvtxDomainHandle_t>(handle(domain, recorder));
}

nvtxStringHandle_t register_name(nvtxDomainHandle_t domain, const char* name) {
  return handles_of<nvtxStringHandle_t>([&](std::size_t i) {
    return call<nvtxStringHandle_t (*)(nvtxDomainHandle_t, const char*)>(
        recorders.at(i), NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRegisterStringA,
        domain_of(domain, i), name);
  });
}

/// A recorder takes the time first; what else it does comes before the other one takes it, which is
/// microseconds on a thread that has just woken up. So a thread's ranges go to each of them first
/// by turns.
std::array<std::size_t, 2> next_order(std::size_t& calls) {
  const std::size_t first = calls++ % 2;
  return {first, 1 - first};
}

int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  thread_local std::size_t calls = 0;
  int level = 0;
  for (const std::size_t i : next_order(calls)) {
    nvtxEventAttributes_t its = *attributes;
    if (its.messageType == NVTX_MESSAGE_TYPE_REGISTERED)
      its.message.registered =
          static_cast<nvtxStringHandle_t>(handle(attributes->message.registered, i));
    level = call<int (*)(nvtxDomainHandle_t, const nvtxEventAttributes_t*)>(
        recorders.at(i), NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePushEx,
        domain_of(domain, i), &its);
  }
  return level;
}

int pop(nvtxDomainHandle_t domain) {
  thread_local std::size_t calls = 0;
  int level = 0;
  for (const std::size_t i : next_order(calls))
    level = call<int (*)(nvtxDomainHandle_t)>(recorders.at(i), NVTX_CB_MODULE_CORE2,
                                              NVTX_CBID_CORE2_DomainRangePop, domain_of(domain, i));
  return level;
}

nvtxResourceHandle_t create_resource(nvtxDomainHandle_t domain,
                                     nvtxResourceAttributes_t* attributes) {
  return handles_of<nvtxResourceHandle_t>([&](std::size_t i) {
    return call<nvtxResourceHandle_t (*)(nvtxDomainHandle_t, nvtxResourceAttributes_t*)>(
        recorders.at(i), NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainResourceCreate,
        domain_of(domain, i), attributes);
  });
}

void destroy_resource(nvtxResourceHandle_t resource) {
  for (std::size_t i = 0; i < recorders.size(); ++i)
    call<void (*)(nvtxResourceHandle_t)>(recorders.at(i), NVTX_CB_MODULE_CORE2,
                                         NVTX_CBID_CORE2_DomainResourceDestroy,
                                         static_cast<nvtxResourceHandle_t>(handle(resource, i)));
}

void name_thread(std::uint32_t thread, const char* name) {
  for (const Recorder& recorder : recorders)
    call<void (*)(std::uint32_t, const char*)>(recorder, NVTX_CB_MODULE_CORE,
                                               NVTX_CBID_CORE_NameOsThreadA, thread, name);
}

void name_stream(cudaStream_t stream, const char* name) {
  for (const Recorder& recorder : recorders)
    call<void (*)(cudaStream_t, const char*)>(recorder, NVTX_CB_MODULE_CUDART,
                                              NVTX_CBID_CUDART_NameCudaStreamA, stream, name);
}

// ---- How recorders and program come together

/// NVTX's, for the recorder that begins: with room of its own.
int own_functions(NvtxCallbackModule module, NvtxFunctionTable* table, unsigned* size) {
  NvtxFunctionTable programs = nullptr;
  unsigned programs_size = 0;
  const auto* const tables =
      static_cast<const NvtxExportTableCallbacks*>(program_tables(NVTX_ETID_CALLBACKS));
  if (tables->GetModuleFunctionTable(module, &programs, &programs_size) == 0) return 0;
  Recorder& recorder = *beginning;
  *size = programs_size < kFunctions ? programs_size : kFunctions;
  for (unsigned id = 0; id < *size; ++id)
    recorder.table.at(module).at(id) =
        programs[id] == nullptr ? nullptr : &recorder.functions.at(module).at(id);
  *table = recorder.table.at(module).data();
  return 1;
}

const void* own_tables(std::uint32_t id) {
  static constexpr NvtxExportTableCallbacks callbacks{sizeof(callbacks), &own_functions};
  return id == NVTX_ETID_CALLBACKS ? &callbacks : program_tables(id);
}

void begin(Recorder& recorder, const char* path) {
  void* const library = path == nullptr ? nullptr : ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* const entry = library == nullptr ? nullptr : ::dlsym(library, "InitializeInjectionNvtx2");
  beginning = &recorder;
  if (entry == nullptr ||
      reinterpret_cast<int (*)(NvtxGetExportTableFunc_t)>(entry)(&own_tables) != 1) {
    std::fprintf(stderr, "two_recorders: %s does not begin\n",
                 path == nullptr ? "no recorder" : path);
    std::_Exit(99);
  }
}

template <class Function>
void attach(NvtxCallbackModule module, unsigned id, Function function) {
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  const auto* const tables =
      static_cast<const NvtxExportTableCallbacks*>(program_tables(NVTX_ETID_CALLBACKS));
  if (tables->GetModuleFunctionTable(module, &table, &size) != 0 && id < size)
    *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

[[gnu::constructor]] void take_the_place() {
  Dl_info here{};
  if (::dladdr(reinterpret_cast<void*>(&take_the_place), &here) != 0)
    ::setenv("NVTX_INJECTION64_PATH", here.dli_fname, 1);
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_tables) {
  program_tables = get_tables;
  begin(recorders[0], std::getenv("PENSTOCK_FIRST_RECORDER"));
  begin(recorders[1], std::getenv("CUDA_INJECTION64_PATH"));
  attach(NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainCreateA, &create_domain);
  attach(NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRegisterStringA, &register_name);
  attach(NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePushEx, &push);
  attach(NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePop, &pop);
  attach(NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainResourceCreate, &create_resource);
  attach(NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainResourceDestroy, &destroy_resource);
  attach(NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_NameOsThreadA, &name_thread);
  attach(NVTX_CB_MODULE_CUDART, NVTX_CBID_CUDART_NameCudaStreamA, &name_stream);
  return 1;
}
