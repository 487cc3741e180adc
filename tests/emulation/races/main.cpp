// SPDX-License-Identifier: Apache-2.0

// penstock_races <scenario> right|wrong

#include <array>
#include <cstdio>
#include <exception>
#include <string_view>

#include "races.hpp"

namespace {

struct Scenario {
  std::string_view name;
  void (*run)(races::Version);
};

constexpr std::array scenarios{
    Scenario{"overwrite_source", races::overwrite_source},
    Scenario{"read_result", races::read_result},
    Scenario{"stream_wait_for_host_wait", races::stream_wait_for_host_wait},
    Scenario{"hand_to_other_thread", races::hand_to_other_thread},
    Scenario{"overwrite_graph_source", races::overwrite_graph_source},
    Scenario{"no_wait", races::no_wait},
    Scenario{"record_before_copy", races::record_before_copy},
    Scenario{"wait_before_record", races::wait_before_record},
    Scenario{"host_function_beside_copy", races::host_function_beside_copy},
    Scenario{"reuse_device_memory", races::reuse_device_memory},
    Scenario{"free_while_used", races::free_while_used},
    Scenario{"legacy_beside_non_blocking", races::legacy_beside_non_blocking},
    Scenario{"pageable_copy_beside_non_blocking", races::pageable_copy_beside_non_blocking},
};

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view name = argc == 3 ? argv[1] : "", version = argc == 3 ? argv[2] : "";
  for (const Scenario& scenario : scenarios) {
    if (scenario.name != name) continue;
    scenario.run(version == "wrong" ? races::Version::wrong : races::Version::right);
    std::puts("ran to its end");
    return 0;
  }
  std::fputs("usage: penstock_races <scenario> right|wrong\n", stderr);
  return 2;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
