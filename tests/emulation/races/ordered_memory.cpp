// SPDX-License-Identifier: Apache-2.0

// Stream-ordered memory: a use has to come after the allocation and before the free, also where
// the memory is not used again and nobody touches the same bytes.

#include <cstdint>
#include <thread>

#include "races.hpp"

namespace races {
namespace {

constexpr std::size_t kLarge = std::size_t{64}
                               << 20;  // more than race detection marks byte by byte

void* allocate(std::size_t bytes, cudaStream_t stream) {
  void* data = nullptr;
  must(cudaMallocAsync(&data, bytes, stream));
  return data;
}

unsigned char* at(void* data, std::size_t offset) {
  return static_cast<unsigned char*>(data) + offset;
}

/// Lets the default pool keep what is freed: a wrong version may still use it.
void keep_all_memory() {
  std::uint64_t all = ~std::uint64_t{0};
  cudaMemPool_t pool = nullptr;
  must(cudaDeviceGetDefaultMemPool(&pool, 0));
  must(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
}

/// Two streams, and how the second one is made to wait for the first.
struct Two {
  penstock::Stream owner, user;
  penstock::Event allocated, used;

  void let_user_wait() {
    allocated.record(owner.get());
    allocated.make_wait(user.get());
  }
  void let_owner_wait() {
    used.record(user.get());
    used.make_wait(owner.get());
  }
  void end() const {
    user.synchronize();
    owner.synchronize();
  }
};

/// Allocates in one stream, lets the other use the memory, and frees it when both are done.
template <class Use>
void use_after_allocation(Version version, std::size_t bytes, Use use) {
  Two streams;
  void* const data = allocate(bytes, streams.owner.get());
  if (is_right(version)) streams.let_user_wait();
  use(data, streams.user.get());
  streams.end();
  must(cudaFreeAsync(data, streams.owner.get()));
  streams.end();
}

/// The other stream uses the memory, and it is freed.
template <class Use>
void use_before_free(Version version, std::size_t bytes, Use use) {
  Two streams;
  void* const data = allocate(bytes, streams.owner.get());
  streams.let_user_wait();
  use(data, streams.user.get());
  if (is_right(version)) streams.let_owner_wait();
  must(cudaFreeAsync(data, streams.owner.get()));
  streams.end();
}

void fill_whole(void* data, cudaStream_t stream) {
  must(cudaMemsetAsync(data, 1, size, stream));
}
void fill_the_middle(void* data, cudaStream_t stream) {
  must(cudaMemsetAsync(at(data, kLarge / 2), 1, 16, stream));
}
void touch(void* data, cudaStream_t stream) {  // as penstock::for_each does
  const auto write = [](void* bytes) { *at(bytes, 100) = 1; };
  must(cudaLaunchHostFunc(stream, write, data));
}

// ---- A use after the allocation

void fill_after_allocation(Version version) {
  use_after_allocation(version, size, fill_whole);
}
void fill_in_the_middle_after_allocation(Version version) {
  use_after_allocation(version, kLarge, fill_the_middle);
}
void host_function_after_allocation(Version version) {
  use_after_allocation(version, size, touch);
}

void copy_after_allocation(Version version) {
  const Pinned source;
  source.fill(1);
  use_after_allocation(version, size, [&](void* data, cudaStream_t stream) {
    must(cudaMemcpyAsync(data, source.data(), size, cudaMemcpyHostToDevice, stream));
  });
}

void copy_from_after_allocation(Version version) {
  const Device other;
  use_after_allocation(version, size, [&](void* data, cudaStream_t stream) {
    must(cudaMemcpyAsync(other.data(), data, size, cudaMemcpyDeviceToDevice, stream));
  });
}

void copy_of_rows_after_allocation(Version version) {
  const Pinned source;
  source.fill(1);
  use_after_allocation(version, size, [&](void* data, cudaStream_t stream) {
    must(cudaMemcpy2DAsync(at(data, 8), 64, source.data(), 32, 16, 4, cudaMemcpyHostToDevice,
                           stream));
  });
}

void graph_after_allocation(Version version) {
  Two streams;
  void* const data = allocate(size, streams.owner.get());
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  must(cudaStreamBeginCapture(streams.user.get(), cudaStreamCaptureModeThreadLocal));
  fill_whole(data, streams.user.get());
  must(cudaStreamEndCapture(streams.user.get(), &graph));
  must(cudaGraphInstantiate(&exec, graph, 0));
  if (is_right(version)) streams.let_user_wait();
  must(cudaGraphLaunch(exec, streams.user.get()));
  streams.end();
  must(cudaGraphExecDestroy(exec));
  must(cudaGraphDestroy(graph));
  must(cudaFreeAsync(data, streams.owner.get()));
  streams.end();
}

void host_waits_for_allocation(Version version) {
  Two streams;
  void* const data = allocate(size, streams.owner.get());
  if (is_right(version)) streams.owner.synchronize();
  fill_whole(data, streams.user.get());
  streams.end();
  must(cudaFreeAsync(data, streams.owner.get()));
  streams.end();
}

void host_polls_for_allocation(Version version) {
  Two streams;
  void* const data = allocate(size, streams.owner.get());
  const cudaStream_t asked = (is_right(version) ? streams.owner : streams.user).get();
  while (cudaStreamQuery(asked) == cudaErrorNotReady) std::this_thread::yield();
  fill_whole(data, streams.user.get());
  streams.end();
  must(cudaFreeAsync(data, streams.owner.get()));
  streams.end();
}

void allocation_of_another_thread(Version version) {
  Two streams;
  void* data = nullptr;
  std::thread([&] {
    data = allocate(size, cudaStreamPerThread);
    if (is_right(version)) must(cudaStreamSynchronize(cudaStreamPerThread));
  }).join();
  fill_whole(data, streams.user.get());
  must(cudaFreeAsync(data, streams.user.get()));
  must(cudaDeviceSynchronize());
}

void allocation_in_a_pool(Version version) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t pool = nullptr;
  must(cudaMemPoolCreate(&pool, &properties));
  Two streams;
  void* data = nullptr;
  must(cudaMallocFromPoolAsync(&data, size, pool, streams.owner.get()));
  if (is_right(version)) streams.let_user_wait();
  fill_whole(data, streams.user.get());
  must(cudaFreeAsync(data, streams.user.get()));
  streams.end();
  must(cudaMemPoolDestroy(pool));
}

// ---- A use before the free

void fill_before_free(Version version) {
  use_before_free(version, size, fill_whole);
}
void fill_in_the_middle_before_free(Version version) {
  use_before_free(version, kLarge, fill_the_middle);
}
void host_function_before_free(Version version) {
  use_before_free(version, size, touch);
}

void copy_before_free(Version version) {
  const Pinned result;
  use_before_free(version, size, [&](void* data, cudaStream_t stream) {
    must(cudaMemcpyAsync(result.data(), data, size, cudaMemcpyDeviceToHost, stream));
  });
}

void free_in_a_third_stream(Version version) {
  keep_all_memory();
  Two streams;
  const penstock::Stream third;
  void* const data = allocate(size, streams.owner.get());
  streams.let_user_wait();
  fill_whole(data, streams.user.get());
  streams.used.record(streams.user.get());
  (is_right(version) ? streams.used : streams.allocated).make_wait(third.get());
  must(cudaFreeAsync(data, third.get()));
  third.synchronize();
  streams.end();
}

void free_by_the_host(Version version) {
  Two streams;
  void* const data = allocate(size, streams.owner.get());
  fill_whole(data, streams.owner.get());
  let_work_end();
  if (is_right(version)) streams.owner.synchronize();
  must(cudaFree(data));  // CUDA: all accesses must have completed.
  streams.end();
}

void memory_that_the_host_freed_is_used_again(Version version) {
  const penstock::Stream one, other;
  std::thread([&] {
    void* const data = allocate(size, one.get());
    fill_whole(data, one.get());
    let_work_end();
    if (is_right(version)) one.synchronize();
    must(cudaFree(data));
  }).join();
  std::thread([&] {
    void* const data = allocate(size, other.get());
    fill_whole(data, other.get());
    must(cudaFreeAsync(data, other.get()));
    other.synchronize();
  }).join();
  one.synchronize();
}

void stream_uses_memory_again(Version version) {
  Two streams;
  for (int round = 0; round < 4; ++round) {
    void* const data = allocate(size, streams.owner.get());
    streams.let_user_wait();
    fill_whole(data, streams.user.get());
    if (is_right(version)) streams.let_owner_wait();
    must(cudaFreeAsync(data, streams.owner.get()));
  }
  streams.end();
}

void sizes_grow_and_shrink(Version version) {
  Two streams;
  keep_all_memory();
  for (const std::size_t factor : {1, 3, 9, 27, 10, 3, 1}) {
    void* const data = allocate(factor * size, streams.owner.get());
    if (is_right(version)) streams.let_user_wait();
    must(cudaMemsetAsync(data, 1, factor * size, streams.user.get()));
    streams.let_owner_wait();
    must(cudaFreeAsync(data, streams.owner.get()));
  }
  streams.end();
}

void threads_share_a_pool(Version version) {
  keep_all_memory();
  std::vector<std::thread> workers;
  for (int worker = 0; worker < 3; ++worker)
    workers.emplace_back([version] {
      Two streams;
      for (int round = 0; round < 4; ++round) {
        void* const data = allocate(size, streams.owner.get());
        streams.let_user_wait();
        fill_whole(data, streams.user.get());
        if (is_right(version)) streams.let_owner_wait();
        must(cudaFreeAsync(data, streams.owner.get()));
      }
      streams.end();
    });
  for (std::thread& worker : workers) worker.join();
}

// ---- Memory of graphs

void memory_of_a_graph(Version version) {
  Two streams;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  must(cudaStreamBeginCapture(streams.owner.get(), cudaStreamCaptureModeThreadLocal));
  void* const data = allocate(size, streams.owner.get());
  must(cudaStreamEndCapture(streams.owner.get(), &graph));
  must(cudaGraphInstantiate(&exec, graph, 0));
  must(cudaGraphLaunch(exec, streams.owner.get()));
  if (is_right(version)) streams.let_user_wait();
  fill_whole(data, streams.user.get());
  must(cudaFreeAsync(data, streams.user.get()));
  streams.end();
  must(cudaGraphExecDestroy(exec));
  must(cudaGraphDestroy(graph));
}

void memory_of_a_graph_is_freed(Version version) {
  Two streams;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  must(cudaStreamBeginCapture(streams.owner.get(), cudaStreamCaptureModeThreadLocal));
  void* const data = allocate(size, streams.owner.get());
  must(cudaStreamEndCapture(streams.owner.get(), &graph));
  must(cudaGraphInstantiate(&exec, graph, 0));
  must(cudaGraphLaunch(exec, streams.owner.get()));
  streams.let_user_wait();
  fill_whole(data, streams.user.get());
  if (is_right(version)) streams.let_owner_wait();
  must(cudaFreeAsync(data, streams.owner.get()));
  streams.end();
  must(cudaGraphExecDestroy(exec));
  must(cudaGraphDestroy(graph));
}

void branch_beside_an_allocation(Version version) {
  Two streams;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  must(cudaStreamBeginCapture(streams.owner.get(), cudaStreamCaptureModeThreadLocal));
  if (!is_right(version)) streams.let_user_wait();  // forks before the allocation
  void* const data = allocate(size, streams.owner.get());
  if (is_right(version)) streams.let_user_wait();
  fill_whole(data, streams.user.get());
  streams.let_owner_wait();
  must(cudaFreeAsync(data, streams.owner.get()));
  must(cudaStreamEndCapture(streams.owner.get(), &graph));
  must(cudaGraphInstantiate(&exec, graph, 0));
  must(cudaGraphLaunch(exec, streams.owner.get()));
  must(cudaGraphLaunch(exec, streams.owner.get()));
  streams.end();
  must(cudaGraphExecDestroy(exec));
  must(cudaGraphDestroy(graph));
}

}  // namespace

const std::vector<Scenario> ordered_memory{
    {"fill_after_allocation", fill_after_allocation},
    {"fill_in_the_middle_after_allocation", fill_in_the_middle_after_allocation},
    {"host_function_after_allocation", host_function_after_allocation},
    {"copy_after_allocation", copy_after_allocation},
    {"copy_from_after_allocation", copy_from_after_allocation},
    {"copy_of_rows_after_allocation", copy_of_rows_after_allocation},
    {"graph_after_allocation", graph_after_allocation},
    {"host_waits_for_allocation", host_waits_for_allocation},
    {"host_polls_for_allocation", host_polls_for_allocation},
    {"allocation_of_another_thread", allocation_of_another_thread},
    {"allocation_in_a_pool", allocation_in_a_pool},
    {"fill_before_free", fill_before_free},
    {"fill_in_the_middle_before_free", fill_in_the_middle_before_free},
    {"host_function_before_free", host_function_before_free},
    {"copy_before_free", copy_before_free},
    {"free_in_a_third_stream", free_in_a_third_stream},
    {"free_by_the_host", free_by_the_host},
    {"memory_that_the_host_freed_is_used_again", memory_that_the_host_freed_is_used_again},
    {"stream_uses_memory_again", stream_uses_memory_again},
    {"sizes_grow_and_shrink", sizes_grow_and_shrink},
    {"threads_share_a_pool", threads_share_a_pool},
    {"memory_of_a_graph", memory_of_a_graph},
    {"memory_of_a_graph_is_freed", memory_of_a_graph_is_freed},
    {"branch_beside_an_allocation", branch_beside_an_allocation},
};

}  // namespace races
