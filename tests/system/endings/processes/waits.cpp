// SPDX-License-Identifier: Apache-2.0

// A pipeline whose source does not return: the StallError unwinds into the pipeline's end, which
// waits for the source, and says so on stderr before the exception reaches anybody.

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "../../../support/standard_error.hpp"
#include "pipeline.hpp"

namespace {

using namespace std::chrono_literals;

/// What was written to stderr when the StallError has arrived.
std::string said_until_the_exception() {
  const penstock::test::CapturedStandardError errors;
  // The source returns when the end has said that it waits, or is tired of hearing nothing.
  const auto fill = [&](const penstock::Ticket& ticket, endings::Values& batch) {
    endings::fill(ticket, batch);
    if (ticket.batch != 2) return;
    const auto tired = std::chrono::steady_clock::now() + 1min;
    while (!errors.contains("waits for a worker") && std::chrono::steady_clock::now() < tired)
      std::this_thread::sleep_for(1ms);
  };
  try {
    endings::Prefetcher prefetcher(endings::layout(), endings::sampler(), fill,
                                   {.workers = 1, .stall_timeout = 200ms});
    while (prefetcher.next(nullptr)) {
    }
  } catch (const penstock::StallError&) {
    return errors.text() + "and then the exception\n";
  }
  return errors.text() + "and no exception\n";
}

}  // namespace

int main() {
  std::fputs(said_until_the_exception().c_str(), stderr);
}
