// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a process holds at a moment: memory, threads, CUDA objects.
//
//   const Vitals before = vitals();
//   ... what may not grow ...
//   if (const std::string growth = growth_between(before, vitals()); !growth.empty()) ...

#include <cstddef>
#include <iosfwd>
#include <penstock/emulation.hpp>
#include <string>

namespace penstock::test {

struct Vitals {
  std::size_t resident_bytes = 0;  // VmRSS
  std::size_t heap_bytes = 0;  // that malloc has given out; 0 under a sanitizer, which has its own
  std::size_t threads = 0;
  emulation::Live live;
};

Vitals vitals();

/// What has grown by more than chance; empty: nothing. Threads and CUDA objects must be equal; the
/// heap may differ by what is under way in the pipeline, and the resident memory by how malloc
/// hands it out. Under a sanitizer, whose own memory grows, resident memory is not looked at.
std::string growth_between(const Vitals& before, const Vitals& after);

std::ostream& operator<<(std::ostream& out, const Vitals& now);

}  // namespace penstock::test
