// SPDX-License-Identifier: Apache-2.0
#pragma once

// The tool's side of NVTX 3: a program's first NVTX call hands its function table to
// InitializeInjectionNvtx2, of this library when it is linked in or injected. From then on ranges
// (ranges.hpp) and names come here. While nothing records, a range costs an uncontended lock at its
// begin and at its end.

#include "backend.hpp"
#include "event_sink.hpp"

namespace penstock::trace::detail {

/// Puts the names of threads and streams that the program has given so far, and those that it will
/// give, into the sink, until stop_names. One at a time.
void start_names(EventSink& sink, const Backend& backend);
void stop_names();
/// Once more, between these two: those of threads and streams that are still there.
void tell_names_again();

}  // namespace penstock::trace::detail
