// SPDX-License-Identifier: Apache-2.0

// Waits that are not what they look like: for the wrong event, stream, device or moment; calls that
// are no waits; arguments and memory that live too short.

#include <array>
#include <atomic>
#include <mutex>
#include <thread>

#include "races.hpp"

namespace races {
namespace {

// ---- The wrong event or stream

void wait_in_the_wrong_stream(Version version) {
  const Trip trip;
  const Pinned again;
  const penstock::Stream writer, reader, other;
  penstock::Event written;
  trip.queue(writer.get());
  written.record(writer.get());
  written.make_wait(is_right(version) ? reader.get() : other.get());
  copy(again, trip.device, reader.get());
  reader.synchronize();
  writer.synchronize();
}

void record_on_the_wrong_stream(Version version) {
  const Trip trip;
  const Pinned again;
  const penstock::Stream writer, reader, other;
  penstock::Event written;
  trip.queue(writer.get());
  written.record(is_right(version) ? writer.get() : other.get());
  written.make_wait(reader.get());
  copy(again, trip.device, reader.get());
  reader.synchronize();
  writer.synchronize();
}

void one_event_for_two_consumers(Version version) {
  const std::array<Pinned, 2> results;
  const Pinned source;
  const Device slot;
  const penstock::Stream loader;
  const std::array<penstock::Stream, 2> consumers;
  std::array<penstock::Event, 2> consumed;
  penstock::Event loaded;
  source.fill(1);
  copy(slot, source, loader.get());
  loaded.record(loader.get());
  for (std::size_t i = 0; i < 2; ++i) {
    loaded.make_wait(consumers[i].get());
    copy(results[i], slot, consumers[i].get());
    consumed[is_right(version) ? i : 0].record(consumers[i].get());  // The last record counts.
  }
  for (penstock::Event& event : consumed) event.make_wait(loader.get());
  copy(slot, source, loader.get());
  loader.synchronize();
  for (const penstock::Stream& consumer : consumers) consumer.synchronize();
}

void more_events_than_slots(Version version) {
  const std::array<Pinned, 3> slots;
  const Device device;
  const penstock::Stream stream;
  std::array<penstock::Event, 4> copied;
  const std::size_t events = is_right(version) ? slots.size() : copied.size();
  for (std::size_t batch = 0; batch < 9; ++batch) {
    const std::size_t slot = batch % slots.size(), event = batch % events;
    copied[event].synchronize();  // With four events it is that of the batch before the right one.
    slots[slot].fill(static_cast<unsigned char>(batch));
    copy(device, slots[slot], stream.get());
    copied[event].record(stream.get());
  }
  stream.synchronize();
}

void wait_for_the_batch_before(Version version) {
  const std::array<Pinned, 2> slots;
  const Device device;
  const penstock::Stream stream;
  std::array<penstock::Event, 2> copied;
  for (std::size_t batch = 0; batch < 6; ++batch) {
    const std::size_t slot = batch % 2;
    slots[slot].fill(static_cast<unsigned char>(batch));
    copy(device, slots[slot], stream.get());
    copied[slot].record(stream.get());
    if (batch > 0) copied[is_right(version) ? 1 - slot : slot].synchronize();
    if (!is_right(version) && batch == 0) slots[0].fill(9);
  }
  stream.synchronize();
}

void device_wait_before_the_last_copy(Version version) {
  const Trip trip;
  const penstock::Stream stream;
  if (!is_right(version)) must(cudaDeviceSynchronize());
  trip.queue(stream.get());
  if (is_right(version)) must(cudaDeviceSynchronize());
  trip.result.read();
  stream.synchronize();
}

void wait_for_one_of_two_streams(Version version) {
  const Trip one, other;
  const penstock::Stream first, second;
  one.queue(first.get());
  other.queue(second.get());
  first.synchronize();
  if (is_right(version)) second.synchronize();
  one.result.read();
  other.result.read();
  second.synchronize();
}

void stream_wait_is_no_wait_of_the_host(Version version) {
  const Trip trip;
  const penstock::Stream stream, other;
  penstock::Event done;
  trip.queue(stream.get());
  done.record(stream.get());
  done.make_wait(other.get());
  if (is_right(version)) other.synchronize();  // which has waited for the event
  trip.source.fill(2);
  stream.synchronize();
}

void event_that_was_never_recorded(Version version) {
  const Trip trip;
  const penstock::Stream stream;
  penstock::Event done;
  trip.queue(stream.get());
  if (is_right(version)) done.record(stream.get());
  done.synchronize();
  trip.result.read();
  stream.synchronize();
}

void query_is_not_looked_at(Version version) {
  const Trip trip;
  const penstock::Stream stream, idle;
  trip.queue(stream.get());
  const cudaStream_t asked = is_right(version) ? stream.get() : idle.get();
  while (cudaStreamQuery(asked) != cudaSuccess) std::this_thread::yield();
  trip.result.read();
  stream.synchronize();
}

// ---- No waits

void sleep_is_no_wait(Version version) {
  const Trip trip;
  const penstock::Stream stream;
  trip.queue(stream.get());
  let_work_end();
  if (is_right(version)) stream.synchronize();
  trip.result.read();
  stream.synchronize();
}

void destroyed_stream_is_no_wait(Version version) {
  const Trip trip;
  {
    const penstock::Stream stream;
    trip.queue(stream.get());
    if (is_right(version)) stream.synchronize();
  }
  trip.source.fill(2);
  must(cudaDeviceSynchronize());
}

void destroyed_event_is_no_wait(Version version) {
  const Trip trip;
  const penstock::Stream stream;
  {
    penstock::Event done;
    trip.queue(stream.get());
    done.record(stream.get());
    if (is_right(version)) done.synchronize();
  }
  trip.source.fill(2);
  stream.synchronize();
}

void free_is_no_wait(Version version) {
  const Trip trip;
  void* unrelated = nullptr;
  must(cudaMalloc(&unrelated, size));
  const penstock::Stream stream;
  trip.queue(stream.get());
  must(cudaFree(unrelated));  // It waits here; CUDA does not promise it.
  if (is_right(version)) stream.synchronize();
  trip.result.read();
  stream.synchronize();
}

void free_of_host_memory_is_no_wait(Version version) {
  const Trip trip;
  void* unrelated = nullptr;
  must(cudaMallocHost(&unrelated, size));
  const penstock::Stream stream;
  trip.queue(stream.get());
  must(cudaFreeHost(unrelated));
  if (is_right(version)) stream.synchronize();
  trip.source.fill(2);
  stream.synchronize();
}

void unregistering_is_no_wait(Version version) {
  const Trip trip;
  std::vector<unsigned char> memory(size);
  must(cudaHostRegister(memory.data(), size, cudaHostRegisterDefault));
  const penstock::Stream stream;
  trip.queue(stream.get());
  must(cudaHostUnregister(memory.data()));
  if (is_right(version)) stream.synchronize();
  trip.source.fill(2);
  stream.synchronize();
}

void full_queue_is_no_wait(Version version) {
  const Trip trip;
  const penstock::Stream stream;
  trip.queue(stream.get());
  for (int i = 0; i < 1100; ++i) must(cudaMemsetAsync(trip.device.data(), 1, 8, stream.get()));
  if (is_right(version)) stream.synchronize();  // The call blocked until the first were done.
  trip.source.fill(2);
  stream.synchronize();
}

void priority_is_no_order(Version version) {
  int least = 0, greatest = 0;
  must(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  const Trip trip;
  const Pinned again;
  const penstock::Stream urgent(greatest), other(least);
  penstock::Event written;
  trip.queue(urgent.get());
  written.record(urgent.get());
  if (is_right(version)) written.make_wait(other.get());
  copy(again, trip.device, other.get());
  other.synchronize();
  urgent.synchronize();
}

void upload_is_no_launch(Version version) {
  const Pinned source;
  const Device device;
  const penstock::Stream one, other;
  source.fill(1);
  const cudaGraphExec_t exec = capture(one.get(), [&] { copy(device, source, one.get()); });
  must(cudaGraphLaunch(exec, one.get()));
  if (is_right(version))
    must(cudaGraphLaunch(exec, other.get()));  // after the first launch
  else
    must(cudaGraphUpload(exec, other.get()));
  other.synchronize();
  source.fill(2);
  one.synchronize();
  must(cudaGraphExecDestroy(exec));
}

void prefetch_to_the_host_is_no_wait(Version version) {
  const penstock::Stream stream;
  void* memory = nullptr;
  must(cudaMallocManaged(&memory, size, cudaMemAttachGlobal));
  must(cudaMemsetAsync(memory, 1, size, stream.get()));
  must(cudaMemPrefetchAsync(memory, size, {cudaMemLocationTypeHost, 0}, 0, stream.get()));
  if (is_right(version)) stream.synchronize();
  static_cast<volatile unsigned char*>(memory)[0] = 2;
  stream.synchronize();
  must(cudaFree(memory));
}

void managed_memory_of_two_streams(Version version) {
  const penstock::Stream writer, reader;
  const Pinned result;
  penstock::Event written;
  void* memory = nullptr;
  must(cudaMallocManaged(&memory, size, cudaMemAttachGlobal));
  must(cudaMemsetAsync(memory, 1, size, writer.get()));
  written.record(writer.get());
  if (is_right(version)) written.make_wait(reader.get());
  must(cudaMemcpyAsync(result.data(), memory, size, cudaMemcpyDefault, reader.get()));
  reader.synchronize();
  writer.synchronize();
  must(cudaFree(memory));
}

// ---- Default streams

void default_streams_of_two_threads(Version version) {
  const Trip trip;
  const Pinned again;
  penstock::Event written;
  std::thread([&] {
    trip.queue(cudaStreamPerThread);
    written.record(cudaStreamPerThread);
  }).join();
  std::thread([&] {
    if (is_right(version)) written.make_wait(cudaStreamPerThread);
    copy(again, trip.device, cudaStreamPerThread);
    must(cudaStreamSynchronize(cudaStreamPerThread));
  }).join();
  must(cudaDeviceSynchronize());
}

void legacy_stream_waits_for_default_stream_of_a_thread(Version version) {
  const Trip trip;
  const Pinned again;
  const penstock::Stream non_blocking;
  std::thread([&] { trip.queue(cudaStreamPerThread); }).join();
  copy(again, trip.device, is_right(version) ? cudaStreamLegacy : non_blocking.get());
  must(cudaDeviceSynchronize());
}

void legacy_work_between_blocking_streams(Version version) {
  const Trip trip;
  const Pinned again;
  const Device other;
  std::array<cudaStream_t, 2> streams{};
  for (cudaStream_t& stream : streams) must(cudaStreamCreateWithFlags(&stream, cudaStreamDefault));
  trip.queue(streams[0]);
  if (is_right(version)) must(cudaMemsetAsync(other.data(), 0, size, cudaStreamLegacy));
  copy(again, trip.device, streams[1]);
  must(cudaDeviceSynchronize());
  for (const cudaStream_t stream : streams) must(cudaStreamDestroy(stream));
}

void wait_of_another_thread_for_its_default_stream(Version version) {
  const Trip trip;
  std::thread([&] {
    trip.queue(cudaStreamPerThread);
    if (is_right(version)) must(cudaStreamSynchronize(cudaStreamPerThread));
  }).join();
  must(cudaStreamSynchronize(cudaStreamPerThread));  // that of this thread
  trip.result.read();
  must(cudaDeviceSynchronize());
}

// ---- Host functions

void argument_of_a_host_function(Version version) {
  const penstock::Stream stream;
  std::array<Number, 4> numbers;
  const auto read = [](void* data) { static_cast<void>(static_cast<Number*>(data)->value); };
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    Number& number = numbers[is_right(version) ? i : 0];
    number.value = static_cast<int>(i);
    must(cudaLaunchHostFunc(stream.get(), read, &number));
  }
  stream.synchronize();
}

void callback_writes_host_memory(Version version) {
  const penstock::Stream stream;
  Number number;
  const auto write = [](cudaStream_t, cudaError_t, void* data) {
    static_cast<Number*>(data)->value = 1;
  };
  must(cudaStreamAddCallback(stream.get(), write, &number, 0));
  if (is_right(version)) stream.synchronize();
  number.add_one();
  stream.synchronize();
}

void host_function_reads_a_result(Version version) {
  const Trip trip;
  const penstock::Stream stream, other;
  const auto read = [](void* data) { static_cast<const Pinned*>(data)->read(); };
  trip.queue(stream.get());
  must(cudaLaunchHostFunc(is_right(version) ? stream.get() : other.get(), read,
                          const_cast<Pinned*>(&trip.result)));
  other.synchronize();
  stream.synchronize();
}

void host_function_of_a_graph(Version version) {
  const penstock::Stream stream;
  Number number;
  const auto add = [](void* data) { static_cast<Number*>(data)->add_one(); };
  const cudaGraphExec_t exec =
      capture(stream.get(), [&] { must(cudaLaunchHostFunc(stream.get(), add, &number)); });
  must(cudaGraphLaunch(exec, stream.get()));
  must(cudaGraphLaunch(exec, stream.get()));
  if (is_right(version)) stream.synchronize();
  number.add_one();
  stream.synchronize();
  must(cudaGraphExecDestroy(exec));
}

void host_functions_of_two_streams(Version version) {
  const penstock::Stream one, other;
  penstock::Event done;
  Number number;
  const auto add = [](void* data) { static_cast<Number*>(data)->add_one(); };
  must(cudaLaunchHostFunc(one.get(), add, &number));
  done.record(one.get());
  if (is_right(version)) done.make_wait(other.get());
  must(cudaLaunchHostFunc(other.get(), add, &number));
  other.synchronize();
  one.synchronize();
}

// ---- Graphs

void result_of_a_graph(Version version) {
  const Trip trip;
  const penstock::Stream stream;
  const cudaGraphExec_t exec = capture(stream.get(), [&] { trip.queue(stream.get()); });
  must(cudaGraphLaunch(exec, stream.get()));
  if (is_right(version)) stream.synchronize();
  trip.result.read();
  stream.synchronize();
  must(cudaGraphExecDestroy(exec));
}

void graph_beside_a_stream(Version version) {
  const Trip trip;
  const Pinned again;
  const penstock::Stream stream, reader;
  penstock::Event launched;
  const cudaGraphExec_t exec = capture(stream.get(), [&] { trip.queue(stream.get()); });
  if (!is_right(version)) launched.record(stream.get());  // too early
  must(cudaGraphLaunch(exec, stream.get()));
  if (is_right(version)) launched.record(stream.get());
  launched.make_wait(reader.get());
  copy(again, trip.device, reader.get());
  reader.synchronize();
  stream.synchronize();
  must(cudaGraphExecDestroy(exec));
}

void two_graphs_of_one_buffer(Version version) {
  const Trip trip;
  const Pinned again;
  const penstock::Stream one, other;
  penstock::Event written;
  const cudaGraphExec_t writer = capture(one.get(), [&] { trip.queue(one.get()); });
  const cudaGraphExec_t reader =
      capture(other.get(), [&] { copy(again, trip.device, other.get()); });
  must(cudaGraphLaunch(writer, one.get()));
  written.record(one.get());
  if (is_right(version)) written.make_wait(other.get());
  must(cudaGraphLaunch(reader, other.get()));
  other.synchronize();
  one.synchronize();
  must(cudaGraphExecDestroy(writer));
  must(cudaGraphExecDestroy(reader));
}

void graph_is_fed_for_the_next_launch(Version version) {
  const Trip trip;
  const penstock::Stream stream;
  const cudaGraphExec_t exec = capture(stream.get(), [&] { trip.queue(stream.get()); });
  for (unsigned char step = 0; step < 3; ++step) {
    if (is_right(version)) stream.synchronize();
    trip.source.fill(step);
    must(cudaGraphLaunch(exec, stream.get()));
  }
  stream.synchronize();
  must(cudaGraphExecDestroy(exec));
}

void updated_graph(Version version) {
  const Trip trip, next;
  const penstock::Stream stream;
  const cudaGraphExec_t exec = capture(stream.get(), [&] { trip.queue(stream.get()); });
  cudaGraph_t graph = nullptr;
  must(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  next.queue(stream.get());
  must(cudaStreamEndCapture(stream.get(), &graph));
  must(cudaGraphLaunch(exec, stream.get()));
  cudaGraphExecUpdateResultInfo info{};
  must(cudaGraphExecUpdate(exec, graph, &info));  // The launch still works with `trip`.
  (is_right(version) ? next : trip).source.fill(2);
  must(cudaGraphLaunch(exec, stream.get()));
  stream.synchronize();
  must(cudaGraphExecDestroy(exec));
  must(cudaGraphDestroy(graph));
}

// ---- What cannot be seen

void memory_is_freed_while_it_is_used(Version version) {
  void* memory = nullptr;
  must(cudaMalloc(&memory, size));
  const penstock::Stream stream;
  must(cudaMemsetAsync(memory, 1, size, stream.get()));
  if (is_right(version)) stream.synchronize();
  must(cudaFree(memory));
  stream.synchronize();
}

void host_memory_is_freed_while_it_is_used(Version version) {
  void* memory = nullptr;
  must(cudaMallocHost(&memory, size));
  const penstock::Stream stream;
  must(cudaMemsetAsync(memory, 1, size, stream.get()));
  if (is_right(version)) stream.synchronize();
  must(cudaFreeHost(memory));
  stream.synchronize();
}

void registration_ends_while_memory_is_used(Version version) {
  std::vector<unsigned char> memory(size);
  must(cudaHostRegister(memory.data(), size, cudaHostRegisterDefault));
  const penstock::Stream stream;
  must(cudaMemsetAsync(memory.data(), 1, size, stream.get()));
  if (is_right(version)) stream.synchronize();
  must(cudaHostUnregister(memory.data()));
  stream.synchronize();
}

void host_function_far_behind_the_first_bytes(Version version) {
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  const penstock::Stream owner, user;
  penstock::Event allocated;
  void* memory = nullptr;
  must(cudaMallocAsync(&memory, kBytes, owner.get()));
  allocated.record(owner.get());
  if (is_right(version)) allocated.make_wait(user.get());
  const auto write = [](void* data) { static_cast<unsigned char*>(data)[kBytes - 1] = 1; };
  must(cudaLaunchHostFunc(user.get(), write, memory));
  user.synchronize();
  owner.synchronize();
  must(cudaFreeAsync(memory, owner.get()));
  owner.synchronize();
}

void order_that_only_a_mutex_decides(Version version) {
  const penstock::Stream one, other;
  penstock::Event done;
  struct Shared {
    std::mutex mutex;
    int steps = 0;
  } shared;
  const auto step = [](void* data) {
    auto& now = *static_cast<Shared*>(data);
    const std::lock_guard lock(now.mutex);
    ++now.steps;  // One stream's step has to be the first: no wait says so.
  };
  must(cudaLaunchHostFunc(one.get(), step, &shared));
  done.record(one.get());
  if (is_right(version)) done.make_wait(other.get());
  must(cudaLaunchHostFunc(other.get(), step, &shared));
  other.synchronize();
  one.synchronize();
}

}  // namespace

const std::vector<Scenario> mistakes{
    {"wait_in_the_wrong_stream", wait_in_the_wrong_stream},
    {"record_on_the_wrong_stream", record_on_the_wrong_stream},
    {"one_event_for_two_consumers", one_event_for_two_consumers},
    {"more_events_than_slots", more_events_than_slots},
    {"wait_for_the_batch_before", wait_for_the_batch_before},
    {"device_wait_before_the_last_copy", device_wait_before_the_last_copy},
    {"wait_for_one_of_two_streams", wait_for_one_of_two_streams},
    {"stream_wait_is_no_wait_of_the_host", stream_wait_is_no_wait_of_the_host},
    {"event_that_was_never_recorded", event_that_was_never_recorded},
    {"query_is_not_looked_at", query_is_not_looked_at},
    {"sleep_is_no_wait", sleep_is_no_wait},
    {"destroyed_stream_is_no_wait", destroyed_stream_is_no_wait},
    {"destroyed_event_is_no_wait", destroyed_event_is_no_wait},
    {"free_is_no_wait", free_is_no_wait},
    {"free_of_host_memory_is_no_wait", free_of_host_memory_is_no_wait},
    {"unregistering_is_no_wait", unregistering_is_no_wait},
    {"full_queue_is_no_wait", full_queue_is_no_wait},
    {"priority_is_no_order", priority_is_no_order},
    {"upload_is_no_launch", upload_is_no_launch},
    {"prefetch_to_the_host_is_no_wait", prefetch_to_the_host_is_no_wait},
    {"managed_memory_of_two_streams", managed_memory_of_two_streams},
    {"default_streams_of_two_threads", default_streams_of_two_threads},
    {"legacy_stream_waits_for_default_stream_of_a_thread",
     legacy_stream_waits_for_default_stream_of_a_thread},
    {"legacy_work_between_blocking_streams", legacy_work_between_blocking_streams},
    {"wait_of_another_thread_for_its_default_stream",
     wait_of_another_thread_for_its_default_stream},
    {"argument_of_a_host_function", argument_of_a_host_function},
    {"callback_writes_host_memory", callback_writes_host_memory},
    {"host_function_reads_a_result", host_function_reads_a_result},
    {"host_function_of_a_graph", host_function_of_a_graph},
    {"host_functions_of_two_streams", host_functions_of_two_streams},
    {"result_of_a_graph", result_of_a_graph},
    {"graph_beside_a_stream", graph_beside_a_stream},
    {"two_graphs_of_one_buffer", two_graphs_of_one_buffer},
    {"graph_is_fed_for_the_next_launch", graph_is_fed_for_the_next_launch},
    {"updated_graph", updated_graph},
    {"memory_is_freed_while_it_is_used", memory_is_freed_while_it_is_used,
     "cudaFree waits for the device, here and on a GPU, and nobody touches the bytes afterwards. "
     "CUDA "
     "does not promise the wait."},
    {"host_memory_is_freed_while_it_is_used", host_memory_is_freed_while_it_is_used,
     "cudaFreeHost waits for all devices, here and on a GPU, and nobody touches the bytes "
     "afterwards. "
     "CUDA does not promise the wait."},
    {"registration_ends_while_memory_is_used", registration_ends_while_memory_is_used,
     "cudaHostUnregister waits for all devices, and nobody touches the bytes afterwards."},
    {"host_function_far_behind_the_first_bytes", host_function_far_behind_the_first_bytes,
     "Only the first MiB of a stream-ordered allocation is watched for host functions: to watch "
     "all of "
     "it would take as long as filling it."},
    {"order_that_only_a_mutex_decides", order_that_only_a_mutex_decides,
     "A mutex orders the two host functions, one way or the other: that is no data race, although "
     "the "
     "result depends on the order. A test of the result has to find it."},
};

}  // namespace races
