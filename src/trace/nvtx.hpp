// SPDX-License-Identifier: Apache-2.0
#pragma once

// The tool's side of NVTX 3. A program's first NVTX call passes its function table to
// InitializeInjectionNvtx2 of this library, if the library is linked in or injected. From then on
// ranges (ranges.hpp) and names arrive here. While nothing records, a range costs an uncontended
// lock at its begin and at its end.

#include <penstock/version.hpp>

#include "backend.hpp"
#include "event_sink.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// Puts the names of threads and streams, those given so far and later ones, into the sink until
/// stop_names. There is one sink at a time.
void start_names(EventSink& sink, const Backend& backend);
void stop_names();
/// Repeats the names of existing threads and streams. Call it between start_names and stop_names.
void tell_names_again();

}  // namespace penstock::trace::detail
