// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <penstock/any_sampler.hpp>
#include <penstock/detail/order/state.hpp>
#include <penstock/detail/pipeline/require_count.hpp>
#include <penstock/producer_options.hpp>
#include <penstock/source.hpp>
#include <stdexcept>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Throws std::invalid_argument; replaces 0 by what it stands for.
inline ProducerOptions checked(ProducerOptions options, const AnySampler& sampler,
                               const ErasedSource& source) {
  require_workers("workers", options.workers, "one");
  if (options.epochs == 0) throw std::invalid_argument("epochs is 0, must be at least 1");
  require_not_behind_end(sampler.start(), options.epochs);
  require_depth("depth", options.depth, 0);
  if (options.workers == 0 || sampler.is_stream()) options.workers = 1;
  if (options.depth == 0)
    options.depth =
        source.kind == SourceKind::sample ? 4 : static_cast<std::size_t>(options.workers) + 2;
  return options;
}

}  // namespace penstock::detail
