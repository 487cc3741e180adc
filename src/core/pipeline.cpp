// SPDX-License-Identifier: Apache-2.0
//
// Compiles the functions of detail/pipeline.

#include <penstock/detail/cores.hpp>
#include <penstock/detail/order/any_sampler.hpp>
#include <penstock/detail/order/mixture.hpp>
#include <penstock/detail/order/ranks.hpp>
#include <penstock/detail/order/sampler.hpp>
#include <penstock/detail/order/state.hpp>
#include <penstock/detail/pipeline/batch_producer.hpp>
#include <penstock/detail/pipeline/failure.hpp>
#include <penstock/detail/pipeline/placement.hpp>
#include <penstock/detail/pipeline/prefetcher.hpp>
#include <penstock/detail/pipeline/readback.hpp>
