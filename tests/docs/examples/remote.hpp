// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the examples of the pages about penstock::remote take for granted. Compiled only: they need
// a server.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <penstock/penstock.hpp>
#include <penstock/remote.hpp>
#include <span>
#include <vector>

namespace {

struct Bare {
  penstock::PackedFile images{"train.pack"};
  penstock::Sampler sampler{{.samples = 1000, .batch_size = 100}};
  std::uint64_t epoch = 0;
  std::vector<std::uint64_t> samples;
};

/// Stands for the user's kernels.
template <class Batch>
void train(const Batch&, cudaStream_t) {}

void clean_up() {}

}  // namespace
