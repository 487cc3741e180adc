// SPDX-License-Identifier: Apache-2.0

// Over the emulated runtime every test case starts on a fresh machine, with the schedule that the
// environment asks for (PENSTOCK_EMULATION="schedule=random,seed=7"; docs/emulation.md), and must
// have given back all it created when it ends. Catch2 cannot fail a test case that has ended, so a
// leak is reported at once and makes the program fail.

#include <iostream>
#include <penstock/emulation.hpp>
#include <string>

#define CATCH_CONFIG_EXTERNAL_INTERFACES  // version 2: listeners
#include "catch.hpp"
#include "runtime.hpp"

namespace penstock::test {
namespace {

int leaking_tests = 0;

/// The options of the environment, whatever tests have reset the runtime to meanwhile.
const emulation::Options& environment_options() {
  static const emulation::Options options = emulation::options();
  return options;
}

std::ostream& operator<<(std::ostream& out, const emulation::Live& live) {
  return out << live.streams << " streams, " << live.events << " events, " << live.graphs
             << " graphs, " << live.graph_execs << " executable graphs, " << live.user_objects
             << " user objects, " << live.memory_pools << " memory pools, "
             << live.device_allocations << " device allocations (" << live.device_bytes
             << " bytes), " << live.pinned_allocations << " pinned allocations ("
             << live.pinned_bytes << " bytes)";
}

void check_leaks(const std::string& test) {
  const emulation::Live live = emulation::live();
  if (live == emulation::Live{}) return;
  ++leaking_tests;
  std::cerr << "\"" << test << "\" leaks: " << live << std::endl;
}

#if PENSTOCK_CATCH2_VERSION == 3
using Listener = Catch::EventListenerBase;
const std::string& name_of(const Catch::TestCaseStats& stats) {
  return stats.testInfo->name;
}
#else
using Listener = Catch::TestEventListenerBase;
const std::string& name_of(const Catch::TestCaseStats& stats) {
  return stats.testInfo.name;
}
#endif

struct FreshMachine : Listener {
  using Listener::Listener;
  void testCaseStarting(const Catch::TestCaseInfo&) override {
    emulation::reset(environment_options());
  }
  void testCaseEnded(const Catch::TestCaseStats& stats) override { check_leaks(name_of(stats)); }
};

CATCH_REGISTER_LISTENER(FreshMachine)

}  // namespace

int before_tests() {
  environment_options();
  return 0;
}

int after_tests() {
  return leaking_tests == 0 ? 0 : 1;
}

}  // namespace penstock::test
