// SPDX-License-Identifier: Apache-2.0
#pragma once

// The one lock of the runtime, and the runtime of this process: started by the first call or by
// emulation::reset, never destroyed, so that calls from static destructors find it. When the
// process exits, what has not begun is dropped and every later call fails with
// cudaErrorCudartUnloading. In a child that is forked once it has started, nearly every call fails
// with cudaErrorInitializationError: the threads are the parent's.

#include <penstock/emulation.hpp>

#include "runtime.hpp"

namespace penstock::emulation::detail {

std::mutex& runtime_mutex();

/// The runtime for a call of `function`, started from the environment if need be. Null once the
/// process is exiting, and for most functions in a forked child. To be called under the lock.
Runtime* running_runtime(Function function);
/// What a call returns that finds none.
cudaError_t why_not_running();

/// The runtime also then: for reading what happened.
Runtime& last_runtime();

/// The default streams of this thread go when the thread ends.
void forget_thread_at_its_end();

/// Replaces the runtime by a new one. The lock is held; it is let go while work is waited for.
void restart(Lock& lock, const Options& options);

/// Options{} changed by the environment variable PENSTOCK_EMULATION. Ends the process with a
/// message when it makes no sense.
Options options_from_environment();
/// The same from a text; throws std::invalid_argument.
Options parse_options(const std::string& text);
/// Throws std::invalid_argument when there can be no such machine.
void validate(const Options& options);

}  // namespace penstock::emulation::detail
