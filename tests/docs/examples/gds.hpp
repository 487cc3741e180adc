// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the examples of penstock::gds's headers take for granted. Compiled only.

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <penstock/file.hpp>
#include <penstock/gds/gds_source.hpp>
#include <penstock/layout.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/record_file.hpp>
#include <penstock/tensor.hpp>

namespace {

struct Bare {
  std::byte* device_memory;
};

void clean_up() {}

}  // namespace
