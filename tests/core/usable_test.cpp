// SPDX-License-Identifier: Apache-2.0

// Limits of control groups, over files that are made up.

#include <penstock/detail/usable.hpp>

#include <sched.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/catch.hpp"
#include "support/temporary_directory.hpp"

using penstock::detail::CgroupFiles;
using penstock::detail::usable_cores;
using penstock::detail::usable_memory;

namespace {

/// A tree of control groups.
class Groups {
 public:
  explicit Groups(const std::string& of_process) {
    std::filesystem::create_directories(root() + "/sys/a/b/c");
    write("membership", "3:cpuset:/elsewhere\n0::" + of_process + "\n");
  }
  void write(const std::string& file, const std::string& text) const {
    std::ofstream(root() + "/" + file) << text;
  }
  CgroupFiles files() const { return {root() + "/sys", root() + "/membership"}; }

 private:
  std::string root() const { return directory_ / ""; }
  penstock::test::TemporaryDirectory directory_;
};

const int all_cores = usable_cores({"/none", "/none"});
const std::size_t all_memory = usable_memory({"/none", "/none"});

}  // namespace

TEST_CASE("without limits: the cores of the affinity mask, the memory of the machine", "[cgroup]") {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  REQUIRE(sched_getaffinity(0, sizeof mask, &mask) == 0);
  CHECK(all_cores == CPU_COUNT(&mask));
  Groups groups("/a/b");
  groups.write("sys/a/b/cpu.max", "max 100000\n");
  groups.write("sys/a/b/memory.max", "max\n");
  CHECK(usable_cores(groups.files()) == all_cores);
  CHECK(usable_memory(groups.files()) == all_memory);
}

TEST_CASE("a process with one core in its mask uses one", "[cgroup]") {
  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  CPU_ZERO(&one);
  for (std::size_t core = 0; CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(usable_cores({"/none", "/none"}) == 1);
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
}

TEST_CASE("the least limit on the way from the process's group to the root counts", "[cgroup]") {
  const std::string limited = GENERATE(as<std::string>(), "sys", "sys/a", "sys/a/b");
  CAPTURE(limited);
  Groups groups("/a/b");
  groups.write(limited + "/cpu.max", "50000 100000\n");
  groups.write(limited + "/memory.max", "1048576\n");
  CHECK(usable_cores(groups.files()) == 1);
  CHECK(usable_memory(groups.files()) == std::size_t{1} << 20);
}

TEST_CASE("limits of groups that the process is not in do not count", "[cgroup]") {
  Groups groups("/a/b");
  groups.write("sys/a/b/c/memory.max", "4096\n");
  CHECK(usable_memory(groups.files()) == all_memory);
  Groups root("/");
  root.write("sys/a/memory.max", "4096\n");
  CHECK(usable_memory(root.files()) == all_memory);
  root.write("sys/memory.max", "8192\n");
  CHECK(usable_memory(root.files()) == std::size_t{8192});
}
