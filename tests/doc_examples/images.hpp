// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the examples of penstock::images' headers take for granted. Compiled only.

#include <cstddef>
#include <cstdint>
#include <penstock/images/crop.hpp>
#include <penstock/images/jpeg_decoder.hpp>
#include <penstock/images/resizer.hpp>
#include <penstock/source.hpp>
#include <span>
#include <vector>

namespace {

struct Bare {
  penstock::Sample sample;
  std::span<const std::byte> file;
};

void clean_up() {}

}  // namespace
