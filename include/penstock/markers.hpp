// SPDX-License-Identifier: Apache-2.0
#pragma once

// NVTX ranges and names for a profiler's timeline. Without a profiler, a range costs a comparison
// at its begin and one at its end. With PENSTOCK_DISABLE_NVTX, a ScopedRange compiles to nothing.
// The library's own ranges are removed if the library (with PENSTOCK_HEADER_ONLY: the program) is
// compiled with it.
//
//   const penstock::ScopedRange range(penstock::markers::fill, ticket.batch);   // with a number
//
//   struct Augment {   // your own name, with a category and a domain if you like
//     static constexpr const char* message = "augment";
//     static constexpr penstock::MarkerCategory category = penstock::markers::category::fill;
//     static constexpr const char* domain = "my trainer";
//   };
//   const penstock::ScopedRange inner(Augment{}, ticket.batch);
//
//   const std::string text = "epoch " + std::to_string(3);   // a name of run time
//   const penstock::RangeName epoch(text.c_str());
//   const penstock::ScopedRange outer(epoch, 3);
//
// A category has a name and a colour: profilers draw the ranges of a category in its colour. A
// profiler shows the ranges of each domain apart. Ranges are in the domain "penstock" unless their
// name says another one.
//
// A Prefetcher with PrefetcherOptions::tune marks each change, with the new number, as in "tune
// workers: the source cannot keep up".
//
// Names are registered once per program or shared library; a range formats and copies no text.

#include <driver_types.h>

#include <concepts>
#include <cstdint>
#include <penstock/detail/inline.hpp>
#include <penstock/stream_ref.hpp>

namespace penstock::inline PENSTOCK_ABI {

/// The category of ranges: profilers show its name, and draw the ranges in its colour.
struct MarkerCategory {
  /// NVTX's number of it. Another category of the same domain has another number; penstock's own
  /// are below 100. 0: no category.
  std::uint32_t number = 0;
  const char* name = "";    ///< the text in the profiler; may be a temporary one
  std::uint32_t color = 0;  ///< alpha, red, green and blue, as in 0xff4e79a7; 0: the profiler's own
};

/// A type that represents a name: its static member `message` is the text. It may have two members
/// more: `category`, a MarkerCategory, and `domain`, a const char* (without it: "penstock").
template <class T>
concept MarkerName = requires {
  { T::message } -> std::convertible_to<const char*>;
};

namespace markers {

/// The categories of a training loop. People who see red and green alike can tell their colours.
namespace category {
inline constexpr MarkerCategory get_batch{1, "get batch", 0xff4e79a7};  ///< a batch is requested
inline constexpr MarkerCategory copy{2, "copy", 0xfff28e2b};            ///< data go to the device
inline constexpr MarkerCategory forward{3, "forward", 0xff59a14f};      ///< the forward pass
inline constexpr MarkerCategory loss{4, "loss", 0xffb07aa1};            ///< the loss is computed
inline constexpr MarkerCategory backward{5, "backward", 0xff3fb6b2};    ///< the backward pass
inline constexpr MarkerCategory optimizer{6, "optimizer", 0xffe3b72f};  ///< parameters change
inline constexpr MarkerCategory read{7, "read", 0xff9c755f};            ///< a result is read
inline constexpr MarkerCategory fill{8, "fill", 0xff7f8fe0};            ///< a batch is made
inline constexpr MarkerCategory wait{9, "wait", 0xffe687b5};            ///< a worker waits
inline constexpr MarkerCategory loop{10, "loop", 0xff7b8798};           ///< steps, epochs, a run
}  // namespace category

/// The name of `fill`.
struct Fill {
  static constexpr const char* message = "fill";              ///< the text in the profiler
  static constexpr MarkerCategory category = category::fill;  ///< and its colour
};
/// The name of `wait_for_room`.
struct WaitForRoom {
  static constexpr const char* message = "wait for room";     ///< the text in the profiler
  static constexpr MarkerCategory category = category::wait;  ///< and its colour
};
/// The name of `wait_for_memory`.
struct WaitForMemory {
  static constexpr const char* message = "wait for memory";   ///< the text in the profiler
  static constexpr MarkerCategory category = category::wait;  ///< and its colour
};
/// The name of `copy`.
struct Copy {
  static constexpr const char* message = "copy";              ///< the text in the profiler
  static constexpr MarkerCategory category = category::copy;  ///< and its colour
};
/// The name of `next`.
struct Next {
  static constexpr const char* message = "next";                   ///< the text in the profiler
  static constexpr MarkerCategory category = category::get_batch;  ///< and its colour
};
/// The name of `readback`.
struct Readback {
  static constexpr const char* message = "readback";          ///< the text in the profiler
  static constexpr MarkerCategory category = category::read;  ///< and its colour
};
/// The name of `stall`.
struct Stall {
  static constexpr const char* message = "stall";             ///< the text in the profiler
  static constexpr MarkerCategory category = category::wait;  ///< and its colour
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

class NvtxRange;
using MarkerHandle = void*;

/// A name as the profiler knows it.
struct Marker {
  MarkerHandle domain = nullptr;  ///< null: no profiler asks for it
  MarkerHandle name = nullptr;
  std::uint32_t category = 0, color = 0;
};

inline constexpr const char* own_domain = "penstock";

/// Registers the name. The texts are copied, if a profiler is there.
Marker make_marker(const char* domain, const char* name, const MarkerCategory& category) noexcept;
void begin_range(const Marker& marker, std::uint64_t payload) noexcept;
void end_range(MarkerHandle domain) noexcept;
/// A moment on this thread's timeline.
void mark(const Marker& marker, std::uint64_t payload) noexcept;

template <MarkerName Name>
constexpr const char* domain_of() {
  if constexpr (requires { Name::domain; })
    return Name::domain;
  else
    return own_domain;
}
template <MarkerName Name>
constexpr MarkerCategory category_of() {
  if constexpr (requires { Name::category; })
    return Name::category;
  else
    return {};
}
/// It is registered in the first call.
template <MarkerName Name>
const Marker& marker_of() noexcept {
  static const Marker marker = make_marker(domain_of<Name>(), Name::message, category_of<Name>());
  return marker;
}

}  // namespace detail

/// A name that is known at run time only, of an epoch or a layer. Construction registers it with
/// the profiler, which keeps it until the process ends, and copies the texts: make few names, and
/// not in a hot path. Without a profiler nothing is kept. Copies are the same name. Any thread may
/// use it. Does not throw.
class RangeName {
 public:
  /// `text` is what the profiler shows; null is an empty one. Ranges of it are in `domain`; null is
  /// penstock's.
  explicit RangeName(const char* text, const MarkerCategory& category = {},
                     const char* domain = detail::own_domain) noexcept
      : marker_(detail::make_marker(domain, text, category)) {}

 private:
  friend class detail::NvtxRange;
  detail::Marker marker_;
};

namespace detail {

/// Marks the time from its construction to its destruction on this thread, with a name and a number
/// (of a batch, for example). Ranges of a thread and a domain nest. Does not throw.
class [[nodiscard]] NvtxRange {
 public:
  template <MarkerName Name>
  NvtxRange(Name, std::uint64_t payload) noexcept : NvtxRange(marker_of<Name>(), payload) {}
  NvtxRange(const RangeName& name, std::uint64_t payload) noexcept
      : NvtxRange(name.marker_, payload) {}
  ~NvtxRange() {
    if (domain_ != nullptr) end_range(domain_);
  }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
  NvtxRange(const Marker& marker, std::uint64_t payload) noexcept : domain_(marker.domain) {
    if (domain_ != nullptr) begin_range(marker, payload);
  }

  const MarkerHandle domain_;
};

class [[nodiscard]] NoRange {
 public:
  template <MarkerName Name>
  NoRange(Name, std::uint64_t) noexcept {}
  NoRange(const RangeName&, std::uint64_t) noexcept {}
  ~NoRange() {}  // Not trivial, so that compilers do not warn about an unused variable.
  NoRange(const NoRange&) = delete;
  NoRange& operator=(const NoRange&) = delete;
};

}  // namespace detail

/// Marks the time from its construction to its destruction on this thread, with a MarkerName or a
/// RangeName, and a number (of a batch, for example). Ranges of a thread and a domain nest. Does
/// not throw.
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
#include <penstock/detail/observe/markers.hpp>
#endif
