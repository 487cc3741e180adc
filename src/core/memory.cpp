// SPDX-License-Identifier: Apache-2.0
//
// Compiles the functions of detail/memory, and the exceptions.

#include <penstock/detail/error.hpp>
#include <penstock/detail/memory/device_arena.hpp>
#include <penstock/detail/memory/dlpack.hpp>
#include <penstock/detail/memory/layout.hpp>
#include <penstock/detail/memory/memory_resource.hpp>
#include <penstock/detail/memory/pinned_pool.hpp>
#include <penstock/detail/memory/ragged.hpp>
