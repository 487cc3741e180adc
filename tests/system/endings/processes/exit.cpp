// SPDX-License-Identifier: Apache-2.0

// A program that ends while a prefetcher, its workers and its leases are alive. Each scenario must
// end with status 0, soon: destructors of static objects run beside workers, before and after the
// runtime unloads; destructors of local objects, or all of them, do not run at all.

#include <unistd.h>

#include <cstring>
#include <memory>
#include <semaphore>
#include <utility>
#include <vector>

#include "pipeline.hpp"

namespace {

using endings::Lease;
using endings::Prefetcher;

std::unique_ptr<Prefetcher> make() {
  return std::make_unique<Prefetcher>(endings::layout(), endings::sampler(), endings::fill,
                                      endings::kOptions);
}

// Made before the first call of CUDA's, so destroyed when the runtime has unloaded.
std::unique_ptr<Prefetcher> late_prefetcher;
std::vector<Lease> late_leases;

/// Made in main, so destroyed after it, and before the runtime unloads.
Prefetcher& static_prefetcher() {
  static Prefetcher prefetcher(endings::layout(), endings::sampler(), endings::fill,
                               endings::kOptions);
  return prefetcher;
}

void static_object() {
  endings::require(bool(static_prefetcher().next(nullptr)), "there is a batch");
}

void static_object_and_lease() {
  Prefetcher& prefetcher = static_prefetcher();
  static Lease before = prefetcher.next(nullptr);   // Ends before the prefetcher does.
  late_leases.push_back(prefetcher.next(nullptr));  // And this one after.
}

void static_object_after_unloading() {
  late_prefetcher = make();
  endings::require(bool(late_prefetcher->next(nullptr)), "there is a batch");
}

void static_leases_after_unloading() {
  late_prefetcher = make();
  for (int i = 0; i < 2; ++i) late_leases.push_back(late_prefetcher->next(nullptr));
}

void exit_from_main() {
  const auto prefetcher = make();
  const Lease first = prefetcher->next(nullptr), second = prefetcher->next(nullptr);
  std::exit(EXIT_SUCCESS);
}

void quick_exit_from_main() {
  const auto prefetcher = make();
  const Lease lease = prefetcher->next(nullptr);
  std::quick_exit(EXIT_SUCCESS);
}

/// Another thread exits while this one consumes, until the runtime has unloaded under it.
void exit_from_another_thread() {
  penstock::PrefetcherOptions options = endings::kOptions;
  options.epochs = 1'000'000;
  Prefetcher prefetcher(endings::layout(), endings::sampler(), endings::fill, options);
  std::binary_semaphore consuming{0};
  std::thread([&] {
    consuming.acquire();
    std::exit(EXIT_SUCCESS);
  }).detach();
  try {
    for (int i = 0;; ++i) {
      const Lease lease = prefetcher.next(nullptr);
      if (i == 10) consuming.release();
    }
  } catch (const penstock::CudaError&) {
    for (;;) ::pause();
  }
}

const std::vector<std::pair<const char*, void (*)()>> scenarios{
    {"static_object", static_object},
    {"static_object_and_lease", static_object_and_lease},
    {"static_object_after_unloading", static_object_after_unloading},
    {"static_leases_after_unloading", static_leases_after_unloading},
    {"exit_from_main", exit_from_main},
    {"quick_exit_from_main", quick_exit_from_main},
    {"exit_from_another_thread", exit_from_another_thread},
};

}  // namespace

int main(int argc, char** argv) {
  for (const auto& [name, run] : scenarios)
    if (argc == 2 && std::strcmp(name, argv[1]) == 0) {
      run();
      return EXIT_SUCCESS;
    }
  std::fprintf(stderr, "no such scenario\n");
  return 2;
}
