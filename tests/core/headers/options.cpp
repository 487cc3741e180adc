// SPDX-License-Identifier: Apache-2.0

// Options as programs write them, at -O3: no compiler takes a member for uninitialised where an
// initialiser behind it may throw. (g++ 12 and 13 do with a std::function.)

#include <penstock/prefetcher.hpp>
#include <utility>
#include <vector>

void run(const penstock::PrefetcherOptions& options);
void run_on(std::vector<int> cpus);

void run_on(std::vector<int> cpus) {
  run({.workers = 1, .placement = penstock::Placement::cores(std::move(cpus))});
}
