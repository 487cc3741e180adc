// SPDX-License-Identifier: Apache-2.0

#include "vitals.hpp"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>

namespace penstock::test {
namespace {

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::size_t entries_of(const char* directory) {
  const std::filesystem::directory_iterator entries(directory);
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

void compare(std::string& growth, const char* what, std::size_t before, std::size_t after,
             std::size_t chance) {
  if (after <= before + chance) return;
  growth += std::string(growth.empty() ? "" : ", ") + what + " from " + std::to_string(before) +
            " to " + std::to_string(after);
}

}  // namespace

Vitals vitals() {
  return {.resident_bytes = resident_bytes(),
          .heap_bytes = ::mallinfo2().uordblks,
          .threads = entries_of("/proc/self/task"),
          .descriptors = entries_of("/proc/self/fd"),
          .objects = cuda_objects()};
}

std::string growth_between(const Vitals& before, const Vitals& after, const Chance& chance) {
  std::string growth;
  const bool sanitized = before.heap_bytes == 0;
  if (!sanitized)
    compare(growth, "resident bytes", before.resident_bytes, after.resident_bytes,
            chance.resident_bytes);
  compare(growth, "heap bytes", before.heap_bytes, after.heap_bytes, chance.heap_bytes);
  compare(growth, "threads", before.threads, after.threads, chance.threads);
  compare(growth, "open files", before.descriptors, after.descriptors, 0);
  for (std::size_t i = 0; i < std::min(before.objects.size(), after.objects.size()); ++i)
    compare(growth, before.objects[i].what, before.objects[i].number, after.objects[i].number, 0);
  return growth;
}

std::ostream& operator<<(std::ostream& out, const Vitals& now) {
  out << "resident " << now.resident_bytes / 1024 << " KiB, heap " << now.heap_bytes / 1024
      << " KiB, " << now.threads << " threads, " << now.descriptors << " files";
  for (const ObjectCount& object : now.objects)
    if (object.number != 0) out << ", " << object.number << ' ' << object.what;
  return out;
}

}  // namespace penstock::test
