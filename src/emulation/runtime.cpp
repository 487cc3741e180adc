// SPDX-License-Identifier: Apache-2.0
#include "runtime.hpp"

#include <cstdint>

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

Runtime::Runtime(std::mutex& mutex, const Options& asked, std::uint64_t number)
    : options(asked),
      era(number),
      memory(options),
      scheduler(mutex, options, memory, failures, timeline) {
  for (int index = 0; index < options.machine.devices; ++index) {
    devices.push_back(std::make_unique<Device>(index, options.machine));
    Device& device = *devices.back();
    device.legacy = Ref<Stream>(new Stream(StreamKind::legacy, device, 0, cudaStreamDefault, 0));
    device.legacy->handle = cudaStreamLegacy;
    scheduler.adopt(device.legacy);
    device.pools.own = create_pool({false, {cudaMemLocationTypeDevice, index}}, 0);
    device.pools.current = device.pools.own;
  }
}

Ref<Stream> Runtime::create_stream(Device& device, unsigned flags, int priority, bool with_handle) {
  Ref<Stream> stream(new Stream(StreamKind::created, device, ++streams_created_, flags, priority));
  scheduler.adopt(stream);
  if (with_handle) stream->handle = reinterpret_cast<cudaStream_t>(streams.add(stream));
  return stream;
}

Ref<Stream> Runtime::create_branch_stream(Device& device) {
  Ref<Stream> stream(new Stream(StreamKind::branch, device, 0, cudaStreamNonBlocking, 0));
  scheduler.adopt(stream);
  return stream;
}

Ref<Pool> Runtime::create_pool(const PoolPlace& place, std::size_t max_bytes,
                               std::shared_ptr<SharedFile> file, bool imported) {
  Ref<Pool> pool(new Pool(memory, place, max_bytes, std::move(file), imported));
  pool->handle = pools.add(pool);
  return pool;
}

PoolChoice& Runtime::pools_of(const PoolPlace& place) {
  if (!place.managed) return devices[static_cast<std::size_t>(place.device())]->pools;
  PoolChoice& choice = managed_pools_[place];
  if (!choice.own) choice.own = choice.current = create_pool(place, 0);
  return choice;
}

cudaError_t Runtime::find_location(const cudaMemLocation& asked, PageLocation& found) const {
  found = {asked.type, asked.id};
  switch (asked.type) {
    case cudaMemLocationTypeDevice:
      return asked.id >= 0 && asked.id < static_cast<int>(devices.size()) ? cudaSuccess
                                                                          : cudaErrorInvalidDevice;
    case cudaMemLocationTypeHost:
      found.id = 0;
      return cudaSuccess;
    case cudaMemLocationTypeHostNuma:
      return asked.id == 0 ? cudaSuccess : cudaErrorInvalidValue;
    case cudaMemLocationTypeHostNumaCurrent:
      found = {cudaMemLocationTypeHostNuma, 0};
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}

Ref<Graph> Runtime::create_graph() {
  Ref<Graph> graph(new Graph(*this));
  graph->handle = graphs.add(graph);
  return graph;
}

std::size_t Runtime::count_graphs() const {
  std::size_t count = 0;
  graphs.for_each([&](const Graph& graph) {
    if (graph.embedded == Embedded::no && !captures.makes(graph)) ++count;
  });
  return count;
}

cudaError_t Runtime::release_user_object(UserObject& object, unsigned count) {
  if (!object.release(count)) return cudaErrorInvalidValue;
  if (!object.unreferenced()) return cudaSuccess;
  scheduler.defer(object.destruction(), object.before_destruction());
  user_objects.remove(object.handle);
  return cudaSuccess;
}

cudaError_t Runtime::free_graph_memory(void* data) {
  const auto found = graph_memory.find(data);
  if (found == graph_memory.end() || !found->second->outlives_launch) return cudaErrorInvalidValue;
  found->second->outlives_launch = false;
  return cudaSuccess;
}

void Runtime::destroy(Stream& stream) {
  captures.forget(stream);
  const Ref<Stream> kept = streams.remove(reinterpret_cast<std::uint64_t>(stream.handle));
  scheduler.close(stream);
}

void Runtime::destroy_graphs() {
  captures.forget_all();
  for (const std::uint64_t handle : graph_execs.handles()) graph_execs.remove(handle);
  for (const std::uint64_t handle : graphs.handles()) graphs.remove(handle);
}

void Runtime::destroy_all(const Device& device) {
  for (const std::uint64_t handle : streams.handles())
    if (Stream* stream = streams.find(handle); &stream->device == &device) destroy(*stream);
  for (const std::uint64_t handle : events.handles())
    if (events.find(handle)->device() == device.index) events.remove(handle);
  std::vector<Allocation> owned;
  for (const auto& [address, allocation] : memory.all())
    if (allocation.device == device.index && allocation.origin != Origin::graph &&
        allocation.origin != Origin::pool)  // In CUDA, the program has to free these itself.
      owned.push_back(allocation);
  for (const Allocation& allocation : owned) memory.release(allocation.data);
  pools.for_each([&](Pool& pool) {
    if (pool.device() == device.index) pool.trim(0);
  });
}

Stream& Runtime::per_thread_stream(std::uint64_t thread, Device& device) {
  Ref<Stream>& stream = per_thread_[{thread, device.index}];
  if (!stream) {
    stream = create_stream(device, cudaStreamDefault, 0, false);
    stream->handle = cudaStreamPerThread;
  }
  return *stream;
}

void Runtime::forget_thread(std::uint64_t thread) {
  for (auto entry = per_thread_.begin(); entry != per_thread_.end();) {
    if (entry->first.first != thread) {
      ++entry;
      continue;
    }
    captures.forget(*entry->second);
    scheduler.close(*entry->second);
    entry = per_thread_.erase(entry);
  }
}

bool Runtime::await_idle(Lock& lock, const Device* device, bool acquire_order) {
  const auto concerned = [&](const Device& one) { return device == nullptr || device == &one; };
  for (const auto& one : devices)
    if (acquire_order && concerned(*one)) settle_ended(*one, false);
  std::vector<Mark> ends;
  for (const Ref<Stream>& stream : scheduler.streams())
    if (concerned(stream->device)) ends.push_back(stream->end());
  for (const Mark& end : ends) scheduler.demand(end);
  for (const Mark& end : ends) {
    if (!scheduler.await(lock, end)) return false;
    if (acquire_order) settle(end);
  }
  return true;
}

void Runtime::settle(const Mark& mark) {
  if (mark.edges) mark.edges->completed.acquire();
  pools.for_each([&](Pool& pool) {
    pool.settle([&](const Mark& freed) {
      return freed.stream.get() == mark.stream.get() && freed.sequence <= mark.sequence;
    });
  });
}

void Runtime::settle_ended(const Device& device, bool blocking) {
  blocking ? device.ended.acquire_blocking() : device.ended.acquire_all();
  pools.for_each([&](Pool& pool) {
    pool.settle([&](const Mark& freed) {
      const Stream* const stream = freed.stream.get();
      return stream != nullptr && &stream->device == &device && stream->closed &&
             (stream->blocking() || !blocking) && freed.reached();
    });
  });
}

void Runtime::trim_pools() {
  pools.for_each([](Pool& pool) { pool.trim_to_threshold(); });
}

}  // namespace penstock::emulation::detail
