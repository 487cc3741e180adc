// SPDX-License-Identifier: Apache-2.0
#pragma once

// What penstock-trace asks of the library that it injects, through the environment of the program.

namespace penstock::trace::inject {

/// The directory of the recordings; made when there is one to write. A process that records writes
/// <pid>.recording there at its end, or <pid>.error: one sentence, why it could not.
inline constexpr const char* kDirectory = "PENSTOCK_TRACE_DIRECTORY";
inline constexpr const char* kMaxEvents = "PENSTOCK_TRACE_MAX_EVENTS";
inline constexpr const char* kCaptureRange = "PENSTOCK_TRACE_CAPTURE_RANGE";  // set: yes
inline constexpr const char* kWholeGraphs = "PENSTOCK_TRACE_WHOLE_GRAPHS";    // set: yes
/// Nanoseconds: what is kept; each process that records writes it to
/// dump-<time>-<pid>-<number>.recording when it is asked to, and at its end what is left. Unset:
/// the whole run is kept.
inline constexpr const char* kLast = "PENSTOCK_TRACE_LAST";
inline constexpr const char* kDumpSignal = "PENSTOCK_TRACE_DUMP_SIGNAL";  // its number

/// In the directory: asks all processes for a dump, each time that the number in its first line is
/// another one. The second line says who asks.
inline constexpr const char* kRequest = ".dump-request";
inline constexpr const char* kDumpPrefix = "dump-";

inline constexpr const char* kRecordingSuffix = ".recording";
inline constexpr const char* kErrorSuffix = ".error";

}  // namespace penstock::trace::inject
