// SPDX-License-Identifier: Apache-2.0
#pragma once

// The threads of the runtime. They are detached; the scheduler counts them.

#include <penstock/version.hpp>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "report.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

/// Runs `body` on a new thread. `body` may throw only std::bad_alloc, which ends the process.
/// Throws OutOfResources, after a message on standard error, if the system refuses a thread.
template <class Body>
void start_thread_of(const std::string& whom, Body body) {
  const auto run = [body]() noexcept {
    try {
      body();
    } catch (const std::bad_alloc&) {
      give_up("no memory of the host is left for the lists of the emulated runtime");
    }
  };
  try {
    std::thread(run).detach();
  } catch (const std::system_error& error) {
    const std::string text = "the system has no thread for " + whom + " (" + error.what() +
                             "): raise the limits of the process (ulimit -u, ulimit -v), or use "
                             "fewer streams";
    report(text);
    throw OutOfResources(text);
  }
}

}  // namespace penstock::emulation::detail
