// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <ostream>
#include <penstock/detail/observe/units.hpp>
#include <penstock/tuning.hpp>
#include <sstream>

namespace penstock::inline PENSTOCK_ABI {
namespace detail {

PENSTOCK_INLINE const char* in_words(TuneReason reason) {
  constexpr std::array words{"batches come faster", "as fast with less",
                             "it did not do what was expected", "more leases are held",
                             "memory was lost to an error"};
  return words.at(static_cast<std::size_t>(reason));
}

}  // namespace detail

PENSTOCK_INLINE const char* to_string(TuneKnob knob) {
  constexpr std::array names{"workers", "host_depth", "device_depth"};
  return names.at(static_cast<std::size_t>(knob));
}

PENSTOCK_INLINE const char* to_string(TuneReason reason) {
  constexpr std::array names{"faster", "cheaper", "reverted", "leases", "lost"};
  return names.at(static_cast<std::size_t>(reason));
}

PENSTOCK_INLINE std::ostream& operator<<(std::ostream& out, const TuneDecision& decision) {
  std::ostringstream text;
  text << "batch " << decision.batch << ": " << to_string(decision.knob) << ' ' << decision.from
       << " -> " << decision.to << ": " << detail::in_words(decision.reason);
  if (decision.period.count() > 0)
    text << " (a worker takes " << detail::in_milliseconds(decision.source)
         << " a batch, the consumer " << detail::in_milliseconds(decision.consumer)
         << ", a batch comes every " << detail::in_milliseconds(decision.period);
  if (decision.predicted.count() > 0)
    text << "; predicted " << detail::in_milliseconds(decision.predicted);
  if (decision.measured.count() > 0)
    text << ", measured " << detail::in_milliseconds(decision.measured);
  if (decision.period.count() > 0) text << ')';
  return out << text.str();
}

}  // namespace penstock
