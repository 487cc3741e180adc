// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ranges and names for a profiler's timeline, by NVTX, in a domain of their own ("penstock").
// Without a profiler a range costs a few branches that are always the same. In a source that is
// compiled with PENSTOCK_DISABLE_NVTX a ScopedRange is nothing at all; what penstock itself marks
// is left out where the library, or with PENSTOCK_HEADER_ONLY the program, is compiled so.
//
//   const penstock::ScopedRange range(penstock::markers::fill, ticket.batch);   // shows the number
//
//   struct Augment { static constexpr const char* message = "augment"; };   // a name of one's own
//   const penstock::ScopedRange inner(Augment{}, ticket.batch);
//
// Names are registered once for each program or shared library; nothing is formatted or copied.

#include <driver_types.h>

#include <concepts>
#include <cstdint>
#include <penstock/detail/inline.hpp>

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

namespace detail {

using MarkerHandle = const void*;

MarkerHandle register_marker(const char* name) noexcept;
void begin_range(MarkerHandle name, std::uint64_t payload) noexcept;
void end_range() noexcept;

/// Shows the time from construction to destruction, on this thread, under a name and with a number
/// (a batch, an index). Ranges of one thread nest. Does not throw.
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
  ~NoRange() {}  // Not trivial: a range that is never read is no unused variable.
  NoRange(const NoRange&) = delete;
  NoRange& operator=(const NoRange&) = delete;
};

}  // namespace detail

#if defined(PENSTOCK_DISABLE_NVTX) || defined(NVTX_DISABLE)
using ScopedRange = detail::NoRange;
#else
using ScopedRange = detail::NvtxRange;
#endif

namespace markers {

/// Names the calling thread, and `stream`, in a profiler. The text is copied.
void name_this_thread(const char* name) noexcept;
void name_stream(cudaStream_t stream, const char* name) noexcept;

/// Names `stream` for this object's life, which has to end before the stream does. A trace that
/// begins meanwhile knows the name; one that name_stream gave it knows only if it is there already,
/// since NVTX is not told when that stream is gone. Any thread. The text is copied.
class [[nodiscard]] StreamName {
 public:
  StreamName(cudaStream_t stream, const char* name) noexcept;
  ~StreamName();
  StreamName(const StreamName&) = delete;
  StreamName& operator=(const StreamName&) = delete;

 private:
  void* resource_;
};

}  // namespace markers
}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/measure/markers.hpp>
#endif
