// SPDX-License-Identifier: Apache-2.0
#pragma once

// shape_of() makes the PipelineShape of a pipeline from what Stats tells of its setup.

#include <algorithm>
#include <cstdint>
#include <penstock/detail/observe/pipeline_shape.hpp>
#include <penstock/stats.hpp>

namespace penstock::detail {

/// Leaves out the present settings and the sizes of a batch.
inline PipelineShape shape_of(const PipelineSetup& setup, bool on_device) {
  PipelineShape shape;
  shape.source = on_device          ? SourceShape::on_device
                 : setup.per_sample ? SourceShape::per_sample
                                    : SourceShape::batch;
  if (setup.per_sample)
    shape.pieces = static_cast<int>(std::min<std::int64_t>(setup.batch_size, 1 << 20));
  shape.ordered = setup.ordered;
  shape.unbounded = setup.unbounded;
  shape.deepens = setup.deepens;
  shape.batches = setup.batches;
  shape.cores = setup.cores;
  shape.host_limit = setup.host_limit;
  shape.device_limit = setup.device_limit;
  return shape;
}

}  // namespace penstock::detail
