// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ten classes of shapes (disc, ring, triangle, ...) drawn as CIFAR-10 records. What tells the
// classes apart is form alone: position, size, rotation, colours, background and noise are drawn
// independently of the class, so no single pixel says much, and a linear model stays near chance.
//
// A record is a pure function of (seed, split, index). Only integers are used: the same bytes on
// every machine, whichever thread draws them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cifar10.hpp"

namespace shapes {

/// Class names in label order.
inline constexpr std::array<const char*, cifar10::classes> names = {
    "disc", "ring",    "triangle", "square",   "cross",
    "star", "stripes", "checkers", "crescent", "angle"};

/// Goes up whenever the same seed draws other bytes than before.
inline constexpr int version = 1;

enum class Split : std::uint64_t { train = 0, test = 1 };

/// The label of record `index`: every ten records from a multiple of ten hold each class once, in
/// random order.
int label(std::uint64_t seed, Split split, std::uint64_t index);

/// Draws record `index`, label and planes.
void draw(std::uint64_t seed, Split split, std::uint64_t index,
          std::span<std::byte, cifar10::record_bytes> record);

}  // namespace shapes
