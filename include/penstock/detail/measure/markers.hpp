// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <penstock/markers.hpp>

#if !defined(PENSTOCK_DISABLE_NVTX) && !defined(NVTX_DISABLE)
#include <nvtx3/nvToolsExtCudaRt.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace penstock {
namespace detail {

/// NVTX initialises itself in the first call of a process. ThreadSanitizer reports a race if two
/// threads make that call, so each of them first initialises this static.
inline nvtxDomainHandle_t marker_domain() noexcept {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("penstock");
  return domain;
}

PENSTOCK_INLINE MarkerHandle register_marker(const char* name) noexcept {
  return nvtxDomainRegisterStringA(marker_domain(), name);
}

inline nvtxEventAttributes_t event_attributes(MarkerHandle name, std::uint64_t payload) noexcept {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  attributes.payload.ullValue = payload;
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = static_cast<nvtxStringHandle_t>(const_cast<void*>(name));
  return attributes;
}

PENSTOCK_INLINE void begin_range(MarkerHandle name, std::uint64_t payload) noexcept {
  const nvtxEventAttributes_t attributes = event_attributes(name, payload);
  nvtxDomainRangePushEx(marker_domain(), &attributes);
}

PENSTOCK_INLINE void mark(MarkerHandle name, std::uint64_t payload) noexcept {
  const nvtxEventAttributes_t attributes = event_attributes(name, payload);
  nvtxDomainMarkEx(marker_domain(), &attributes);
}

PENSTOCK_INLINE void end_range() noexcept {
  nvtxDomainRangePop(marker_domain());
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

namespace penstock {

PENSTOCK_INLINE detail::MarkerHandle detail::register_marker(const char*) noexcept {
  return nullptr;
}
PENSTOCK_INLINE void detail::begin_range(MarkerHandle, std::uint64_t) noexcept {}
PENSTOCK_INLINE void detail::end_range() noexcept {}
PENSTOCK_INLINE void detail::mark(MarkerHandle, std::uint64_t) noexcept {}

PENSTOCK_INLINE void markers::name_this_thread(const char*) noexcept {}
PENSTOCK_INLINE void markers::name_stream(StreamRef, const char*) noexcept {}
PENSTOCK_INLINE markers::StreamName::StreamName(StreamRef, const char*) noexcept
    : resource_(nullptr) {}
PENSTOCK_INLINE markers::StreamName::~StreamName() = default;

}  // namespace penstock

#endif
