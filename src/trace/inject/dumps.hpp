// SPDX-License-Identifier: Apache-2.0
#pragma once

// Dumps: recordings of the last moments of a process that goes on, for a session that keeps no more
// (SessionOptions::last).

#include <filesystem>
#include <penstock/trace/session.hpp>

namespace penstock::trace::inject {

struct DumpOptions {
  std::filesystem::path directory;  ///< to write to; also where requests come (settings.hpp)
  std::chrono::nanoseconds last{0};
  int signal = 0;  ///< asks for a dump
};

/// From now on a thread of its own writes a recording whenever somebody asks for one: by the
/// signal, unless the program handles it itself; by a request in the directory; by a StallError.
/// What goes wrong is told on the standard error, and recording goes on. Once in a process; the
/// session stays until stop_dumps(). Not in a forked child.
void start_dumps(Session& session, const DumpOptions& options);

/// Waits for the dump that is being written, if one is.
void stop_dumps();

}  // namespace penstock::trace::inject
