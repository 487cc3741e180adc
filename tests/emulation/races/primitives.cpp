// SPDX-License-Identifier: Apache-2.0

// penstock's own primitives on several streams and threads: what they order, and what is left to
// the program.

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <penstock/penstock.hpp>
#include <span>
#include <thread>
#include <vector>

#include "races.hpp"

namespace races {
namespace {

struct Numbers {
  penstock::Tensor<std::int64_t, 1> values;  // sample
};

constexpr std::size_t kBatch = 64;

const penstock::Layout<Numbers> layout =
    penstock::Layout<Numbers>{kBatch}.field(&Numbers::values, {});

penstock::Sampler sampler() {
  return penstock::Sampler{{.samples = 8 * kBatch, .batch_size = kBatch}};
}

void fill_batch(const penstock::Ticket& ticket, Numbers& batch) {
  for (std::size_t i = 0; i < ticket.samples.size(); ++i)
    batch.values(static_cast<std::int64_t>(i)) = static_cast<std::int64_t>(ticket.samples[i]);
}

/// Reads a batch, as a kernel.
struct Read {
  Numbers batch;

  void operator()(std::int64_t i) const { static_cast<void>(*at(i)); }
  const volatile std::int64_t* at(std::int64_t i) const { return &batch.values(i); }
};

void read(const Numbers& batch, cudaStream_t stream) {
  penstock::for_each(stream, static_cast<std::int64_t>(kBatch), Read{batch});
}

// ---- Prefetcher

penstock::Prefetcher<Numbers> make_prefetcher() {
  return {layout, sampler(), fill_batch, {.workers = 2}};
}

void second_stream_of_a_lease(Version version) {
  const penstock::Stream training, watching;
  auto prefetcher = make_prefetcher();
  while (auto batch = prefetcher.next(training.get())) {
    read(*batch, training.get());
    if (is_right(version)) batch.also_used_on(watching.get());
    read(*batch, watching.get());
  }
  training.synchronize();
  watching.synchronize();
}

void view_after_its_lease(Version version) {
  const penstock::Stream training;
  auto prefetcher = make_prefetcher();
  std::optional<Numbers> before;
  const penstock::Stream watching;
  while (auto batch = prefetcher.next(training.get())) {
    read(*batch, training.get());
    if (!is_right(version) && before) read(*before, watching.get());
    before = *batch;
  }
  training.synchronize();
  watching.synchronize();
}

void batch_is_read_by_the_host(Version version) {
  const penstock::Stream training;
  auto prefetcher = make_prefetcher();
  std::vector<std::int64_t> host(kBatch);
  const Pinned result;
  while (auto batch = prefetcher.next(training.get())) {
    must(cudaMemcpyAsync(result.data(), &batch->values(0), kBatch * sizeof(std::int64_t),
                         cudaMemcpyDeviceToHost, training.get()));
    if (is_right(version)) training.synchronize();
    result.read();
  }
  training.synchronize();
}

void next_on_another_stream(Version version) {
  const penstock::Stream one, other;
  auto prefetcher = make_prefetcher();
  bool odd = false;
  while (auto batch = prefetcher.next((odd ? other : one).get())) {
    read(*batch, (odd == is_right(version) ? other : one).get());
    odd = !odd;
  }
  one.synchronize();
  other.synchronize();
}

void workers_share_a_counter(Version version) {
  const penstock::Stream training;
  volatile int plain = 0;
  std::atomic<int> counted{0}, inside{0};
  const bool right = is_right(version);
  penstock::Prefetcher<Numbers> prefetcher{layout,
                                           sampler(),
                                           [&](const penstock::Ticket& ticket, Numbers& batch) {
                                             fill_batch(ticket, batch);
                                             // Both workers are in here once, and nothing orders
                                             // them.
                                             inside.fetch_add(1, std::memory_order_relaxed);
                                             while (inside.load(std::memory_order_relaxed) < 2)
                                               std::this_thread::yield();
                                             if (right)
                                               ++counted;
                                             else
                                               plain = plain + 1;
                                           },
                                           {.workers = 2}};
  while (auto batch = prefetcher.next(training.get())) read(*batch, training.get());
  training.synchronize();
}

void host_reads_what_a_kernel_wrote(Version version) {
  const penstock::Stream stream;
  const Pinned result;
  auto* const numbers = reinterpret_cast<std::int64_t*>(result.data());
  constexpr auto count = static_cast<std::int64_t>(size / sizeof(std::int64_t));
  penstock::for_each(stream.get(), count, [numbers](std::int64_t i) { numbers[i] = i; });
  if (is_right(version)) stream.synchronize();
  for (std::int64_t i = 0; i < count; ++i) static_cast<const volatile std::int64_t*>(numbers)[i];
  stream.synchronize();
}

void kernels_of_two_streams(Version version) {
  const penstock::Stream one, other;
  penstock::Event done;
  const Device device;
  const auto add = [data = static_cast<unsigned char*>(device.data())](std::int64_t i) {
    ++data[i];
  };
  penstock::for_each(one.get(), static_cast<std::int64_t>(size), add);
  done.record(one.get());
  if (is_right(version)) done.make_wait(other.get());
  penstock::for_each(other.get(), static_cast<std::int64_t>(size), add);
  other.synchronize();
  one.synchronize();
}

void view_after_the_last_lease(Version version) {
  const penstock::Stream training, watching;
  auto prefetcher = make_prefetcher();
  std::optional<Numbers> last;
  while (auto batch = prefetcher.next(training.get())) {
    read(*batch, training.get());
    last = *batch;
  }
  training.synchronize();
  if (!is_right(version)) read(*last, watching.get());
  watching.synchronize();
}

// ---- BatchProducer and PinnedPool

/// Has room for two blocks, each of a batch and less than another 1 KiB, and not for three: the
/// third batch has to use a block again.
penstock::PinnedPool pool_of_two_batches() {
  return penstock::PinnedPool{{.max_bytes = 3072}};
}

void host_batch_is_released_before_its_copy(Version version) {
  penstock::PinnedPool pool = pool_of_two_batches();
  const penstock::Stream stream;
  const Device device;
  {
    penstock::BatchProducer<Numbers> producer{
        layout, sampler(), fill_batch, pool, {.workers = 1, .depth = 1}};
    while (auto batch = producer.next()) {
      must(cudaMemcpyAsync(device.data(), batch->data(), kBatch * sizeof(std::int64_t),
                           cudaMemcpyHostToDevice, stream.get()));
      if (is_right(version)) batch->release_after(stream.get());
    }
  }
  stream.synchronize();
}

void host_batch_is_copied_on_one_stream_and_released_after_another(Version version) {
  penstock::PinnedPool pool = pool_of_two_batches();
  const penstock::Stream stream, other;
  const Device device;
  {
    penstock::BatchProducer<Numbers> producer{
        layout, sampler(), fill_batch, pool, {.workers = 1, .depth = 1}};
    while (auto batch = producer.next()) {
      must(cudaMemcpyAsync(device.data(), batch->data(), kBatch * sizeof(std::int64_t),
                           cudaMemcpyHostToDevice, stream.get()));
      batch->release_after(is_right(version) ? stream.get() : other.get());
    }
  }
  stream.synchronize();
}

void block_is_released_before_its_copy(Version version) {
  penstock::PinnedPool pool{{.max_bytes = size}};
  const Device device;
  const penstock::Stream stream;
  for (unsigned char round = 0; round < 4; ++round) {
    penstock::PinnedBlock block = pool.acquire(size);
    for (std::size_t i = 0; i < size; ++i) block.data()[i] = std::byte{round};
    if (is_right(version)) {
      block.copy_to(device.data(), size, stream.get());
    } else {
      must(
          cudaMemcpyAsync(device.data(), block.data(), size, cudaMemcpyHostToDevice, stream.get()));
      block.release();
    }
  }
  stream.synchronize();
}

void block_of_two_copies(Version version) {
  penstock::PinnedPool pool{{.max_bytes = size}};
  const Device first, second;
  const penstock::Stream one, other;
  penstock::Event done;
  for (unsigned char round = 0; round < 4; ++round) {
    penstock::PinnedBlock block = pool.acquire(size);
    for (std::size_t i = 0; i < size; ++i) block.data()[i] = std::byte{round};
    must(cudaMemcpyAsync(first.data(), block.data(), size, cudaMemcpyHostToDevice, one.get()));
    if (is_right(version)) {
      done.record(one.get());
      done.make_wait(other.get());
    }
    block.copy_to(second.data(), size, other.get());  // releases after this copy
  }
  one.synchronize();
  other.synchronize();
}

// ---- DeviceArena

void slot_is_released_after_one_of_two_readers(Version version) {
  const Pinned source, result, again;
  penstock::DeviceArena arena{1, size};
  const penstock::Stream writer, reader, other;
  penstock::Event written;
  source.fill(1);
  for (int round = 0; round < 4; ++round) {
    penstock::DeviceSlot slot = arena.acquire(writer.get());
    must(cudaMemcpyAsync(slot.data(), source.data(), size, cudaMemcpyHostToDevice, writer.get()));
    written.record(writer.get());
    written.make_wait(reader.get());
    written.make_wait(other.get());
    must(cudaMemcpyAsync(result.data(), slot.data(), size, cudaMemcpyDeviceToHost, reader.get()));
    must(cudaMemcpyAsync(again.data(), slot.data(), size, cudaMemcpyDeviceToHost, other.get()));
    const std::array readers{reader.get(), other.get()};
    slot.release_after(std::span(readers).first(is_right(version) ? 2 : 1));
  }
  for (const auto* stream : {&writer, &reader, &other}) stream->synchronize();
}

void slot_is_destroyed_while_it_is_read(Version version) {
  const Pinned source, result;
  penstock::DeviceArena arena{1, size};
  const penstock::Stream writer, reader;
  penstock::Event written;
  source.fill(1);
  for (int round = 0; round < 4; ++round) {
    penstock::DeviceSlot slot = arena.acquire(writer.get());
    must(cudaMemcpyAsync(slot.data(), source.data(), size, cudaMemcpyHostToDevice, writer.get()));
    written.record(writer.get());
    written.make_wait(reader.get());
    must(cudaMemcpyAsync(result.data(), slot.data(), size, cudaMemcpyDeviceToHost, reader.get()));
    if (is_right(version)) slot.release_after(reader.get());
  }
  writer.synchronize();
  reader.synchronize();
}

void slot_is_written_on_another_stream(Version version) {
  const Pinned source;
  penstock::DeviceArena arena{1, size};
  const penstock::Stream one, other;
  source.fill(1);
  bool odd = false;
  for (int round = 0; round < 4; ++round, odd = !odd) {
    const cudaStream_t writer = (odd ? other : one).get();
    penstock::DeviceSlot slot = arena.acquire(is_right(version) ? writer : one.get());
    must(cudaMemcpyAsync(slot.data(), source.data(), size, cudaMemcpyHostToDevice, writer));
    slot.release_after(writer);
  }
  one.synchronize();
  other.synchronize();
}

// ---- Readback

void value_is_read_before_drain(Version version) {
  const penstock::Stream stream;
  const Device device;
  Number sum;
  std::atomic<bool> pushed{false}, called{false};
  must(cudaMemsetAsync(device.data(), 0, size, stream.get()));
  // Without it the callback may run while push() does, whose locks would then order the two.
  const auto wait_for_push = [](void* flag) {
    while (!static_cast<std::atomic<bool>*>(flag)->load(std::memory_order_relaxed))
      std::this_thread::yield();
  };
  must(cudaLaunchHostFunc(stream.get(), wait_for_push, &pushed));
  penstock::Readback<int> readback{2};
  readback.push(static_cast<const int*>(device.data()), stream.get(), [&](int value) {
    sum.value = value;
    called.store(true, std::memory_order_relaxed);
  });
  pushed.store(true, std::memory_order_relaxed);
  if (is_right(version)) readback.drain();
  while (!called.load(std::memory_order_relaxed)) std::this_thread::yield();
  sum.add_one();
  readback.drain();
  stream.synchronize();
}

void value_is_pushed_from_another_stream(Version version) {
  const penstock::Stream stream, other;
  const Device device;
  penstock::Readback<int> readback{2};
  for (int i = 0; i < 3; ++i) {
    must(cudaMemsetAsync(device.data(), i, size, stream.get()));
    readback.push(static_cast<const int*>(device.data()),
                  is_right(version) ? stream.get() : other.get(), [](int) {});
  }
  readback.drain();
  stream.synchronize();
}

}  // namespace

const std::vector<Scenario> primitives{
    {"second_stream_of_a_lease", second_stream_of_a_lease},
    {"view_after_its_lease", view_after_its_lease},
    {"batch_is_read_by_the_host", batch_is_read_by_the_host},
    {"next_on_another_stream", next_on_another_stream},
    {"workers_share_a_counter", workers_share_a_counter},
    {"host_reads_what_a_kernel_wrote", host_reads_what_a_kernel_wrote},
    {"kernels_of_two_streams", kernels_of_two_streams},
    {"host_batch_is_released_before_its_copy", host_batch_is_released_before_its_copy},
    {"host_batch_is_copied_on_one_stream_and_released_after_another",
     host_batch_is_copied_on_one_stream_and_released_after_another},
    {"block_is_released_before_its_copy", block_is_released_before_its_copy},
    {"block_of_two_copies", block_of_two_copies},
    {"slot_is_released_after_one_of_two_readers", slot_is_released_after_one_of_two_readers},
    {"slot_is_destroyed_while_it_is_read", slot_is_destroyed_while_it_is_read},
    {"slot_is_written_on_another_stream", slot_is_written_on_another_stream},
    {"value_is_read_before_drain", value_is_read_before_drain},
    {"value_is_pushed_from_another_stream", value_is_pushed_from_another_stream},
    {"view_after_the_last_lease", view_after_the_last_lease,
     "The slot still holds that batch, and no other batch comes into it: nobody writes the bytes."},
};

}  // namespace races
