// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a process holds at a moment: memory, threads, file descriptors, CUDA objects.
//
//   const Vitals before = vitals();
//   ... what may not grow ...
//   if (const std::string growth = growth_between(before, vitals()); !growth.empty()) ...

#include <cstddef>
#include <iosfwd>
#include <string>
#include <vector>

namespace penstock::test {

struct ObjectCount {
  const char* what;
  std::size_t number;
};

/// What this process holds of CUDA's. Defined by emulated_objects.cpp and by device_objects.cpp,
/// for the runtime that the program is linked with.
std::vector<ObjectCount> cuda_objects();

struct Vitals {
  std::size_t resident_bytes = 0;  // VmRSS
  std::size_t heap_bytes = 0;  // that malloc has given out; 0 under a sanitizer, which has its own
  std::size_t threads = 0;
  std::size_t descriptors = 0;  // open files
  std::vector<ObjectCount> objects;
};

Vitals vitals();

/// By how much something may differ by chance: the heap by what is under way in a pipeline, the
/// resident memory by how malloc hands it out.
struct Chance {
  std::size_t resident_bytes = 4 << 20;
  std::size_t heap_bytes = 64 << 10;
  std::size_t threads = 0;
};

/// What has grown by more than chance; empty: nothing. Files and CUDA objects must not grow
/// at all. Under a sanitizer, whose own memory grows, resident memory is not looked at.
std::string growth_between(const Vitals& before, const Vitals& after, const Chance& chance = {});

std::ostream& operator<<(std::ostream& out, const Vitals& now);

}  // namespace penstock::test
