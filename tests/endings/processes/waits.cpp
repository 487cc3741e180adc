// SPDX-License-Identifier: Apache-2.0

// A pipeline whose source does not return: the StallError unwinds into the pipeline's end, which
// waits for the source, and says so on stderr before the exception reaches anybody.

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "pipeline.hpp"

int main() {
  using namespace std::chrono_literals;
  std::atomic<bool> returns{false};
  const auto fill = [&](const penstock::Ticket& ticket, endings::Values& batch) {
    endings::fill(ticket, batch);
    while (ticket.batch == 2 && !returns) std::this_thread::sleep_for(1ms);
  };
  std::jthread later([&] {
    std::this_thread::sleep_for(7s);  // The end waits for 5 s in silence.
    returns = true;
  });
  try {
    endings::Prefetcher prefetcher(endings::layout(), endings::sampler(), fill,
                                   {.workers = 1, .stall_timeout = 200ms});
    while (prefetcher.next(nullptr)) {
    }
  } catch (const penstock::StallError&) {
    std::fprintf(stderr, "and then the exception\n");
    return 0;
  }
  return 1;
}
