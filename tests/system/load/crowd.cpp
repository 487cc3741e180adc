// SPDX-License-Identifier: Apache-2.0

// 256 workers on however few cores there are, with each kind of source, many blocks and few, in
// order and as they come. Some samples take long. A restore in the middle ends all workers and
// starts them again, and the pipeline is destroyed when it is full.

#include <penstock/prefetcher.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "audit.hpp"
#include "flat.hpp"
#include "machine.hpp"
#include "scenarios.hpp"

namespace penstock::test {
namespace {

constexpr int kWorkers = 256;
constexpr std::int64_t kBatchSize = 8;
constexpr std::uint64_t kEpochs = std::uint64_t{1} << 40;
// With an on_device source nothing else keeps the host from running ahead of the device.
constexpr std::uint64_t kPace = 128;

Sampler crowd_sampler() {
  return rows_sampler(9'973, kBatchSize, 3);
}

/// One sample of 1024 takes a fifth of a millisecond.
void now_and_then_slow(std::uint64_t sample) {
  if (scrambled(sample) % 1024 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

void deliver_in_order(Prefetcher<Rows>& prefetcher, std::uint64_t batches, Flat& flat) {
  const Stream stream;
  Audit audit(crowd_sampler());
  State kept;
  for (std::uint64_t i = 0; i < batches; ++i) {
    if (i == batches / 2) {  // goes back a little
      prefetcher.restore(kept);
      audit.expect(kept.epoch * crowd_sampler().batches() + kept.batch);
    }
    if (i == batches / 2 - batches / 64) kept = prefetcher.state();
    const auto batch = prefetcher.next(stream.get());
    audit.take(batch, stream.get());
    if (i % kPace == 0) stream.synchronize();
    flat.reach(i + 1);
  }
  audit.finish();
}

/// Of so many batches each comes once, in any order.
void deliver_all(Prefetcher<Rows>& prefetcher, std::uint64_t batches, Flat& flat) {
  const Stream stream;
  Audit audit(crowd_sampler());
  std::vector<bool> there(batches);
  for (std::uint64_t i = 0; i < batches; ++i) {
    const auto batch = prefetcher.next(stream.get());
    if (!batch) throw std::runtime_error("the pipeline ended early");
    const std::uint64_t place =
        batch.ticket().epoch * crowd_sampler().batches() + batch.ticket().batch;
    if (there.at(place)) throw std::runtime_error("a batch came twice");
    there[place] = true;
    audit.add(batch);
    audit.check_on(stream.get(), batch);
    flat.reach(i + 1);
  }
  if (prefetcher.next(stream.get())) throw std::runtime_error("a batch too many");
  audit.finish();
}

void run(const char* kind, const AnySource<Rows>& source, PrefetcherOptions options,
         std::uint64_t batches) {
  fresh_machine();
  options.workers = kWorkers;
  if (!options.ordered) {  // whole epochs
    options.epochs = batches / crowd_sampler().batches() + 1;
    batches = options.epochs * crowd_sampler().batches();
  }
  Prefetcher<Rows> prefetcher(rows_layout(kBatchSize, 2), crowd_sampler(), source, options);
  // Each worker takes some memory when it calls CUDA for the first time, and the emulated runtime
  // starts a thread when a stream is used for the first time, such as that of an on_device worker.
  const Chance chance{.resident_bytes = 16 << 20, .heap_bytes = 4 << 20, .threads = kWorkers};
  Flat flat(std::string("crowd: ") + kind, batches, chance);
  if (options.ordered)
    deliver_in_order(prefetcher, batches, flat);
  else
    deliver_all(prefetcher, batches, flat);
  flat.finish();
}

}  // namespace

void crowd(std::uint64_t batches) {
  const std::uint64_t epoch = crowd_sampler().batches(), each = batches / 5;
  const auto batch = batch_source(epoch, now_and_then_slow);
  const auto sample = sample_source(epoch, now_and_then_slow);
  const auto device = device_source(epoch, now_and_then_slow);
  run("a batch by a worker", batch, {.epochs = kEpochs}, each);
  run("a batch by a worker, as they come", batch, {.ordered = false}, each);
  run("8 blocks for 256 workers", batch, {.host_depth = 8, .device_depth = 1, .epochs = kEpochs},
      each);
  run("per_sample", sample, {.epochs = kEpochs}, each);
  run("on_device", device, {.device_depth = 4, .epochs = kEpochs}, each);
}

}  // namespace penstock::test
