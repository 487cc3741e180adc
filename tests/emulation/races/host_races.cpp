// SPDX-License-Identifier: Apache-2.0

// The host touches memory that the device still uses.

#include <condition_variable>
#include <mutex>
#include <thread>

#include "races.hpp"

namespace races {
namespace {

void overwrite_source(Version version) {
  const Pinned host;
  const Device device;
  const penstock::Stream stream;
  host.fill(1);
  copy(device, host, stream.get());
  if (version == Version::right) stream.synchronize();
  host.fill(2);
  stream.synchronize();
}

void read_result(Version version) {
  const Pinned host;
  const Device device;
  const penstock::Stream stream;
  copy(host, device, stream.get());
  if (version == Version::right) stream.synchronize();
  host.read();
  stream.synchronize();
}

void stream_wait_for_host_wait(Version version) {
  const Pinned host;
  const Device device;
  const penstock::Stream stream, other;
  penstock::Event copied;
  host.fill(1);
  copy(device, host, stream.get());
  copied.record(stream.get());
  if (version == Version::right)
    copied.synchronize();
  else
    copied.make_wait(other.get());  // orders streams; the host runs on
  host.fill(2);
  stream.synchronize();
}

void hand_to_other_thread(Version version) {
  const Pinned host;
  const Device device;
  const penstock::Stream stream;
  std::mutex mutex;
  std::condition_variable handed_over;
  bool free = false;
  std::thread filler([&] {  // as a worker that fills the next batch into a free block
    std::unique_lock lock(mutex);
    handed_over.wait(lock, [&] { return free; });
    host.fill(2);
  });
  host.fill(1);
  copy(device, host, stream.get());
  if (version == Version::right) stream.synchronize();
  {
    const std::lock_guard lock(mutex);
    free = true;
  }
  handed_over.notify_one();
  filler.join();
  stream.synchronize();
}

void overwrite_graph_source(Version version) {
  const Pinned host;
  const Device device;
  const penstock::Stream stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  penstock::detail::check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
                          "cudaStreamBeginCapture");
  copy(device, host, stream.get());
  penstock::detail::check(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
  penstock::detail::check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  host.fill(1);
  penstock::detail::check(cudaGraphLaunch(exec, stream.get()), "cudaGraphLaunch");
  if (version == Version::right) stream.synchronize();
  host.fill(2);
  stream.synchronize();
  penstock::detail::check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
  penstock::detail::check(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

/// Managed memory may be written during its prefetch, and not while the device writes it.
void write_during_prefetch(Version version) {
  const penstock::Stream stream;
  void* memory = nullptr;
  must(cudaMallocManaged(&memory, size, cudaMemAttachGlobal));
  if (is_right(version))
    must(cudaMemPrefetchAsync(memory, size, {cudaMemLocationTypeDevice, 0}, 0, stream.get()));
  else
    must(cudaMemsetAsync(memory, 1, size, stream.get()));
  for (std::size_t i = 0; i < size; ++i) static_cast<volatile unsigned char*>(memory)[i] = 2;
  stream.synchronize();
  must(cudaFree(memory));
}

}  // namespace

const std::vector<Scenario> host_races{
    {"overwrite_source", overwrite_source},
    {"read_result", read_result},
    {"stream_wait_for_host_wait", stream_wait_for_host_wait},
    {"hand_to_other_thread", hand_to_other_thread},
    {"overwrite_graph_source", overwrite_graph_source},
    {"write_during_prefetch", write_during_prefetch},
};

}  // namespace races
