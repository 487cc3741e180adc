// SPDX-License-Identifier: Apache-2.0
#pragma once

// Dumps: recordings of the last moments of a running process, for a session that keeps only those
// (SessionOptions::last).

#include <filesystem>
#include <penstock/trace/session.hpp>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::trace::inject {

struct DumpOptions {
  std::filesystem::path directory;  ///< the directory for dumps and requests (settings.hpp)
  std::chrono::nanoseconds last{0};
  int signal = 0;  ///< the signal that requests a dump
};

/// Starts a thread that writes a recording on each request: the signal, unless the program handles
/// it itself; a request in the directory; or a StallError. Errors are printed on standard error,
/// and recording continues. Call it once per process. The session must exist until stop_dumps(). It
/// does not work in a forked child.
void start_dumps(Session& session, const DumpOptions& options);

/// Waits for a dump that is being written.
void stop_dumps();

}  // namespace penstock::trace::inject
