// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <penstock/markers.hpp>

#if !defined(PENSTOCK_DISABLE_NVTX) && !defined(NVTX_DISABLE)
#include <nvtx3/nvToolsExtCudaRt.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <new>
#include <set>
#include <string>

namespace penstock::inline PENSTOCK_ABI {
namespace detail {

/// Returns the handle of a domain, which is created once for each name. Returns null if no profiler
/// that knows domains is attached, or if there is no memory. NVTX initialises itself in the first
/// call of a process, and ThreadSanitizer reports a race if two threads make that call. Therefore
/// each NVTX call in this file follows one that was made under this lock.
inline nvtxDomainHandle_t marker_domain(const char* name, const MarkerCategory& category) noexcept {
  struct Domain {
    nvtxDomainHandle_t handle = nullptr;
    std::set<std::uint32_t> named = {};  // the numbers of the categories whose names NVTX already
                                         // has
  };
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  try {
    static auto& domains = *new std::map<std::string, Domain>;  // never destroyed, since threads
                                                                // may use it until the process ends
    const auto [found, is_new] = domains.try_emplace(name);
    auto& [handle, named] = found->second;
    if (is_new) handle = nvtxDomainCreateA(name);
    if (handle != nullptr && category.number != 0 && named.insert(category.number).second)
      nvtxDomainNameCategoryA(handle, category.number, category.name);
    return handle;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
/// Returns the domain of penstock's ranges and streams.
inline nvtxDomainHandle_t marker_domain() noexcept {
  static const nvtxDomainHandle_t domain = marker_domain(own_domain, {});
  return domain;
}

PENSTOCK_INLINE Marker make_marker(const char* domain, const char* name,
                                   const MarkerCategory& category) noexcept {
  const nvtxDomainHandle_t handle =
      marker_domain(domain == nullptr ? own_domain : domain, category);
  if (handle == nullptr) return {};
  return {handle, nvtxDomainRegisterStringA(handle, name == nullptr ? "" : name), category.number,
          category.color};
}

inline nvtxEventAttributes_t event_attributes(const Marker& marker,
                                              std::uint64_t payload) noexcept {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.category = marker.category;
  attributes.colorType = marker.color == 0 ? NVTX_COLOR_UNKNOWN : NVTX_COLOR_ARGB;
  attributes.color = marker.color;
  attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  attributes.payload.ullValue = payload;
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = static_cast<nvtxStringHandle_t>(marker.name);
  return attributes;
}

PENSTOCK_INLINE void begin_range(const Marker& marker, std::uint64_t payload) noexcept {
  const nvtxEventAttributes_t attributes = event_attributes(marker, payload);
  nvtxDomainRangePushEx(static_cast<nvtxDomainHandle_t>(marker.domain), &attributes);
}

PENSTOCK_INLINE void mark(const Marker& marker, std::uint64_t payload) noexcept {
  if (marker.domain == nullptr) return;
  const nvtxEventAttributes_t attributes = event_attributes(marker, payload);
  nvtxDomainMarkEx(static_cast<nvtxDomainHandle_t>(marker.domain), &attributes);
}

PENSTOCK_INLINE void end_range(MarkerHandle domain) noexcept {
  nvtxDomainRangePop(static_cast<nvtxDomainHandle_t>(domain));
}

}  // namespace detail

namespace markers {

PENSTOCK_INLINE void name_this_thread(const char* name) noexcept {
  static_cast<void>(detail::marker_domain());
  nvtxNameOsThreadA(static_cast<std::uint32_t>(::syscall(SYS_gettid)), name);
}
PENSTOCK_INLINE void name_stream(StreamRef stream, const char* name) noexcept {
  static_cast<void>(detail::marker_domain());
  nvtxNameCudaStreamA(stream, name);
}

PENSTOCK_INLINE StreamName::StreamName(StreamRef stream, const char* name) noexcept {
  name_stream(stream, name);
  nvtxResourceAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_RESOURCE_ATTRIB_STRUCT_SIZE;
  attributes.identifierType = NVTX_RESOURCE_TYPE_CUDART_STREAM;
  attributes.identifier.pValue = static_cast<cudaStream_t>(stream);
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  resource_ = nvtxDomainResourceCreate(detail::marker_domain(), &attributes);
}
PENSTOCK_INLINE StreamName::~StreamName() {
  nvtxDomainResourceDestroy(static_cast<nvtxResourceHandle_t>(resource_));
}

}  // namespace markers
}  // namespace penstock

#else

namespace penstock::inline PENSTOCK_ABI {

PENSTOCK_INLINE detail::Marker detail::make_marker(const char*, const char*,
                                                   const MarkerCategory&) noexcept {
  return {};
}
PENSTOCK_INLINE void detail::begin_range(const Marker&, std::uint64_t) noexcept {}
PENSTOCK_INLINE void detail::end_range(MarkerHandle) noexcept {}
PENSTOCK_INLINE void detail::mark(const Marker&, std::uint64_t) noexcept {}

PENSTOCK_INLINE void markers::name_this_thread(const char*) noexcept {}
PENSTOCK_INLINE void markers::name_stream(StreamRef, const char*) noexcept {}
PENSTOCK_INLINE markers::StreamName::StreamName(StreamRef, const char*) noexcept
    : resource_(nullptr) {}
PENSTOCK_INLINE markers::StreamName::~StreamName() = default;

}  // namespace penstock

#endif
