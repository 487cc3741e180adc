// SPDX-License-Identifier: Apache-2.0
#pragma once

// The emulated runtime between two resets: the machine's parts and the program's objects. There is
// one at a time (process.hpp); its members are used under the runtime's lock.

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

namespace penstock::emulation::detail {

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

  std::map<const void*, GraphMemory*> graph_memory;  ///< all there is, by address
  HandleTable<Stream, HandleKind::stream> streams;
  HandleTable<Event, HandleKind::event> events;
  HandleTable<Pool, HandleKind::pool> pools;
  HandleTable<UserObject, HandleKind::user_object> user_objects;
  HandleTable<GraphNode, HandleKind::node> nodes;
  HandleTable<Graph, HandleKind::graph> graphs;
  HandleTable<GraphExec, HandleKind::graph_exec> graph_execs;
  Captures captures{*this};

  /// A new stream of the device, with a handle when the program gets one.
  Ref<Stream> create_stream(Device& device, unsigned flags, int priority, bool with_handle);
  /// A stream for a branch of a graph.
  Ref<Stream> create_branch_stream(Device& device);
  /// The default stream of one thread on one device; made on first use.
  Stream& per_thread_stream(std::uint64_t thread, Device& device);
  /// The thread ends: its default streams go when they are empty.
  void forget_thread(std::uint64_t thread);

  /// `file`: of a pool that other processes open, or (`imported`) that this one has opened.
  Ref<Pool> create_pool(const PoolPlace& place, std::size_t max_bytes,
                        std::shared_ptr<SharedFile> file = nullptr, bool imported = false);
  /// Of managed memory they are made on first use.
  PoolChoice& pools_of(const PoolPlace& place);
  /// How many pools are none of the program's.
  std::size_t default_pools() const { return devices.size() + managed_pools_.size(); }
  /// The place that the program names. The host is one node of memory, with number 0.
  cudaError_t find_location(const cudaMemLocation& asked, PageLocation& found) const;

  Ref<Graph> create_graph();
  /// How many graphs are the program's: neither child graphs nor still being captured.
  std::size_t count_graphs() const;
  /// Drops references; with the last one the program's object is destroyed, on another thread.
  cudaError_t release_user_object(UserObject& object, unsigned count);

  /// The program frees memory that a graph has left behind.
  cudaError_t free_graph_memory(void* data);

  /// Takes the stream's handle away.
  void destroy(Stream& stream);
  void destroy_graphs();
  /// Destroys what the program still holds on a device; its work is done.
  void destroy_all(const Device& device);

  /// Blocks until the streams of `device` (null: of all) are at the end of what they hold now.
  /// False: the process unloads the runtime.
  bool await_idle(Lock& lock, const Device* device, bool acquire_order);
  /// The host has waited for this place: memory that was freed before it can be used again.
  void settle(const Mark& mark);
  /// The host waits for the device, or (`blocking`) for its legacy default stream: that is also for
  /// the streams that have ended.
  void settle_ended(const Device& device, bool blocking);
  /// Cached memory of pools beyond their thresholds goes back.
  void trim_pools();
  /// `allocate()`, and once more without the memory that the device's pools cache, if it is short.
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
