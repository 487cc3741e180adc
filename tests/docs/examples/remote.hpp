// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the examples of the pages about penstock::remote take for granted. Compiled only: they need
// a server.

#include <cstdint>
#include <penstock/file_folder.hpp>
#include <penstock/packed_file.hpp>
#include <penstock/remote.hpp>
#include <penstock/sampler.hpp>
#include <vector>

namespace {

struct Bare {
  penstock::PackedFile images{"train.pack"};
  penstock::Sampler sampler{{.samples = 1000, .batch_size = 100}};
  std::uint64_t epoch = 0;
  std::vector<std::uint64_t> samples;
};

void clean_up() {}

}  // namespace
