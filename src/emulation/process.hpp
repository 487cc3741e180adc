// SPDX-License-Identifier: Apache-2.0
#pragma once

// The single lock of the runtime, and the runtime of this process. The first call or
// emulation::reset starts it, and it is never destroyed, so that calls from static destructors find
// it. When the process exits, work that has not begun is dropped and every later call fails with
// cudaErrorCudartUnloading. In a child that is forked after the start, nearly every call fails with
// cudaErrorInitializationError, because the threads exist only in the parent.

#include <penstock/emulation.hpp>

#include "runtime.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

std::mutex& runtime_mutex();

/// Returns the runtime for a call of `function`, and starts it from the environment if necessary.
/// Returns null when the process is exiting and, for most functions, in a forked child. Call it
/// with the lock held.
Runtime* running_runtime(Function function);
/// Returns the error of a call that found no runtime.
cudaError_t why_not_running();

/// Returns the runtime even when the process is exiting, to read its records.
Runtime& last_runtime();

/// Makes the end of this thread release the thread's default streams.
void forget_thread_at_its_end();

/// Replaces the runtime by a new one. The lock is held, except while this waits for work.
void restart(Lock& lock, const Options& options);

/// Returns the default options, changed by the environment variable PENSTOCK_EMULATION. Ends the
/// process with a message if the variable is invalid.
Options options_from_environment();
/// Parses the options from a text; throws std::invalid_argument.
Options parse_options(const std::string& text);
/// Throws std::invalid_argument if no machine can have these options.
void validate(const Options& options);

}  // namespace penstock::emulation::detail
