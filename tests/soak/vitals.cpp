// SPDX-License-Identifier: Apache-2.0

#include "vitals.hpp"

#include <malloc.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>

namespace penstock::test {
namespace {

constexpr std::size_t kHeapChance = 64 << 10, kResidentChance = 4 << 20;  // bytes

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::size_t threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
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
          .threads = threads(),
          .live = emulation::live()};
}

std::string growth_between(const Vitals& before, const Vitals& after) {
  std::string growth;
  const bool sanitized = before.heap_bytes == 0;
  if (!sanitized)
    compare(growth, "resident bytes", before.resident_bytes, after.resident_bytes, kResidentChance);
  compare(growth, "heap bytes", before.heap_bytes, after.heap_bytes, kHeapChance);
  compare(growth, "threads", before.threads, after.threads, 0);
  const emulation::Live &was = before.live, &is = after.live;
  compare(growth, "streams", was.streams, is.streams, 0);
  compare(growth, "events", was.events, is.events, 0);
  compare(growth, "graphs", was.graphs + was.graph_execs, is.graphs + is.graph_execs, 0);
  compare(growth, "user objects", was.user_objects, is.user_objects, 0);
  compare(growth, "memory pools", was.memory_pools, is.memory_pools, 0);
  compare(growth, "device allocations", was.device_allocations, is.device_allocations, 0);
  compare(growth, "device bytes", was.device_bytes, is.device_bytes, 0);
  compare(growth, "pinned allocations", was.pinned_allocations, is.pinned_allocations, 0);
  compare(growth, "pinned bytes", was.pinned_bytes, is.pinned_bytes, 0);
  return growth;
}

std::ostream& operator<<(std::ostream& out, const Vitals& now) {
  return out << "resident " << now.resident_bytes / 1024 << " KiB, heap " << now.heap_bytes / 1024
             << " KiB, " << now.threads << " threads, " << now.live.events << " events, "
             << now.live.streams << " streams, device " << now.live.device_bytes << " B, pinned "
             << now.live.pinned_bytes << " B";
}

}  // namespace penstock::test
