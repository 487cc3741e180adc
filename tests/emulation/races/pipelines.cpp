// SPDX-License-Identifier: Apache-2.0

// The shapes that pipelines have: rings of slots, worker threads, events, graphs, host functions.

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "races.hpp"

namespace races {
namespace {

void to_device(const Device& to, const void* from, cudaStream_t stream) {
  must(cudaMemcpyAsync(to.data(), from, size, cudaMemcpyHostToDevice, stream));
}

// ---- Rings of slots

void ring_of_pinned_slots(Version version) {
  const std::array<Pinned, 2> slots;
  const Device device;
  const penstock::Stream stream;
  std::array<penstock::Event, 2> copied;
  for (std::size_t batch = 0; batch < 6; ++batch) {
    const std::size_t slot = batch % 2;
    if (is_right(version)) copied[slot].synchronize();
    slots[slot].fill(static_cast<unsigned char>(batch));
    copy(device, slots[slot], stream.get());
    copied[slot].record(stream.get());
  }
  stream.synchronize();
}

void ring_of_device_slots(Version version) {
  const std::array<Pinned, 6> sources;
  const Pinned result;
  const std::array<Device, 2> slots;
  const penstock::Stream loader, consumer;
  std::array<penstock::Event, 2> loaded, consumed;
  for (const Pinned& source : sources) source.fill(1);
  for (std::size_t batch = 0; batch < sources.size(); ++batch) {
    const std::size_t slot = batch % 2;
    if (is_right(version)) consumed[slot].make_wait(loader.get());
    copy(slots[slot], sources[batch], loader.get());
    loaded[slot].record(loader.get());
    loaded[slot].make_wait(consumer.get());
    copy(result, slots[slot], consumer.get());
    consumed[slot].record(consumer.get());
  }
  consumer.synchronize();
  loader.synchronize();
}

void ring_between_threads(Version version) {
  const std::array<Pinned, 2> slots;
  const Device device;
  std::array<penstock::Event, 2> copied;
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t filled = 0, queued = 0;
  constexpr std::size_t batches = 6;
  std::thread producer([&] {
    for (std::size_t batch = 0; batch < batches; ++batch) {
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return batch < queued + slots.size(); });
      }
      if (is_right(version)) copied[batch % 2].synchronize();
      slots[batch % 2].fill(static_cast<unsigned char>(batch));
      const std::lock_guard lock(mutex);
      filled = batch + 1;
      changed.notify_all();
    }
  });
  const penstock::Stream stream;
  for (std::size_t batch = 0; batch < batches; ++batch) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return batch < filled; });
    copy(device, slots[batch % 2], stream.get());
    copied[batch % 2].record(stream.get());
    queued = batch + 1;
    changed.notify_all();
  }
  producer.join();
  stream.synchronize();
}

// ---- Threads

void workers_with_streams(Version version) {
  const std::array<Pinned, 3> sources, results;
  const std::array<Device, 3> devices;
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < sources.size(); ++i)
    workers.emplace_back([&, i] {
      const penstock::Stream stream;
      sources[i].fill(1);
      copy(devices[i], sources[i], stream.get());
      copy(results[i], devices[i], stream.get());
      if (is_right(version)) stream.synchronize();
      results[i].read();
      stream.synchronize();
    });
  for (std::thread& worker : workers) worker.join();
}

void event_of_another_thread(Version version) {
  const Pinned source, result;
  const Device device;
  const penstock::Stream loader, consumer;
  penstock::Event loaded;
  std::thread([&] {
    source.fill(1);
    copy(device, source, loader.get());
    loaded.record(loader.get());
  }).join();
  std::thread([&] {
    if (is_right(version)) loaded.make_wait(consumer.get());
    copy(result, device, consumer.get());
    consumer.synchronize();
  }).join();
  result.read();
  loader.synchronize();
}

void wait_for_another_threads_stream(Version version) {
  const Pinned source, result;
  const Device device;
  const penstock::Stream stream, other;
  std::thread([&] {
    source.fill(1);
    copy(device, source, stream.get());
    copy(result, device, stream.get());
  }).join();
  std::thread([&] { (is_right(version) ? stream : other).synchronize(); }).join();
  result.read();
  stream.synchronize();
}

// ---- Queries

void poll_event(Version version) {
  const Pinned source;
  const Device device;
  const penstock::Stream stream;
  const penstock::Event early, late;
  source.fill(1);
  must(cudaEventRecord(early.get(), stream.get()));
  copy(device, source, stream.get());
  must(cudaEventRecord(late.get(), stream.get()));
  const cudaEvent_t asked = is_right(version) ? late.get() : early.get();
  while (cudaEventQuery(asked) == cudaErrorNotReady) std::this_thread::yield();
  source.fill(2);
  stream.synchronize();
}

void poll_stream(Version version) {
  const Pinned source;
  const Device device;
  const penstock::Stream stream, other;
  source.fill(1);
  copy(device, source, stream.get());
  const cudaStream_t asked = is_right(version) ? stream.get() : other.get();
  while (cudaStreamQuery(asked) == cudaErrorNotReady) std::this_thread::yield();
  source.fill(2);
  stream.synchronize();
}

void event_recorded_again(Version version) {
  const Pinned first, second;
  const Device device;
  const penstock::Stream stream, other;
  penstock::Event done;
  first.fill(1);
  second.fill(1);
  copy(device, first, stream.get());
  done.record(stream.get());
  copy(device, second, stream.get());
  done.record(is_right(version) ? stream.get() : other.get());
  done.synchronize();
  first.fill(2);
  second.fill(2);
  stream.synchronize();
}

// ---- Host functions

struct Signal {
  std::mutex mutex;
  std::condition_variable changed;
  bool set = false;
  std::atomic<bool> flag{false};
};

void host_function_signals(Version version) {
  const Pinned source, result;
  const Device device;
  const penstock::Stream stream;
  Signal signal;
  source.fill(1);
  copy(device, source, stream.get());
  copy(result, device, stream.get());
  const auto set = [](void* data) {
    auto& now = *static_cast<Signal*>(data);
    const std::lock_guard lock(now.mutex);
    now.set = true;
    now.changed.notify_all();
  };
  must(cudaLaunchHostFunc(stream.get(), set, &signal));
  if (is_right(version)) {
    std::unique_lock lock(signal.mutex);
    signal.changed.wait(lock, [&] { return signal.set; });
  }
  result.read();
  stream.synchronize();
}

void host_function_sets_flag(Version version) {
  const Pinned source;
  const Device device;
  const penstock::Stream stream;
  Signal signal;
  source.fill(1);
  copy(device, source, stream.get());
  const auto release = [](void* data) {
    static_cast<Signal*>(data)->flag.store(true, std::memory_order_release);
  };
  must(cudaLaunchHostFunc(stream.get(), release, &signal));
  const auto order = is_right(version) ? std::memory_order_acquire : std::memory_order_relaxed;
  while (!signal.flag.load(order)) std::this_thread::yield();
  source.fill(2);
  stream.synchronize();
}

void host_functions_share_a_counter(Version version) {
  const penstock::Stream one, other;
  struct Shared {
    std::mutex mutex;
    int count = 0;
    bool locks;
  } shared;
  shared.locks = is_right(version);
  const auto add = [](void* data) {
    auto& now = *static_cast<Shared*>(data);
    if (now.locks) {
      const std::lock_guard lock(now.mutex);
      ++now.count;
    } else {
      ++now.count;
    }
  };
  must(cudaLaunchHostFunc(one.get(), add, &shared));
  must(cudaLaunchHostFunc(other.get(), add, &shared));
  one.synchronize();
  other.synchronize();
}

void host_function_fills_source(Version version) {
  const Pinned source;
  const Device device;
  const penstock::Stream filler, loader;
  penstock::Event filled;
  const auto fill = [](void* data) { static_cast<const Pinned*>(data)->fill(1); };
  must(cudaLaunchHostFunc(filler.get(), fill, const_cast<Pinned*>(&source)));
  filled.record(filler.get());
  if (is_right(version)) filled.make_wait(loader.get());
  copy(device, source, loader.get());
  loader.synchronize();
  filler.synchronize();
}

// ---- Streams

void chain_of_three_streams(Version version) {
  const Pinned source, result;
  const Device first, second;
  const penstock::Stream loader, worker, reader;
  penstock::Event loaded, worked;
  source.fill(1);
  copy(first, source, loader.get());
  loaded.record(loader.get());
  loaded.make_wait(worker.get());
  must(cudaMemcpyAsync(second.data(), first.data(), size, cudaMemcpyDeviceToDevice, worker.get()));
  worked.record(worker.get());
  (is_right(version) ? worked : loaded).make_wait(reader.get());
  copy(result, second, reader.get());
  reader.synchronize();
  worker.synchronize();
}

void legacy_event_covers_blocking_streams(Version version) {
  const Pinned source;
  const Device device;
  penstock::Event covered;
  cudaStream_t stream = nullptr;
  must(cudaStreamCreateWithFlags(&stream,
                                 is_right(version) ? cudaStreamDefault : cudaStreamNonBlocking));
  source.fill(1);
  copy(device, source, stream);
  covered.record(cudaStreamLegacy);
  covered.synchronize();
  source.fill(2);
  must(cudaStreamSynchronize(stream));
  must(cudaStreamDestroy(stream));
}

void streams_of_two_devices(Version version) {
  const Pinned source, result;
  const Device device;
  const penstock::Stream loader;
  penstock::Event loaded;
  source.fill(1);
  copy(device, source, loader.get());
  loaded.record(loader.get());
  must(cudaSetDevice(1));
  const Device other;
  const penstock::Stream reader;
  if (is_right(version)) loaded.make_wait(reader.get());
  must(cudaMemcpyPeerAsync(other.data(), 1, device.data(), 0, size, reader.get()));
  copy(result, other, reader.get());
  reader.synchronize();
  loader.synchronize();
}

void device_wait_for_its_own_device(Version version) {
  const Pinned source;
  const Device device;
  const penstock::Stream stream;
  source.fill(1);
  copy(device, source, stream.get());
  must(cudaSetDevice(is_right(version) ? 0 : 1));
  must(cudaDeviceSynchronize());
  source.fill(2);
  stream.synchronize();
}

// ---- Memory of other kinds

void pageable_source(Version version) {
  std::vector<unsigned char> pageable(size, 1);
  const Pinned pinned;
  const Device device;
  const penstock::Stream stream;
  pinned.fill(1);
  unsigned char* const source = is_right(version) ? pageable.data() : pinned.data();
  to_device(device, source, stream.get());  // A pageable source was read when the call returns.
  source[0] = 2;
  stream.synchronize();
}

void registered_source(Version version) {
  std::vector<unsigned char> memory(size, 1);
  const Device device;
  const penstock::Stream stream;
  must(cudaHostRegister(memory.data(), size, cudaHostRegisterDefault));
  to_device(device, memory.data(), stream.get());
  if (is_right(version)) stream.synchronize();
  memory[0] = 2;
  stream.synchronize();
  must(cudaHostUnregister(memory.data()));
}

void managed_memory(Version version) {
  unsigned char* memory = nullptr;
  must(cudaMallocManaged(reinterpret_cast<void**>(&memory), size, cudaMemAttachGlobal));
  const penstock::Stream stream;
  must(cudaMemsetAsync(memory, 1, size, stream.get()));
  if (is_right(version)) stream.synchronize();
  memory[0] = 2;
  stream.synchronize();
  must(cudaFree(memory));
}

void fill_of_pinned_memory(Version version) {
  const Pinned memory;
  const penstock::Stream stream;
  if (is_right(version))  // It has completed when it returns.
    must(cudaMemset(memory.data(), 1, size));
  else
    must(cudaMemsetAsync(memory.data(), 1, size, stream.get()));
  memory.read();
  stream.synchronize();
}

// ---- Graphs

void branches_of_a_graph(Version version) {
  const Pinned source;
  const Device device;
  const penstock::Stream stream, branch;
  penstock::Event forked, joined;
  source.fill(1);
  const cudaGraphExec_t exec = capture(stream.get(), [&] {
    forked.record(stream.get());
    forked.make_wait(branch.get());
    copy(device, source, branch.get());
    joined.record(branch.get());
    if (is_right(version)) joined.make_wait(stream.get());
    must(cudaMemsetAsync(device.data(), 2, size, stream.get()));
    if (!is_right(version)) joined.make_wait(stream.get());
  });
  must(cudaGraphLaunch(exec, stream.get()));
  stream.synchronize();
  must(cudaGraphExecDestroy(exec));
}

void graph_in_two_streams(Version version) {
  const Pinned source;
  const Device device;
  const penstock::Stream one, other;
  source.fill(1);
  const cudaGraphExec_t exec = capture(one.get(), [&] { copy(device, source, one.get()); });
  must(cudaGraphLaunch(exec, one.get()));
  // A launch comes after the launch before it, in whichever stream.
  if (is_right(version)) must(cudaGraphLaunch(exec, other.get()));
  other.synchronize();
  source.fill(2);
  one.synchronize();
  must(cudaGraphExecDestroy(exec));
}

void graph_waits_for_external_event(Version version) {
  const Pinned source, result;
  const Device device;
  const penstock::Stream loader, reader;
  const penstock::Event loaded;
  const cudaGraphExec_t exec = capture(reader.get(), [&] {
    if (is_right(version))
      must(cudaStreamWaitEvent(reader.get(), loaded.get(), cudaEventWaitExternal));
    copy(result, device, reader.get());
  });
  source.fill(1);
  copy(device, source, loader.get());
  must(cudaEventRecord(loaded.get(), loader.get()));
  must(cudaGraphLaunch(exec, reader.get()));
  reader.synchronize();
  loader.synchronize();
  must(cudaGraphExecDestroy(exec));
}

void graph_records_external_event(Version version) {
  const Pinned source;
  const Device device;
  const penstock::Stream stream;
  const penstock::Event copied;
  source.fill(1);
  const cudaGraphExec_t exec = capture(stream.get(), [&] {
    copy(device, source, stream.get());
    must(cudaEventRecordWithFlags(copied.get(), stream.get(), cudaEventRecordExternal));
  });
  must(cudaGraphLaunch(exec, stream.get()));
  if (is_right(version)) must(cudaEventSynchronize(copied.get()));
  source.fill(2);
  stream.synchronize();
  must(cudaGraphExecDestroy(exec));
}

void user_object_frees_source(Version version) {
  auto* const source = new std::vector<unsigned char>(size, 1);
  const Device device;
  const penstock::Stream stream;
  must(cudaHostRegister(source->data(), size, cudaHostRegisterDefault));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  must(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  to_device(device, source->data(), stream.get());
  must(cudaStreamEndCapture(stream.get(), &graph));
  cudaUserObject_t object = nullptr;
  const auto write = [](void* data) { (*static_cast<std::vector<unsigned char>*>(data))[0] = 2; };
  must(cudaUserObjectCreate(&object, source, write, 1, cudaUserObjectNoDestructorSync));
  if (is_right(version))  // The graphs keep it, until their launches are done.
    must(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  must(cudaGraphInstantiate(&exec, graph, 0));
  must(cudaGraphDestroy(graph));
  must(cudaGraphLaunch(exec, stream.get()));
  if (!is_right(version)) must(cudaUserObjectRelease(object, 1));
  must(cudaGraphExecDestroy(exec));
  stream.synchronize();
  let_work_end();
  must(cudaHostUnregister(source->data()));
}

}  // namespace

const std::vector<Scenario> pipelines{
    {"ring_of_pinned_slots", ring_of_pinned_slots},
    {"ring_of_device_slots", ring_of_device_slots},
    {"ring_between_threads", ring_between_threads},
    {"workers_with_streams", workers_with_streams},
    {"event_of_another_thread", event_of_another_thread},
    {"wait_for_another_threads_stream", wait_for_another_threads_stream},
    {"poll_event", poll_event},
    {"poll_stream", poll_stream},
    {"event_recorded_again", event_recorded_again},
    {"host_function_signals", host_function_signals},
    {"host_function_sets_flag", host_function_sets_flag},
    {"host_functions_share_a_counter", host_functions_share_a_counter},
    {"host_function_fills_source", host_function_fills_source},
    {"chain_of_three_streams", chain_of_three_streams},
    {"legacy_event_covers_blocking_streams", legacy_event_covers_blocking_streams},
    {"streams_of_two_devices", streams_of_two_devices},
    {"device_wait_for_its_own_device", device_wait_for_its_own_device},
    {"pageable_source", pageable_source},
    {"registered_source", registered_source},
    {"managed_memory", managed_memory},
    {"fill_of_pinned_memory", fill_of_pinned_memory},
    {"branches_of_a_graph", branches_of_a_graph},
    {"graph_in_two_streams", graph_in_two_streams},
    {"graph_waits_for_external_event", graph_waits_for_external_event},
    {"graph_records_external_event", graph_records_external_event},
    {"user_object_frees_source", user_object_frees_source},
};

}  // namespace races
