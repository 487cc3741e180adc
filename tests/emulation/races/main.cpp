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

#define SCENARIO(name)  \
  Scenario {            \
#name, &races::name \
  }
constexpr std::array scenarios{
    SCENARIO(overwrite_source),           SCENARIO(read_result),
    SCENARIO(stream_wait_for_host_wait),  SCENARIO(hand_to_other_thread),
    SCENARIO(overwrite_graph_source),     SCENARIO(no_wait),
    SCENARIO(record_before_copy),         SCENARIO(wait_before_record),
    SCENARIO(host_function_beside_copy),  SCENARIO(reuse_device_memory),
    SCENARIO(legacy_beside_non_blocking), SCENARIO(pageable_copy_beside_non_blocking),
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
