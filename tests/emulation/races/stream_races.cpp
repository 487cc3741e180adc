// SPDX-License-Identifier: Apache-2.0

// Two streams touch the same memory, and nothing orders them.

#include <vector>

#include "races.hpp"

namespace races {
namespace {

/// A buffer that one stream fills and another reads.
struct HandOver {
  Pinned source, result;
  Device device;
  penstock::Stream writer, reader;
  penstock::Event written;

  HandOver() { source.fill(1); }
  ~HandOver() {
    cudaStreamSynchronize(writer.get());
    cudaStreamSynchronize(reader.get());
  }
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;
};

void no_wait(Version version) {
  HandOver data;
  copy(data.device, data.source, data.writer.get());
  data.written.record(data.writer.get());
  if (version == Version::right) data.written.make_wait(data.reader.get());
  copy(data.result, data.device, data.reader.get());
}

void record_before_copy(Version version) {
  HandOver data;
  if (version == Version::wrong) data.written.record(data.writer.get());
  copy(data.device, data.source, data.writer.get());
  if (version == Version::right) data.written.record(data.writer.get());
  data.written.make_wait(data.reader.get());
  copy(data.result, data.device, data.reader.get());
}

void wait_before_record(Version version) {
  HandOver data;
  copy(data.device, data.source, data.writer.get());
  if (version == Version::wrong) data.written.make_wait(data.reader.get());
  data.written.record(data.writer.get());
  if (version == Version::right) data.written.make_wait(data.reader.get());
  copy(data.result, data.device, data.reader.get());
}

void host_function_beside_copy(Version version) {
  HandOver data;
  copy(data.result, data.device, data.writer.get());
  data.written.record(data.writer.get());
  if (version == Version::right) data.written.make_wait(data.reader.get());
  const auto read = [](void* result) { static_cast<const Pinned*>(result)->read(); };
  penstock::detail::check(cudaLaunchHostFunc(data.reader.get(), read, &data.result),
                          "cudaLaunchHostFunc");
}

void reuse_device_memory(Version version) {
  HandOver data;
  penstock::Event consumed;
  copy(data.device, data.source, data.writer.get());
  data.written.record(data.writer.get());
  data.written.make_wait(data.reader.get());
  copy(data.result, data.device, data.reader.get());
  consumed.record(data.reader.get());
  if (version == Version::right) consumed.make_wait(data.writer.get());
  copy(data.device, data.source, data.writer.get());  // the next batch, into the same slot
}

void free_while_used(Version version) {
  const penstock::Stream owner, user;
  const Pinned result;
  penstock::Event allocated, used;
  void *memory = nullptr, *next = nullptr;
  const auto allocate = [&](void** data) {
    penstock::detail::check(cudaMallocAsync(data, size, owner.get()), "cudaMallocAsync");
    penstock::detail::check(cudaMemsetAsync(*data, 1, size, owner.get()), "cudaMemsetAsync");
  };
  const auto free = [&](void* data) {
    penstock::detail::check(cudaFreeAsync(data, owner.get()), "cudaFreeAsync");
  };
  allocate(&memory);
  allocated.record(owner.get());
  allocated.make_wait(user.get());
  penstock::detail::check(
      cudaMemcpyAsync(result.data(), memory, size, cudaMemcpyDeviceToHost, user.get()),
      "cudaMemcpyAsync");
  used.record(user.get());
  if (version == Version::right) used.make_wait(owner.get());
  free(memory);
  allocate(&next);  // the same memory
  user.synchronize();
  owner.synchronize();
  free(next);
  owner.synchronize();
}

void legacy_beside_non_blocking(Version version) {
  const Pinned source, result;
  const Device device;
  source.fill(1);
  cudaStream_t stream = nullptr;
  const unsigned flags = version == Version::right ? cudaStreamDefault : cudaStreamNonBlocking;
  penstock::detail::check(cudaStreamCreateWithFlags(&stream, flags), "cudaStreamCreateWithFlags");
  copy(device, source, stream);
  copy(result, device, cudaStreamLegacy);
  penstock::detail::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  cudaStreamDestroy(stream);
}

void pageable_copy_beside_non_blocking(Version version) {
  const std::vector<unsigned char> source(size, 1);
  const Pinned result;
  const Device device;
  const penstock::Stream stream;
  // Returns when the source is staged; the device may get the bytes later.
  penstock::detail::check(cudaMemcpy(device.data(), source.data(), size, cudaMemcpyHostToDevice),
                          "cudaMemcpy");
  if (version == Version::right)
    penstock::detail::check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
  copy(result, device, stream.get());
  stream.synchronize();
}

}  // namespace

const std::vector<Scenario> stream_races{
    {"no_wait", no_wait},
    {"record_before_copy", record_before_copy},
    {"wait_before_record", wait_before_record},
    {"host_function_beside_copy", host_function_beside_copy},
    {"reuse_device_memory", reuse_device_memory},
    {"free_while_used", free_while_used},
    {"legacy_beside_non_blocking", legacy_beside_non_blocking},
    {"pageable_copy_beside_non_blocking", pageable_copy_beside_non_blocking},
};

}  // namespace races
