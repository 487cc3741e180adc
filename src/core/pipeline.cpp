// SPDX-License-Identifier: Apache-2.0
//
// The room detail/pipeline, compiled.

#include <penstock/detail/cores.hpp>
#include <penstock/detail/pipeline/any_sampler.hpp>
#include <penstock/detail/pipeline/batch_producer.hpp>
#include <penstock/detail/pipeline/failure.hpp>
#include <penstock/detail/pipeline/placement.hpp>
#include <penstock/detail/pipeline/prefetcher.hpp>
#include <penstock/detail/pipeline/ranks.hpp>
#include <penstock/detail/pipeline/readback.hpp>
#include <penstock/detail/pipeline/sampler.hpp>
#include <penstock/detail/pipeline/state.hpp>
