// SPDX-License-Identifier: Apache-2.0

// Parts of buffers: halves, rows with a pitch, boxes; fills beside copies; copies between devices.

#include <array>
#include <thread>

#include "races.hpp"

namespace races {
namespace {

constexpr std::size_t kPitch = 256, kWidth = 64, kRows = 8;

unsigned char* at(const Device& device, std::size_t offset) {
  return static_cast<unsigned char*>(device.data()) + offset;
}

/// Streams streams, and the host's wait for both.
struct Streams {
  penstock::Stream one, other;
  penstock::Event done;

  /// The other stream waits for what the first one has now.
  void let_other_wait() {
    done.record(one.get());
    done.make_wait(other.get());
  }
  void end() const {
    one.synchronize();
    other.synchronize();
  }
};

// ---- Halves

void halves_of_a_pinned_buffer(Version version) {
  const Pinned host;
  const Device device;
  const penstock::Stream stream;
  host.fill(1);
  const std::size_t copied = is_right(version) ? size / 2 : size;
  must(cudaMemcpyAsync(device.data(), host.data(), copied, cudaMemcpyHostToDevice, stream.get()));
  for (std::size_t i = size / 2; i < size; ++i) host.data()[i] = 2;
  stream.synchronize();
}

void two_streams_fill_halves(Version version) {
  const Device device;
  const Streams streams;
  const std::size_t first = is_right(version) ? size / 2 : size / 2 + 8;
  must(cudaMemsetAsync(device.data(), 1, first, streams.one.get()));
  must(cudaMemsetAsync(at(device, size / 2), 2, size / 2, streams.other.get()));
  streams.end();
}

void two_streams_copy_into_one_result(Version version) {
  const Pinned result;
  const Device first, second;
  const Streams streams;
  unsigned char* const where = result.data() + (is_right(version) ? size / 2 : 0);
  must(cudaMemcpyAsync(result.data(), first.data(), size / 2, cudaMemcpyDeviceToHost,
                       streams.one.get()));
  must(
      cudaMemcpyAsync(where, second.data(), size / 2, cudaMemcpyDeviceToHost, streams.other.get()));
  streams.end();
}

void two_streams_read_one_buffer(Version version) {
  const Device device;
  const Pinned one, other;
  const Streams streams;
  copy(one, device, streams.one.get());
  if (is_right(version))
    copy(other, device, streams.other.get());
  else
    copy(device, other, streams.other.get());
  streams.end();
}

void copy_within_a_buffer(Version version) {
  const Device device;
  Streams streams;
  must(cudaMemsetAsync(device.data(), 1, size / 2, streams.one.get()));
  if (is_right(version)) streams.let_other_wait();
  must(cudaMemcpyAsync(at(device, size / 2), device.data(), size / 2, cudaMemcpyDeviceToDevice,
                       streams.other.get()));
  streams.end();
}

// ---- Rows and boxes

void columns_side_by_side(Version version) {
  const Device device;
  const Pinned left, right;
  const Streams streams;
  left.fill(1);
  right.fill(2);
  const std::size_t begin = is_right(version) ? kWidth : kWidth - 8;
  must(cudaMemcpy2DAsync(device.data(), kPitch, left.data(), kWidth, kWidth, kRows,
                         cudaMemcpyHostToDevice, streams.one.get()));
  must(cudaMemcpy2DAsync(at(device, begin), kPitch, right.data(), kWidth, kWidth, kRows,
                         cudaMemcpyHostToDevice, streams.other.get()));
  streams.end();
}

void rows_in_turns(Version version) {
  const Device device;
  const Pinned even, odd;
  const Streams streams;
  even.fill(1);
  odd.fill(2);
  const std::size_t begin = is_right(version) ? kPitch : 2 * kPitch;
  must(cudaMemcpy2DAsync(device.data(), 2 * kPitch, even.data(), kWidth, kWidth, 4,
                         cudaMemcpyHostToDevice, streams.one.get()));
  must(cudaMemcpy2DAsync(at(device, begin), 2 * kPitch, odd.data(), kWidth, kWidth, 4,
                         cudaMemcpyHostToDevice, streams.other.get()));
  streams.end();
}

void host_fills_the_padding(Version version) {
  const Pinned host;
  const Device device;
  const penstock::Stream stream;
  host.fill(1);
  must(cudaMemcpy2DAsync(device.data(), kPitch, host.data(), kPitch, kWidth, kRows,
                         cudaMemcpyHostToDevice, stream.get()));
  const std::size_t begin = is_right(version) ? kWidth : kWidth - 8;
  for (std::size_t row = 0; row < kRows; ++row)
    for (std::size_t i = begin; i < kPitch; ++i) host.data()[row * kPitch + i] = 2;
  stream.synchronize();
}

void fill_of_rows_beside_copy(Version version) {
  const Device device;
  const Pinned result;
  Streams streams;
  must(cudaMemset2DAsync(device.data(), kPitch, 3, kWidth, kRows, streams.one.get()));
  if (is_right(version)) streams.let_other_wait();
  copy(result, device, streams.other.get());
  streams.end();
}

void boxes_in_one_buffer(Version version) {
  const Device device;
  const Pinned source;
  const Streams streams;
  source.fill(1);
  const auto queue = [&](std::size_t slice, cudaStream_t stream) {
    cudaMemcpy3DParms box{};
    box.srcPtr = {source.data(), 16, 16, 4};
    box.dstPtr = {device.data(), 64, 64, 8};
    box.dstPos = {8, 2, slice};
    box.extent = {16, 4, 2};
    box.kind = cudaMemcpyHostToDevice;
    must(cudaMemcpy3DAsync(&box, stream));
  };
  queue(0, streams.one.get());
  queue(is_right(version) ? 2 : 1, streams.other.get());
  streams.end();
}

void fill_of_a_box_beside_copy(Version version) {
  const Device device;
  const Pinned result;
  Streams streams;
  must(cudaMemset3DAsync({device.data(), 64, 64, 8}, 5, {16, 4, 4}, streams.one.get()));
  if (is_right(version)) streams.let_other_wait();
  copy(result, device, streams.other.get());
  streams.end();
}

void fill_of_a_box_beside_host(Version version) {
  const Pinned memory;
  const penstock::Stream stream;
  must(cudaMemset3DAsync({memory.data(), 64, 64, 8}, 5, {16, 4, 4}, stream.get()));
  if (is_right(version)) stream.synchronize();
  memory.read();
  stream.synchronize();
}

// ---- Fills and copies

void fill_beside_copy(Version version) {
  const Device device;
  const Pinned result;
  Streams streams;
  must(cudaMemsetAsync(device.data(), 1, size, streams.one.get()));
  if (is_right(version)) streams.let_other_wait();
  copy(result, device, streams.other.get());
  streams.end();
}

void fill_after_read_of_other_stream(Version version) {
  const Device device;
  const Pinned result;
  Streams streams;
  copy(result, device, streams.one.get());
  if (is_right(version)) streams.let_other_wait();
  must(cudaMemsetAsync(device.data(), 0, size, streams.other.get()));  // for the next round
  streams.end();
}

void synchronous_fill_beside_non_blocking(Version version) {
  const Device device;
  const Pinned result;
  const penstock::Stream stream;
  must(cudaMemset(device.data(), 1, size));  // The host may be first.
  if (is_right(version)) must(cudaDeviceSynchronize());
  copy(result, device, stream.get());
  stream.synchronize();
  must(cudaDeviceSynchronize());
}

void device_copy_beside_non_blocking(Version version) {
  const Device from, to;
  const Pinned result;
  const penstock::Stream stream;
  must(cudaMemcpy(to.data(), from.data(), size, cudaMemcpyDeviceToDevice));  // does not block
  if (is_right(version)) must(cudaDeviceSynchronize());
  copy(result, to, stream.get());
  stream.synchronize();
  must(cudaDeviceSynchronize());
}

void pageable_result(Version version) {
  std::vector<unsigned char> result(size);
  const Device device;
  const penstock::Stream stream;
  must(cudaMemcpyAsync(result.data(), device.data(), size, cudaMemcpyDeviceToHost, stream.get()));
  if (is_right(version)) stream.synchronize();  // CUDA: the copy may be synchronous.
  static_cast<volatile unsigned char*>(result.data())[0] = 1;
  stream.synchronize();
}

void large_pageable_result(Version version) {
  std::vector<unsigned char> result(std::size_t{1} << 20);
  void* device = nullptr;
  must(cudaMalloc(&device, result.size()));
  const penstock::Stream stream;
  must(cudaMemcpyAsync(result.data(), device, result.size(), cudaMemcpyDeviceToHost, stream.get()));
  if (is_right(version)) stream.synchronize();
  static_cast<volatile unsigned char*>(result.data())[result.size() - 1] = 1;
  stream.synchronize();
  must(cudaFree(device));
}

void large_pageable_source(Version version) {
  const std::vector<unsigned char> source(std::size_t{1} << 20, 1);
  const Pinned result;
  void* device = nullptr;
  must(cudaMalloc(&device, source.size()));
  Streams streams;
  must(cudaMemcpyAsync(device, source.data(), source.size(), cudaMemcpyHostToDevice,
                       streams.one.get()));
  if (is_right(version)) streams.let_other_wait();  // The call may return before the last piece.
  must(cudaMemcpyAsync(result.data(), device, size, cudaMemcpyDeviceToHost, streams.other.get()));
  streams.end();
  must(cudaFree(device));
}

void host_to_host_copy(Version version) {
  const Pinned source, result;
  const penstock::Stream stream;
  if (is_right(version)) {  // It is synchronous between memory of the host.
    must(cudaMemcpyAsync(result.data(), source.data(), size, cudaMemcpyHostToHost, stream.get()));
  } else {
    must(cudaMemsetAsync(result.data(), 1, size, stream.get()));
  }
  result.read();
  stream.synchronize();
}

void mapped_result(Version version) {
  const Pinned memory;
  const penstock::Stream stream;
  void* mapped = nullptr;
  must(cudaHostGetDevicePointer(&mapped, memory.data(), 0));
  must(cudaMemsetAsync(mapped, 1, size, stream.get()));
  if (is_right(version)) stream.synchronize();
  memory.read();
  stream.synchronize();
}

// ---- Devices

/// Memory of device 1, which becomes the current one, and a stream there.
struct Second {
  struct Current {
    Current() { must(cudaSetDevice(1)); }
  } current;
  Device memory;
  penstock::Stream stream;
};

void peer_copy_beside_use(Version version) {
  const Device first;
  const penstock::Stream stream;
  const Second second;
  must(cudaMemcpyPeerAsync(second.memory.data(), 1, first.data(), 0, size, second.stream.get()));
  penstock::Event arrived;
  arrived.record(second.stream.get());
  must(cudaSetDevice(0));
  if (is_right(version)) arrived.make_wait(stream.get());
  must(cudaMemsetAsync(first.data(), 1, size, stream.get()));
  stream.synchronize();
  second.stream.synchronize();
}

void default_kind_between_devices(Version version) {
  const Device first;
  const Pinned result;
  const penstock::Stream stream;
  penstock::Event sent;
  const Second second;
  must(cudaSetDevice(0));
  must(cudaMemcpyAsync(second.memory.data(), first.data(), size, cudaMemcpyDefault, stream.get()));
  sent.record(stream.get());
  must(cudaSetDevice(1));
  if (is_right(version)) sent.make_wait(second.stream.get());
  copy(result, second.memory, second.stream.get());
  second.stream.synchronize();
  stream.synchronize();
}

void legacy_streams_of_two_devices(Version version) {
  const Device first;
  must(cudaMemsetAsync(first.data(), 1, size, cudaStreamLegacy));
  if (is_right(version)) must(cudaDeviceSynchronize());
  must(cudaSetDevice(1));  // Each device has a legacy default stream of its own.
  must(cudaMemsetAsync(first.data(), 2, size, cudaStreamLegacy));
  must(cudaDeviceSynchronize());
  must(cudaSetDevice(0));
  must(cudaDeviceSynchronize());
}

void pinned_buffer_of_two_devices(Version version) {
  const Pinned host;
  const Device first;
  const penstock::Stream stream;
  penstock::Event copied;
  host.fill(1);
  copy(first, host, stream.get());
  copied.record(stream.get());
  const Second second;
  if (is_right(version)) copied.make_wait(second.stream.get());
  copy(host, second.memory, second.stream.get());
  second.stream.synchronize();
  stream.synchronize();
}

void pool_of_another_device(Version version) {
  const Device first;
  const penstock::Stream stream;
  const Second second;
  void* memory = nullptr;
  must(cudaMallocAsync(&memory, size, second.stream.get()));
  penstock::Event allocated;
  allocated.record(second.stream.get());
  must(cudaSetDevice(0));
  if (is_right(version)) allocated.make_wait(stream.get());
  must(cudaMemcpyAsync(memory, first.data(), size, cudaMemcpyDefault, stream.get()));
  stream.synchronize();
  must(cudaFreeAsync(memory, second.stream.get()));
  second.stream.synchronize();
}

void pools_of_two_devices(Version version) {
  const Second second;
  must(cudaSetDevice(0));
  const penstock::Stream stream;
  void *from = nullptr, *to = nullptr;
  must(cudaMallocAsync(&from, size, stream.get()));
  must(cudaMemsetAsync(from, 1, size, stream.get()));
  penstock::Event filled;
  filled.record(stream.get());
  must(cudaSetDevice(1));
  must(cudaMallocAsync(&to, size, second.stream.get()));
  if (is_right(version)) filled.make_wait(second.stream.get());
  must(cudaMemcpyPeerAsync(to, 1, from, 0, size, second.stream.get()));
  penstock::Event copied;
  copied.record(second.stream.get());
  copied.make_wait(stream.get());
  must(cudaFreeAsync(from, stream.get()));
  must(cudaFreeAsync(to, second.stream.get()));
  second.stream.synchronize();
  stream.synchronize();
}

}  // namespace

const std::vector<Scenario> areas{
    {"halves_of_a_pinned_buffer", halves_of_a_pinned_buffer},
    {"two_streams_fill_halves", two_streams_fill_halves},
    {"two_streams_copy_into_one_result", two_streams_copy_into_one_result},
    {"two_streams_read_one_buffer", two_streams_read_one_buffer},
    {"copy_within_a_buffer", copy_within_a_buffer},
    {"columns_side_by_side", columns_side_by_side},
    {"rows_in_turns", rows_in_turns},
    {"host_fills_the_padding", host_fills_the_padding},
    {"fill_of_rows_beside_copy", fill_of_rows_beside_copy},
    {"boxes_in_one_buffer", boxes_in_one_buffer},
    {"fill_of_a_box_beside_copy", fill_of_a_box_beside_copy},
    {"fill_of_a_box_beside_host", fill_of_a_box_beside_host},
    {"fill_beside_copy", fill_beside_copy},
    {"fill_after_read_of_other_stream", fill_after_read_of_other_stream},
    {"synchronous_fill_beside_non_blocking", synchronous_fill_beside_non_blocking},
    {"device_copy_beside_non_blocking", device_copy_beside_non_blocking},
    {"pageable_result", pageable_result},
    {"large_pageable_result", large_pageable_result},
    {"large_pageable_source", large_pageable_source},
    {"host_to_host_copy", host_to_host_copy},
    {"mapped_result", mapped_result},
    {"peer_copy_beside_use", peer_copy_beside_use},
    {"default_kind_between_devices", default_kind_between_devices},
    {"legacy_streams_of_two_devices", legacy_streams_of_two_devices},
    {"pinned_buffer_of_two_devices", pinned_buffer_of_two_devices},
    {"pool_of_another_device", pool_of_another_device},
    {"pools_of_two_devices", pools_of_two_devices},
};

}  // namespace races
