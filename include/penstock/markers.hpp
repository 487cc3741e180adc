// SPDX-License-Identifier: Apache-2.0
#pragma once

// NVTX ranges and names for a profiler's timeline, in the domain "penstock". Without a profiler, a
// range costs a few well-predicted branches. With PENSTOCK_DISABLE_NVTX, a ScopedRange compiles to
// nothing. The library's own ranges are removed if the library (with PENSTOCK_HEADER_ONLY: the
// program) is compiled with it.
//
//   const penstock::ScopedRange range(penstock::markers::fill, ticket.batch);   // with a number
//
//   struct Augment { static constexpr const char* message = "augment"; };   // your own name
//   const penstock::ScopedRange inner(Augment{}, ticket.batch);
//
// A Prefetcher with PrefetcherOptions::tune marks each change, with the new number, as in "tune
// workers: the source cannot keep up".
//
// Names are registered once per program or shared library; no text is formatted or copied.

#include <driver_types.h>

#include <concepts>
#include <cstdint>
#include <penstock/detail/inline.hpp>
#include <penstock/stream_ref.hpp>

namespace penstock {

/// A type that represents a name: its static member `message` is the text.
template <class T>
concept MarkerName = requires {
  { T::message } -> std::convertible_to<const char*>;
};

namespace markers {

/// The name of `fill`.
struct Fill {
  static constexpr const char* message = "fill";  ///< the text in the profiler
};
/// The name of `wait_for_room`.
struct WaitForRoom {
  static constexpr const char* message = "wait for room";  ///< the text in the profiler
};
/// The name of `wait_for_memory`.
struct WaitForMemory {
  static constexpr const char* message = "wait for memory";  ///< the text in the profiler
};
/// The name of `copy`.
struct Copy {
  static constexpr const char* message = "copy";  ///< the text in the profiler
};
/// The name of `next`.
struct Next {
  static constexpr const char* message = "next";  ///< the text in the profiler
};
/// The name of `readback`.
struct Readback {
  static constexpr const char* message = "readback";  ///< the text in the profiler
};
/// The name of `stall`.
struct Stall {
  static constexpr const char* message = "stall";  ///< the text in the profiler
};

inline constexpr Fill fill{};                      ///< a worker runs the source
inline constexpr WaitForRoom wait_for_room{};      ///< a worker waits until a batch is taken
inline constexpr WaitForMemory wait_for_memory{};  ///< a worker waits for pinned memory
inline constexpr Copy copy{};                      ///< the copy of a batch is put on its stream
inline constexpr Next next{};                      ///< the consumer requests a batch
inline constexpr Readback readback{};              ///< a result is passed to its callback
inline constexpr Stall stall{};                    ///< `next` is about to throw StallError

}  // namespace markers

namespace detail {

using MarkerHandle = const void*;

MarkerHandle register_marker(const char* name) noexcept;
void begin_range(MarkerHandle name, std::uint64_t payload) noexcept;
void end_range() noexcept;
/// A moment on this thread's timeline.
void mark(MarkerHandle name, std::uint64_t payload) noexcept;

/// Marks the time from its construction to its destruction on this thread, with a name and a number
/// (of a batch, for example). Ranges of a thread nest. Does not throw.
class [[nodiscard]] NvtxRange {
 public:
  template <MarkerName Name>
  NvtxRange(Name, std::uint64_t payload) noexcept {
    static const MarkerHandle name = register_marker(Name::message);
    begin_range(name, payload);
  }
  ~NvtxRange() { end_range(); }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

class [[nodiscard]] NoRange {
 public:
  template <MarkerName Name>
  NoRange(Name, std::uint64_t) noexcept {}
  ~NoRange() {}  // Not trivial, so that compilers do not warn about an unused variable.
  NoRange(const NoRange&) = delete;
  NoRange& operator=(const NoRange&) = delete;
};

}  // namespace detail

/// Marks the time from its construction to its destruction on this thread, with a MarkerName and a
/// number (of a batch, for example). Ranges of a thread nest. Does not throw.
#if defined(PENSTOCK_DISABLE_NVTX) || defined(NVTX_DISABLE)
using ScopedRange = detail::NoRange;
#else
using ScopedRange = detail::NvtxRange;
#endif

namespace markers {

/// Names the calling thread in a profiler. The text is copied.
void name_this_thread(const char* name) noexcept;
/// The same for `stream`, in traces that are running now. A StreamName is known to later ones too.
void name_stream(StreamRef stream, const char* name) noexcept;

/// Names `stream` for the lifetime of this object, which must end before the stream is destroyed.
/// A trace that starts during that time knows the name. A name given by name_stream is known only
/// to a trace that is already running, since NVTX cannot learn when that stream is destroyed. Any
/// thread may use it. The text is copied.
class [[nodiscard]] StreamName {
 public:
  /// Names `stream` from now on.
  StreamName(StreamRef stream, const char* name) noexcept;
  ~StreamName();
  StreamName(const StreamName&) = delete;
  StreamName& operator=(const StreamName&) = delete;

 private:
  [[maybe_unused]] void* resource_;
};

}  // namespace markers
}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/measure/markers.hpp>
#endif
