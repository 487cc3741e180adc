// SPDX-License-Identifier: Apache-2.0
#pragma once

// The settings that penstock-trace passes to the injected library, through the environment of the
// program.

#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::trace::inject {

/// The directory of the recordings. It is made when there is a recording to write. A process that
/// records writes <pid>.recording there at its end, or <pid>.error: one sentence that says why it
/// could not.
inline constexpr const char* kDirectory = "PENSTOCK_TRACE_DIRECTORY";
inline constexpr const char* kMaxEvents = "PENSTOCK_TRACE_MAX_EVENTS";
inline constexpr const char* kCaptureRange = "PENSTOCK_TRACE_CAPTURE_RANGE";  // set: yes
inline constexpr const char* kWholeGraphs = "PENSTOCK_TRACE_WHOLE_GRAPHS";    // set: yes
/// The kept time in nanoseconds. Each process that records writes it to
/// dump-<time>-<pid>-<number>.recording on request, and writes the rest at its end. Unset: the
/// whole run is kept.
inline constexpr const char* kLast = "PENSTOCK_TRACE_LAST";
inline constexpr const char* kDumpSignal = "PENSTOCK_TRACE_DUMP_SIGNAL";  // its number

/// A file in the directory. Each time that the number in its first line changes, all processes
/// write a dump. The second line names the cause.
inline constexpr const char* kRequest = ".dump-request";
inline constexpr const char* kDumpPrefix = "dump-";

inline constexpr const char* kRecordingSuffix = ".recording";
inline constexpr const char* kErrorSuffix = ".error";

}  // namespace penstock::trace::inject
