// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ranges and names for a profiler's timeline, by NVTX, in a domain of their own ("penstock").
// Without a profiler a range costs a few branches that are always the same; with
// PENSTOCK_DISABLE_NVTX (for a whole program, or not at all) nothing.
//
//   const penstock::ScopedRange range(penstock::markers::fill, batch);   // shows the number
//
//   struct Augment { static constexpr const char* message = "augment"; };   // a name of one's own
//   const penstock::ScopedRange range(Augment{}, ticket.batch);
//
// Names are registered once for each program or shared library; nothing is formatted or copied.

#include <driver_types.h>

#include <concepts>
#include <cstdint>

#if !defined(PENSTOCK_DISABLE_NVTX) && !defined(NVTX_DISABLE)
#define PENSTOCK_HAS_NVTX 1
#include <nvtx3/nvToolsExtCudaRt.h>
#include <sys/syscall.h>
#include <unistd.h>
// As users include it, and only nvtx3::v1 is named below. With NVTX3_CPP_REQUIRE_EXPLICIT_VERSION
// here, a user's own include of the same header after this one would find its unversioned names
// missing.
#include <nvtx3/nvtx3.hpp>
#else
#define PENSTOCK_HAS_NVTX 0
#endif

namespace penstock {

/// A type that stands for a name: its static member `message` is the text.
template <class T>
concept MarkerName = requires {
  { T::message } -> std::convertible_to<const char*>;
};

namespace markers {

struct Fill {
  static constexpr const char* message = "fill";
};
struct WaitForRoom {
  static constexpr const char* message = "wait for room";
};
struct WaitForMemory {
  static constexpr const char* message = "wait for memory";
};
struct Copy {
  static constexpr const char* message = "copy";
};
struct Next {
  static constexpr const char* message = "next";
};
struct Readback {
  static constexpr const char* message = "readback";
};

inline constexpr Fill fill{};                      ///< a worker runs the source
inline constexpr WaitForRoom wait_for_room{};      ///< a worker waits until a batch is taken
inline constexpr WaitForMemory wait_for_memory{};  ///< a worker waits for pinned memory
inline constexpr Copy copy{};                      ///< the copy of a batch is put on its stream
inline constexpr Next next{};                      ///< the consumer asks for a batch
inline constexpr Readback readback{};              ///< a result is handed to its callback

}  // namespace markers

#if PENSTOCK_HAS_NVTX

namespace detail {

struct MarkerDomain {
  static constexpr const char* name = "penstock";
};

/// NVTX sets itself up in the first call of a process, in a way that ThreadSanitizer takes for a
/// race when two threads make it at once. So every first call goes through one static's guard.
inline void set_up_markers() noexcept {
  static_cast<void>(nvtx3::v1::domain::get<MarkerDomain>());
}

}  // namespace detail

/// Shows the time from construction to destruction, on this thread, under a name and with a number
/// (a batch, an index). Ranges of one thread nest. Does not throw.
class [[nodiscard]] ScopedRange {
 public:
  template <MarkerName Name>
  ScopedRange(Name, std::uint64_t payload) noexcept
      : range_(nvtx3::v1::event_attributes(
            nvtx3::v1::registered_string_in<detail::MarkerDomain>::get<Name>(),
            nvtx3::v1::payload(payload))) {}
  ScopedRange(const ScopedRange&) = delete;
  ScopedRange& operator=(const ScopedRange&) = delete;

 private:
  nvtx3::v1::scoped_range_in<detail::MarkerDomain> range_;
};

namespace markers {

/// Names the calling thread, and `stream`, in a profiler. The text is copied.
inline void name_this_thread(const char* name) noexcept {
  detail::set_up_markers();
  nvtxNameOsThreadA(static_cast<std::uint32_t>(::syscall(SYS_gettid)), name);
}
inline void name_stream(cudaStream_t stream, const char* name) noexcept {
  detail::set_up_markers();
  nvtxNameCudaStreamA(stream, name);
}

/// Names `stream` for this object's life, which has to end before the stream does. A trace that
/// begins meanwhile knows the name; one that name_stream gave it knows only if it is there already,
/// since NVTX is not told when that stream is gone. Any thread. The text is copied.
class [[nodiscard]] StreamName {
 public:
  StreamName(cudaStream_t stream, const char* name) noexcept {
    name_stream(stream, name);
    nvtxResourceAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_RESOURCE_ATTRIB_STRUCT_SIZE;
    attributes.identifierType = NVTX_RESOURCE_TYPE_CUDART_STREAM;
    attributes.identifier.pValue = stream;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name;
    resource_ = nvtxDomainResourceCreate(nvtx3::v1::domain::get<penstock::detail::MarkerDomain>(),
                                         &attributes);
  }
  ~StreamName() { nvtxDomainResourceDestroy(resource_); }
  StreamName(const StreamName&) = delete;
  StreamName& operator=(const StreamName&) = delete;

 private:
  nvtxResourceHandle_t resource_;
};

}  // namespace markers

#else

class [[nodiscard]] ScopedRange {
 public:
  template <MarkerName Name>
  ScopedRange(Name, std::uint64_t) noexcept {}
  ~ScopedRange() {}  // Not trivial: a range that is never read is no unused variable.
  ScopedRange(const ScopedRange&) = delete;
  ScopedRange& operator=(const ScopedRange&) = delete;
};

namespace markers {

inline void name_this_thread(const char*) noexcept {}
inline void name_stream(cudaStream_t, const char*) noexcept {}

class [[nodiscard]] StreamName {
 public:
  StreamName(cudaStream_t, const char*) noexcept {}
  ~StreamName() {}
  StreamName(const StreamName&) = delete;
  StreamName& operator=(const StreamName&) = delete;
};

}  // namespace markers

#endif

}  // namespace penstock
