// SPDX-License-Identifier: Apache-2.0

// A tool can attach to each function in NVTX's function table; functions without an implementation
// here stay empty. Each shared library of a program may contain an NVTX of its own; all of them
// call this file.

#include "nvtx.hpp"

#include <pthread.h>
#include <unistd.h>

#include <cstdint>

// NVTX's headers define this variable as weak and null. This file sets its value (below), so it has
// to declare the variable.
#define NVTX_STATIC_INJECTION_IMPL
extern "C" [[gnu::visibility("default")]] int (
    *InitializeInjectionNvtx2_fnptr)(  // NOLINT(readability-identifier-naming)
    const void* (*)(std::uint32_t));
#include <nvtx3/nvToolsExtCudaRt.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "ranges.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

Text& default_domain() {
  static Text& domain = *new Text("");
  return domain;
}

Text& domain_of(nvtxDomainHandle_t handle) {
  return handle == nullptr ? default_domain() : *reinterpret_cast<Text*>(handle);
}

std::string narrow(const wchar_t* text) {
  std::string narrowed;
  for (; text != nullptr && *text != L'\0'; ++text)
    narrowed += *text > 0 && *text < 0x80 ? static_cast<char>(*text) : '?';
  return narrowed;
}

std::string text_of(const char* text) {
  return text == nullptr ? std::string() : std::string(text);
}

// ---- Names

// These are limits, because a program may create and name any number.
constexpr std::size_t kStreamNames = 1024, kThreadNames = 1024;

struct StreamName {
  cudaStream_t stream;
  std::string name;
};

struct Names {
  std::mutex mutex;
  EventSink* sink = nullptr;
  const Backend* backend = nullptr;
  std::unordered_map<std::uint64_t, std::string> threads;
  // At this number, the names of ended threads are removed.
  std::size_t threads_at_most = kThreadNames;
  std::deque<StreamName> streams;  // streams that may no longer exist; the latest names last
  std::map<std::uint64_t, StreamName> kept;  // existing streams: NVTX resources by their number
  std::uint64_t last_kept = 0;
};

Names& names();

/// A forked child does not belong to the session, as for ranges.
void watch_forks_for_names() {
  const auto lock = [] { names().mutex.lock(); };
  const auto unlock = [] { names().mutex.unlock(); };
  const auto forget_session = [] {
    names().sink = nullptr;
    names().backend = nullptr;
    names().mutex.unlock();
  };
  ::pthread_atfork(lock, unlock, forget_session);
}

Names& names() {
  static Names& all = []() -> Names& {
    watch_forks_for_names();
    return *new Names;
  }();
  return all;
}

bool is_alive(std::uint64_t thread) {
  return ::access(("/proc/self/task/" + std::to_string(thread)).c_str(), F_OK) == 0;
}

// The lock is held in these four functions.

void forget_ended_threads(Names& all) {
  std::erase_if(all.threads, [](const auto& thread) { return !is_alive(thread.first); });
  all.threads_at_most = std::max(kThreadNames, 2 * all.threads.size());
}

void tell(const Names& all, const StreamName& named) {
  int device = 0;
  std::uint64_t id = 0;
  if (all.backend->identify(named.stream, &device, &id))
    all.sink->name_stream(device, id, named.name);
}

void tell_all(Names& all) {
  forget_ended_threads(all);
  for (const auto& [thread, name] : all.threads) all.sink->name_thread(thread, name);
  for (const auto& [number, named] : all.kept) tell(all, named);
  if (!all.backend->identifies_gone_streams()) return;
  for (const StreamName& named : all.streams) tell(all, named);
}

void forget_stream(Names& all, cudaStream_t stream) {
  std::erase_if(all.streams, [&](const StreamName& known) { return known.stream == stream; });
}

void name_thread(std::uint64_t thread, std::string name) {
  Names& all = names();
  const std::lock_guard lock(all.mutex);
  if (all.sink != nullptr) all.sink->name_thread(thread, name);
  if (all.threads.size() >= all.threads_at_most) forget_ended_threads(all);
  all.threads[thread] = std::move(name);
}

/// NVTX does not tell when such a stream is destroyed.
void name_stream(cudaStream_t stream, std::string name) {
  Names& all = names();
  const std::lock_guard lock(all.mutex);
  forget_stream(all, stream);
  if (all.streams.size() == kStreamNames) all.streams.pop_front();
  const StreamName& named = all.streams.emplace_back(StreamName{stream, std::move(name)});
  if (all.sink != nullptr) tell(all, named);
}

// A program that is about to destroy a stream ends the resource first. That call waits here while a
// session that begins asks the driver for the stream, so the session never asks for a destroyed
// stream.

nvtxResourceHandle_t keep_stream(cudaStream_t stream, std::string name) {
  Names& all = names();
  const std::lock_guard lock(all.mutex);
  const std::uint64_t number = ++all.last_kept;
  const StreamName& named =
      all.kept.emplace(number, StreamName{stream, std::move(name)}).first->second;
  if (all.sink != nullptr) tell(all, named);
  return reinterpret_cast<nvtxResourceHandle_t>(number);
}

void end_kept_stream(nvtxResourceHandle_t resource) {
  Names& all = names();
  const std::lock_guard lock(all.mutex);
  const auto found = all.kept.find(reinterpret_cast<std::uintptr_t>(resource));
  if (found == all.kept.end()) return;
  forget_stream(all, found->second.stream);
  all.kept.erase(found);
}

// ---- Functions that NVTX calls

template <class Signed>
std::uint64_t not_negative(Signed value) {
  return value > Signed{} ? static_cast<std::uint64_t>(value) : 0;
}

std::uint64_t payload_of(const nvtxEventAttributes_t& attributes) {
  const auto& payload = attributes.payload;
  switch (attributes.payloadType) {
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT64:
      return payload.ullValue;
    case NVTX_PAYLOAD_TYPE_INT64:
      return not_negative(payload.llValue);
    case NVTX_PAYLOAD_TYPE_DOUBLE:
      return not_negative(payload.dValue);
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT32:
      return payload.uiValue;
    case NVTX_PAYLOAD_TYPE_INT32:
      return not_negative(payload.iValue);
    case NVTX_PAYLOAD_TYPE_FLOAT:
      return not_negative(payload.fValue);
    default:
      return 0;
  }
}

std::string text_of(std::int32_t type, const nvtxMessageValue_t& message) {
  switch (type) {
    case NVTX_MESSAGE_TYPE_ASCII:
      return text_of(message.ascii);
    case NVTX_MESSAGE_TYPE_UNICODE:
      return narrow(message.unicode);
    case NVTX_MESSAGE_TYPE_REGISTERED:
      return reinterpret_cast<const Text*>(message.registered)->text();
    default:
      return {};
  }
}

OpenRange range_of(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  OpenRange range;
  range.domain = &domain_of(domain);
  if (attributes == nullptr) return range;
  range.payload = payload_of(*attributes);
  if (attributes->colorType == NVTX_COLOR_ARGB) range.color = attributes->color;
  if (attributes->messageType == NVTX_MESSAGE_TYPE_REGISTERED)
    range.registered = reinterpret_cast<Text*>(attributes->message.registered);
  else
    range.text = text_of(attributes->messageType, attributes->message);
  return range;
}

/// Registers streams only; returns null for other resources.
nvtxResourceHandle_t begin_resource(nvtxDomainHandle_t, nvtxResourceAttributes_t* attributes) {
  if (attributes == nullptr || attributes->identifierType != NVTX_RESOURCE_TYPE_CUDART_STREAM)
    return nullptr;
  const void* const stream = attributes->identifier.pValue;
  return keep_stream(static_cast<cudaStream_t>(const_cast<void*>(stream)),
                     text_of(attributes->messageType, attributes->message));
}

OpenRange range_of(std::string text) {
  OpenRange range;
  range.domain = &default_domain();
  range.text = std::move(text);
  return range;
}

using Table = NvtxFunctionTable;

template <class Function>
void attach(Table table, unsigned size, unsigned id, Function function) {
  if (id < size && table[id] != nullptr)
    *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

void attach_core(Table table, unsigned size) {
  using Attributes = const nvtxEventAttributes_t*;
  attach(
      table, size, NVTX_CBID_CORE_RangePushEx,
      +[](Attributes attributes) { return push_range(range_of(nullptr, attributes)); });
  attach(
      table, size, NVTX_CBID_CORE_RangePushA,
      +[](const char* text) { return push_range(range_of(text_of(text))); });
  attach(
      table, size, NVTX_CBID_CORE_RangePushW,
      +[](const wchar_t* text) { return push_range(range_of(narrow(text))); });
  attach(
      table, size, NVTX_CBID_CORE_RangePop, +[] { return pop_range(default_domain()); });
  attach(
      table, size, NVTX_CBID_CORE_RangeStartEx,
      +[](Attributes attributes) { return start_range(range_of(nullptr, attributes)); });
  attach(
      table, size, NVTX_CBID_CORE_RangeStartA,
      +[](const char* text) { return start_range(range_of(text_of(text))); });
  attach(
      table, size, NVTX_CBID_CORE_RangeStartW,
      +[](const wchar_t* text) { return start_range(range_of(narrow(text))); });
  attach(
      table, size, NVTX_CBID_CORE_RangeEnd, +[](nvtxRangeId_t id) { end_range(id); });
  attach(
      table, size, NVTX_CBID_CORE_NameOsThreadA,
      +[](std::uint32_t thread, const char* name) { name_thread(thread, text_of(name)); });
  attach(
      table, size, NVTX_CBID_CORE_NameOsThreadW,
      +[](std::uint32_t thread, const wchar_t* name) { name_thread(thread, narrow(name)); });
}

struct Texts {
  std::mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<Text>> known;
};

/// The objects behind one kind of handle. A forked child continues to use them.
template <class Handle>
Texts& texts() {
  static Texts& all = []() -> Texts& {
    const auto unlock = [] { texts<Handle>().mutex.unlock(); };
    ::pthread_atfork([] { texts<Handle>().mutex.lock(); }, unlock, unlock);
    return *new Texts;
  }();
  return all;
}

/// The text itself is the handle; there is one object per text.
template <class Handle>
Handle registered(std::string text) {
  Texts& all = texts<Handle>();
  const std::lock_guard lock(all.mutex);
  std::unique_ptr<Text>& known = all.known[text];
  if (known == nullptr) known = std::make_unique<Text>(std::move(text));
  return reinterpret_cast<Handle>(known.get());
}

/// These are made before a second thread exists. Otherwise a child that is forked while another
/// thread makes them would wait for that thread forever.
[[maybe_unused]] const bool all_made = [] {
  default_domain();
  names();
  texts<nvtxDomainHandle_t>();
  texts<nvtxStringHandle_t>();
  return true;
}();

void attach_domains(Table table, unsigned size) {
  using Domain = nvtxDomainHandle_t;
  using Attributes = const nvtxEventAttributes_t*;
  attach(
      table, size, NVTX_CBID_CORE2_DomainRangePushEx, +[](Domain domain, Attributes attributes) {
        return push_range(range_of(domain, attributes));
      });
  attach(
      table, size, NVTX_CBID_CORE2_DomainRangePop,
      +[](Domain domain) { return pop_range(domain_of(domain)); });
  attach(
      table, size, NVTX_CBID_CORE2_DomainRangeStartEx, +[](Domain domain, Attributes attributes) {
        return start_range(range_of(domain, attributes));
      });
  attach(
      table, size, NVTX_CBID_CORE2_DomainRangeEnd,
      +[](Domain, nvtxRangeId_t id) { end_range(id); });
  attach(
      table, size, NVTX_CBID_CORE2_DomainRegisterStringA,
      +[](Domain, const char* text) { return registered<nvtxStringHandle_t>(text_of(text)); });
  attach(
      table, size, NVTX_CBID_CORE2_DomainRegisterStringW,
      +[](Domain, const wchar_t* text) { return registered<nvtxStringHandle_t>(narrow(text)); });
  attach(table, size, NVTX_CBID_CORE2_DomainResourceCreate, &begin_resource);
  attach(table, size, NVTX_CBID_CORE2_DomainResourceDestroy, &end_kept_stream);
  attach(
      table, size, NVTX_CBID_CORE2_DomainCreateA,
      +[](const char* name) { return registered<Domain>(text_of(name)); });
  attach(
      table, size, NVTX_CBID_CORE2_DomainCreateW,
      +[](const wchar_t* name) { return registered<Domain>(narrow(name)); });
}

/// Streams of the runtime and of the driver are the same.
void attach_streams(Table table, unsigned size, unsigned ascii, unsigned unicode) {
  attach(
      table, size, ascii, +[](void* stream, const char* name) {
        name_stream(static_cast<cudaStream_t>(stream), text_of(name));
      });
  attach(
      table, size, unicode, +[](void* stream, const wchar_t* name) {
        name_stream(static_cast<cudaStream_t>(stream), narrow(name));
      });
}

}  // namespace

// ---- For sessions

void start_names(EventSink& sink, const Backend& backend) {
  Names& all = names();
  const std::lock_guard lock(all.mutex);
  all.sink = &sink;
  all.backend = &backend;
  tell_all(all);
}

void tell_names_again() {
  Names& all = names();
  const std::lock_guard lock(all.mutex);
  if (all.sink != nullptr) tell_all(all);
}

void stop_names() {
  Names& all = names();
  const std::lock_guard lock(all.mutex);
  all.sink = nullptr;
  all.backend = nullptr;
}

}  // namespace penstock::trace::detail

// ---- Symbols that NVTX looks for

namespace {

/// Returns 1: NVTX calls the attached functions from now on.
int initialise(NvtxGetExportTableFunc_t get_export_table) {
  using namespace penstock::trace::detail;
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  if (callbacks == nullptr) return 0;
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) != 0)
    attach_core(table, size);
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) != 0)
    attach_domains(table, size);
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CUDART, &table, &size) != 0)
    attach_streams(table, size, NVTX_CBID_CUDART_NameCudaStreamA, NVTX_CBID_CUDART_NameCudaStreamW);
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CUDA, &table, &size) != 0)
    attach_streams(table, size, NVTX_CBID_CUDA_NameCuStreamA, NVTX_CBID_CUDA_NameCuStreamW);
  return 1;
}

}  // namespace

extern "C" {
/// This is for a program that is linked with this library. A library that NVTX_INJECTION64_PATH
/// names has priority.
#ifdef NVTX_DYNAMIC_EXPORT  // The headers since CUDA 12.9 leave it to this file.
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = &initialise;
#else  // The headers before CUDA 12.9 define it all the same: it gets its value when the program
       // starts.
[[maybe_unused]] static const bool is_set = (InitializeInjectionNvtx2_fnptr = &initialise, true);
#endif
/// This is for an injected library.
[[gnu::visibility("default")]] int
InitializeInjectionNvtx2(  // NOLINT(readability-identifier-naming)
    NvtxGetExportTableFunc_t get_export_table) {
  return initialise(get_export_table);
}
}
