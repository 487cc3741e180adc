// SPDX-License-Identifier: Apache-2.0

// Streams that are destroyed with work in them, and threads that end with work in their default
// streams. The work has ended before somebody waits for the device or the legacy default stream,
// and that wait is for it nevertheless.

#include <penstock/emulation.hpp>
#include <thread>
#include <vector>

#include "races.hpp"

namespace races {
namespace {

void write(void* number) {
  static_cast<Number*>(number)->value = 1;
}

template <class Work>
void on_thread(Work work) {
  std::thread(work).join();
}

cudaStream_t make_stream(unsigned flags) {
  cudaStream_t stream = nullptr;
  must(cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}

/// Queues the trip on a stream of that kind, which is gone when its work has ended.
void queue_and_destroy(const Trip& trip, unsigned flags) {
  const cudaStream_t stream = make_stream(flags);
  trip.queue(stream);
  must(cudaStreamDestroy(stream));
}

/// The worker's stream is blocking where the version is right. Otherwise the legacy default stream
/// does not wait for it.
void leave_work_behind(const Trip& trip, Version version) {
  on_thread([&] {
    queue_and_destroy(trip, is_right(version) ? cudaStreamDefault : cudaStreamNonBlocking);
  });
  let_work_end();
}

// ---- A wait for the device

void device_wait_after_destroyed_stream(Version version) {
  const Trip trip;
  on_thread([&] { queue_and_destroy(trip, cudaStreamNonBlocking); });
  let_work_end();
  if (is_right(version)) must(cudaDeviceSynchronize());
  trip.result.read();
}

void device_wait_after_stream_of_same_thread(Version version) {
  const Trip trip;
  queue_and_destroy(trip, cudaStreamNonBlocking);
  let_work_end();
  if (is_right(version)) must(cudaDeviceSynchronize());
  trip.source.fill(2);
}

void device_wait_after_ended_thread(Version version) {
  const Trip trip;
  on_thread([&] { trip.queue(cudaStreamPerThread); });
  let_work_end();
  if (is_right(version)) must(cudaDeviceSynchronize());
  trip.result.read();
}

void device_wait_after_many_workers(Version version) {
  const std::vector<Trip> trips(8);
  std::vector<std::thread> workers;
  for (std::size_t worker = 0; worker < 4; ++worker)
    workers.emplace_back([&, worker] {
      queue_and_destroy(trips[2 * worker], cudaStreamNonBlocking);
      queue_and_destroy(trips[2 * worker + 1], cudaStreamDefault);
    });
  for (std::thread& worker : workers) worker.join();
  let_work_end();
  if (is_right(version)) must(cudaDeviceSynchronize());
  for (const Trip& trip : trips) trip.result.read();
}

void device_wait_on_another_thread(Version version) {
  const Trip trip;
  on_thread([&] { queue_and_destroy(trip, cudaStreamNonBlocking); });
  let_work_end();
  on_thread([&] {
    if (is_right(version)) must(cudaDeviceSynchronize());
  });
  trip.result.read();
}

void device_wait_after_two_generations(Version version) {
  const Trip first, second;
  for (const Trip* trip : {&first, &second}) {
    on_thread([&] { queue_and_destroy(*trip, cudaStreamNonBlocking); });
    let_work_end();
    if (is_right(version) || trip == &first) must(cudaDeviceSynchronize());
  }
  first.result.read();
  second.result.read();
}

void device_wait_after_graph_in_destroyed_stream(Version version) {
  const Trip trip;
  on_thread([&] {
    const cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    trip.queue(stream);
    must(cudaStreamEndCapture(stream, &graph));
    must(cudaGraphInstantiate(&exec, graph, 0));
    must(cudaGraphLaunch(exec, stream));
    must(cudaGraphExecDestroy(exec));
    must(cudaGraphDestroy(graph));
    must(cudaStreamDestroy(stream));
  });
  let_work_end();
  if (is_right(version)) must(cudaDeviceSynchronize());
  trip.result.read();
}

void device_wait_after_host_function(Version version) {
  Number written;
  on_thread([&] {
    const cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    must(cudaLaunchHostFunc(stream, write, &written));
    must(cudaStreamDestroy(stream));
  });
  let_work_end();
  if (is_right(version)) must(cudaDeviceSynchronize());
  written.add_one();
}

void device_wait_after_callback(Version version) {
  Number written;
  const auto call = [](cudaStream_t, cudaError_t, void* number) { write(number); };
  on_thread([&] { must(cudaStreamAddCallback(cudaStreamPerThread, call, &written, 0)); });
  let_work_end();
  if (is_right(version)) must(cudaDeviceSynchronize());
  written.add_one();
}

void reset_after_destroyed_stream(Version version) {
  Number written;
  on_thread([&] {
    const cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    must(cudaLaunchHostFunc(stream, write, &written));
    must(cudaStreamDestroy(stream));
  });
  let_work_end();
  if (is_right(version)) must(cudaDeviceReset());
  written.add_one();
}

void emulation_reset_after_destroyed_stream(Version version) {
  Number written;
  on_thread([&] { must(cudaLaunchHostFunc(cudaStreamPerThread, write, &written)); });
  let_work_end();
  if (is_right(version)) penstock::emulation::reset(penstock::emulation::options());
  written.add_one();
}

void copy_to_peer_after_destroyed_stream(Version version) {
  const Device first;
  must(cudaSetDevice(1));
  const Device second;
  on_thread([&] {
    const cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    must(cudaMemsetAsync(first.data(), 1, size, stream));
    must(cudaStreamDestroy(stream));
  });
  let_work_end();
  if (is_right(version))  // CUDA: it begins when all that the devices were given has completed.
    must(cudaMemcpyPeer(second.data(), 1, first.data(), 0, size));
  else
    must(cudaMemcpyPeerAsync(second.data(), 1, first.data(), 0, size, cudaStreamLegacy));
  must(cudaDeviceSynchronize());
}

// ---- A wait for the legacy default stream, and work there

void legacy_wait_after_destroyed_stream(Version version) {
  const Trip trip;
  leave_work_behind(trip, version);
  must(cudaStreamSynchronize(cudaStreamLegacy));
  trip.result.read();
}

void legacy_wait_after_ended_thread(Version version) {
  const Trip trip;
  on_thread([&] { trip.queue(cudaStreamPerThread); });
  let_work_end();
  if (is_right(version)) must(cudaStreamSynchronize(cudaStreamLegacy));
  trip.result.read();
}

void legacy_query_after_destroyed_stream(Version version) {
  const Trip trip;
  leave_work_behind(trip, version);
  while (cudaStreamQuery(cudaStreamLegacy) == cudaErrorNotReady) std::this_thread::yield();
  trip.source.fill(2);
}

void legacy_copy_after_destroyed_stream(Version version) {
  const Trip trip;
  const Pinned again;
  leave_work_behind(trip, version);
  copy(again, trip.device, cudaStreamLegacy);
  must(cudaStreamSynchronize(cudaStreamLegacy));
}

void legacy_event_after_destroyed_stream(Version version) {
  const Trip trip;
  penstock::Event recorded;
  leave_work_behind(trip, version);
  recorded.record(cudaStreamLegacy);
  recorded.synchronize();
  trip.result.read();
}

void synchronous_copy_after_destroyed_stream(Version version) {
  const Trip trip;
  std::vector<unsigned char> host(size);
  leave_work_behind(trip, version);
  must(cudaMemcpy(host.data(), trip.device.data(), size, cudaMemcpyDeviceToHost));
}

void staged_copy_after_destroyed_stream(Version version) {
  const Trip trip;
  const std::vector<unsigned char> host(size, 3);
  leave_work_behind(trip, version);
  must(cudaMemcpy(trip.device.data(), host.data(), size, cudaMemcpyHostToDevice));
  must(cudaDeviceSynchronize());
}

void fill_after_destroyed_stream(Version version) {
  const Trip trip;
  leave_work_behind(trip, version);
  must(cudaMemset(trip.device.data(), 0, size));
  must(cudaDeviceSynchronize());
}

void blocking_stream_after_destroyed_one(Version version) {
  const Trip trip;
  const Device other;
  const Pinned again;
  const cudaStream_t reader = make_stream(cudaStreamDefault);
  on_thread([&] { queue_and_destroy(trip, cudaStreamDefault); });
  let_work_end();
  if (is_right(version))  // The legacy default stream orders what blocking streams do.
    must(cudaMemsetAsync(other.data(), 0, size, cudaStreamLegacy));
  copy(again, trip.device, reader);
  must(cudaStreamDestroy(reader));
  must(cudaDeviceSynchronize());
}

void event_of_destroyed_stream(Version version) {
  const Trip trip;
  penstock::Event done;
  on_thread([&] {
    const cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    trip.queue(stream);
    done.record(stream);
    must(cudaStreamDestroy(stream));
  });
  let_work_end();
  if (is_right(version)) done.synchronize();
  trip.result.read();
}

void stream_wait_for_event_of_ended_thread(Version version) {
  const Trip trip;
  const Pinned again;
  const penstock::Stream reader;
  penstock::Event done;
  on_thread([&] {
    trip.queue(cudaStreamPerThread);
    done.record(cudaStreamPerThread);
  });
  let_work_end();
  if (is_right(version)) done.make_wait(reader.get());
  copy(again, trip.device, reader.get());
  reader.synchronize();
}

}  // namespace

const std::vector<Scenario> ended_streams{
    {"device_wait_after_destroyed_stream", device_wait_after_destroyed_stream},
    {"device_wait_after_stream_of_same_thread", device_wait_after_stream_of_same_thread},
    {"device_wait_after_ended_thread", device_wait_after_ended_thread},
    {"device_wait_after_many_workers", device_wait_after_many_workers},
    {"device_wait_on_another_thread", device_wait_on_another_thread},
    {"device_wait_after_two_generations", device_wait_after_two_generations},
    {"device_wait_after_graph_in_destroyed_stream", device_wait_after_graph_in_destroyed_stream},
    {"device_wait_after_host_function", device_wait_after_host_function},
    {"device_wait_after_callback", device_wait_after_callback},
    {"reset_after_destroyed_stream", reset_after_destroyed_stream},
    {"emulation_reset_after_destroyed_stream", emulation_reset_after_destroyed_stream},
    {"copy_to_peer_after_destroyed_stream", copy_to_peer_after_destroyed_stream},
    {"legacy_wait_after_destroyed_stream", legacy_wait_after_destroyed_stream},
    {"legacy_wait_after_ended_thread", legacy_wait_after_ended_thread},
    {"legacy_query_after_destroyed_stream", legacy_query_after_destroyed_stream},
    {"legacy_copy_after_destroyed_stream", legacy_copy_after_destroyed_stream},
    {"legacy_event_after_destroyed_stream", legacy_event_after_destroyed_stream},
    {"synchronous_copy_after_destroyed_stream", synchronous_copy_after_destroyed_stream},
    {"staged_copy_after_destroyed_stream", staged_copy_after_destroyed_stream},
    {"fill_after_destroyed_stream", fill_after_destroyed_stream},
    {"blocking_stream_after_destroyed_one", blocking_stream_after_destroyed_one},
    {"event_of_destroyed_stream", event_of_destroyed_stream},
    {"stream_wait_for_event_of_ended_thread", stream_wait_for_event_of_ended_thread},
};

}  // namespace races
