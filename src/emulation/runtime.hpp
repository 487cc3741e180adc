// SPDX-License-Identifier: Apache-2.0
#pragma once

// The emulated runtime between two resets: the parts of the machine and the objects of the program.
// There is one at a time (process.hpp). Use its members with the runtime's lock held.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <penstock/emulation.hpp>
#include <utility>
#include <vector>

#include "capture.hpp"
#include "device.hpp"
#include "event.hpp"
#include "failures.hpp"
#include "functions.hpp"
#include "graph.hpp"
#include "graph_exec.hpp"
#include "handle_table.hpp"
#include "memory.hpp"
#include "pool.hpp"
#include "scheduler.hpp"
#include "stream.hpp"
#include "timeline.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

struct Counters {
  std::array<std::uint64_t, kFunctionCount> calls{};
  std::uint64_t pageable = 0;  ///< asynchronous copies of pageable memory
};

class Runtime {
 public:
  Runtime(std::mutex& mutex, const Options& asked, std::uint64_t number);

  const Options options;
  const std::uint64_t era;  ///< number of this runtime in the process
  Counters counters;
  Failures failures;
  Timeline timeline;
  Memory memory;
  Scheduler scheduler;
  std::vector<std::unique_ptr<Device>> devices;

  std::map<const void*, GraphMemory*> graph_memory;  ///< every GraphMemory, by address
  HandleTable<Stream, HandleKind::stream> streams;
  HandleTable<Event, HandleKind::event> events;
  HandleTable<Pool, HandleKind::pool> pools;
  HandleTable<UserObject, HandleKind::user_object> user_objects;
  HandleTable<GraphNode, HandleKind::node> nodes;
  HandleTable<Graph, HandleKind::graph> graphs;
  HandleTable<GraphExec, HandleKind::graph_exec> graph_execs;
  Captures captures{*this};

  /// Creates a stream of the device, with a handle if the program receives one.
  Ref<Stream> create_stream(Device& device, unsigned flags, int priority, bool with_handle);
  /// Creates a stream for a branch of a graph.
  Ref<Stream> create_branch_stream(Device& device);
  /// Returns the default stream of one thread on one device; the first use creates it.
  Stream& per_thread_stream(std::uint64_t thread, Device& device);
  /// Called when the thread ends: its default streams are removed once they are empty.
  void forget_thread(std::uint64_t thread);

  /// `file` is for a pool that other processes open, or that this process has opened (`imported`).
  Ref<Pool> create_pool(const PoolPlace& place, std::size_t max_bytes,
                        std::shared_ptr<SharedFile> file = nullptr, bool imported = false);
  /// Returns the pools of the place. The first use creates those of managed memory.
  PoolChoice& pools_of(const PoolPlace& place);
  /// The number of pools that the program did not create.
  std::size_t default_pools() const { return devices.size() + managed_pools_.size(); }
  /// Finds the location that the program names. The host is one memory node with number 0.
  cudaError_t find_location(const cudaMemLocation& asked, PageLocation& found) const;

  Ref<Graph> create_graph();
  /// Counts the graphs of the program: neither child graphs nor graphs that are still being
  /// captured.
  std::size_t count_graphs() const;
  /// Drops references. The last one destroys the program's object, on another thread.
  cudaError_t release_user_object(UserObject& object, unsigned count);

  /// Frees memory that a graph has allocated and not freed, for a call of the program.
  cudaError_t free_graph_memory(void* data);

  /// Removes the stream's handle.
  void destroy(Stream& stream);
  void destroy_graphs();
  /// Destroys the remaining objects of the program on a device whose work is done.
  void destroy_all(const Device& device);

  /// Blocks until the streams of `device` (null: of all devices) have finished their present work.
  /// Returns false if the process unloads the runtime.
  bool await_idle(Lock& lock, const Device* device, bool acquire_order);
  /// The host has waited for this mark, so memory that was freed before it can be reused.
  void settle(const Mark& mark);
  /// The host waits for the device, or (`blocking`) for its legacy default stream. The wait also
  /// covers the streams that have ended.
  void settle_ended(const Device& device, bool blocking);
  /// Returns the cached memory of pools beyond their thresholds to the system.
  void trim_pools();
  /// Calls `allocate()`. If memory is short, it releases the cached memory of the device's pools
  /// and calls it again.
  template <class Allocate>
  cudaError_t allocate_on(const Device& device, Allocate allocate) {
    const cudaError_t status = allocate();
    if (status != cudaErrorMemoryAllocation) return status;
    pools.for_each([&](Pool& pool) {
      if (pool.device() == device.index) pool.trim(0);
    });
    return allocate();
  }

 private:
  std::uint64_t streams_created_ = 0;
  std::map<PoolPlace, PoolChoice> managed_pools_;
  std::map<std::pair<std::uint64_t, int>, Ref<Stream>> per_thread_;  // by thread and device
};

}  // namespace penstock::emulation::detail
