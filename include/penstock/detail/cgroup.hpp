// SPDX-License-Identifier: Apache-2.0
#pragma once

// The limits of the control groups (version 2) that this process is in: each of the groups from its
// own up to the root may have some.

#include <fstream>
#include <string>

namespace penstock::detail {

/// Where the kernel tells of control groups; tests have places of their own.
struct CgroupFiles {
  std::string groups = "/sys/fs/cgroup";
  std::string membership = "/proc/self/cgroup";
};

/// Of this process, as in "/a/b"; "": the root, or unknown.
inline std::string cgroup_of_process(const CgroupFiles& files) {
  std::ifstream lines(files.membership);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("0::/")) return line.size() == 4 ? std::string() : line.substr(3);
  return {};
}

/// Calls `read` with the file `name` of each group that has it.
template <class Read>
void for_each_cgroup(const CgroupFiles& files, const char* name, Read read) {
  std::string group = cgroup_of_process(files);
  while (true) {
    if (std::ifstream file(files.groups + group + '/' + name); file) read(file);
    if (group.empty()) return;
    group.erase(group.rfind('/'));
  }
}

}  // namespace penstock::detail
