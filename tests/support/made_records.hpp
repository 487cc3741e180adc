// SPDX-License-Identifier: Apache-2.0
#pragma once

// Records of batches that no pipeline has delivered: a MadePipeline says what each step takes, and
// records() when each batch would have passed it.
//
//   const MadePipeline slow{.fill = 10, .copy = 1, .step = 2};      // milliseconds
//   Replay replay(256);
//   CHECK(replay.load(slow.records(64), slow.shape()));

#include <penstock/stats.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <penstock/detail/observe/batch_times.hpp>
#include <penstock/detail/observe/pipeline_shape.hpp>
#include <utility>
#include <vector>

namespace penstock::test {

/// Milliseconds of batch k: always the same, or by its number.
class MadeTime {
 public:
  MadeTime(double milliseconds) : of_([=](std::size_t) { return milliseconds; }) {}
  MadeTime(std::function<double(std::size_t)> of) : of_(std::move(of)) {}
  double operator()(std::size_t k) const { return of_(k); }

 private:
  std::function<double(std::size_t)> of_;
};

/// What fills the batches.
enum class MadeSource {
  batch,       ///< one worker fills a batch in pinned memory
  per_sample,  ///< the workers fill the rows of a batch together
  on_device,   ///< one worker fills a batch in a device slot; nothing is copied
};

/// What a loop does with a batch.
enum class MadeLoop {
  queues,          ///< queues its work, and asks for the next batch
  waits,           ///< the same, and waits for that work before it asks
  waits_for_last,  ///< the same, for the work on the batch before
  replaces,        ///< `lease = next(stream)`: else as `waits`
  holds_two,       ///< the same with two leases at a time, the older of which ends in the end
  queues_two,      ///< as `queues`, with two leases as in `holds_two`
};

struct MadePipeline {
  MadeSource source = MadeSource::batch;
  MadeTime fill = 1.0, copy = 1.0, transform = 0.0, step = 1.0;
  /// Of the worker beside the source, to queue a copy, of the consumer's thread beside its waits.
  MadeTime handover = 0.0, issue = 0.0, host = 0.01;
  MadeTime pause = 0.0;  ///< behind the step, in which the consumer is away
  /// The part of `host` behind which a lease ends, but for `replaces`.
  double lease_end = 0.99;
  int workers = 1, pieces = 1;
  std::size_t host_depth = 8, device_depth = 2;
  MadeLoop loop = MadeLoop::queues;
  bool queues_on_device = false;  ///< an on_device source returns before its work is done
  std::size_t one_timed_in = 1;   ///< device times of one batch in so many; 0: of none
  int streams = 1;                ///< that take in turn

  detail::PipelineShape shape() const {
    detail::PipelineShape shape;
    shape.setup.per_sample = source == MadeSource::per_sample;
    shape.setup.batch_size = pieces;
    shape.on_device = source == MadeSource::on_device;
    shape.present = {static_cast<std::size_t>(workers), shape.on_device ? 0 : host_depth,
                     device_depth};
    return shape;
  }

  /// The batches after the first 16 of so many more.
  std::vector<detail::FinishedBatch> records(std::size_t count) const;
  /// A snapshot behind these batches, of 100 bytes on the host and 10 on the device each.
  Stats stats(std::size_t count = 96) const;
};

inline std::vector<detail::FinishedBatch> MadePipeline::records(std::size_t count) const {
  struct Moments {
    double wanted = 0, opened = 0, filled = 0, staged = 0, copied = 0, arrived = 0, asked = 0,
           taken = 0;
    double slot = 0, reached = 0, begun = 0, worked = 0, turned = 0, left = 0;
  };
  constexpr std::size_t kStart = 16;
  const std::size_t all = count + kStart + 2;
  const bool on_device = source == MadeSource::on_device;
  const bool queues = loop == MadeLoop::queues || loop == MadeLoop::queues_two;
  const std::size_t held =
      loop == MadeLoop::queues || loop == MadeLoop::waits || loop == MadeLoop::waits_for_last ? 0
                                                                                              : 1;
  std::vector<Moments> at(all);
  std::vector<double> free(static_cast<std::size_t>(workers), 0), streams_of_workers(free);
  const auto earliest = [&]() -> double& { return *std::min_element(free.begin(), free.end()); };
  for (std::size_t k = 0; k < all; ++k) {
    Moments& now = at[k];
    const Moments none, &before = k == 0 ? none : at[k - 1];
    // Who held the slot of this batch: the host's end of its lease, and its readers.
    const Moments& user = k < device_depth ? none : at[k - device_depth];
    const Moments& behind = held == 0 || k < device_depth ? user : at[k - device_depth + 1];
    const double readers =
        loop == MadeLoop::replaces ? std::max(user.worked, behind.arrived) : behind.worked;
    if (on_device) {
      double& worker = earliest();
      const auto index = static_cast<std::size_t>(&worker - free.data());
      now.wanted = worker;
      now.opened = std::max(worker, user.left);
      if (queues_on_device) {
        now.filled = now.opened + handover(k) + 0.01;
        now.arrived = std::max({now.opened, streams_of_workers[index], readers}) + fill(k);
        streams_of_workers[index] = now.arrived;
      } else {
        now.filled = now.opened + fill(k) + handover(k);
        now.arrived = std::max(now.filled, readers);
      }
      worker = now.filled;
      now.staged = std::max(now.filled, before.staged) + issue(k);
    } else {
      const double block = k < host_depth ? 0 : at[k - host_depth].copied;
      now.wanted = earliest();
      now.opened = std::max(now.wanted, block);
      for (int piece = 0; piece < pieces; ++piece) {
        double& worker = earliest();
        worker = std::max(worker, block) + (fill(k) + handover(k)) / pieces;
        now.filled = std::max(now.filled, worker);
      }
      now.staged = std::max({now.filled, before.staged, user.left}) + issue(k);
      const double copies = std::max({now.staged, before.arrived, readers});
      now.slot = copies - std::max({now.filled, before.staged, before.arrived});
      now.copied = copies + copy(k);
      now.arrived = now.copied + transform(k);
    }
    now.asked = before.turned;
    now.taken = std::max(now.asked, now.staged);
    const auto turns = static_cast<std::size_t>(streams);
    now.reached = std::max(now.asked, k < turns ? 0 : at[k - turns].worked);
    now.begun = std::max({now.reached, now.arrived, now.taken});
    now.worked = now.begun + step(k);
    const double waited = queues                             ? now.taken
                          : loop == MadeLoop::waits_for_last ? std::max(now.taken, before.worked)
                                                             : std::max(now.taken, now.worked);
    now.turned = waited + host(k) + pause(k);
    if (k >= held)
      at[k - held].left =
          loop == MadeLoop::replaces ? now.taken : now.turned - (1 - lease_end) * host(k);
  }
  const auto ticks = [](double milliseconds) {
    return static_cast<detail::Ticks>(milliseconds * 1e6 + 1e9);
  };
  const auto length = [](double milliseconds) {
    return static_cast<std::int64_t>(milliseconds * 1e6 + 0.5);
  };
  std::vector<detail::FinishedBatch> records;
  for (std::size_t k = kStart; k < kStart + count; ++k) {
    const Moments& now = at[k];
    detail::FinishedBatch record;
    record.number = k;
    record.times.opened = ticks(now.opened);
    record.times.wanted = ticks(now.wanted);
    record.times.filled = ticks(now.filled);
    record.times.staged = ticks(now.staged);
    record.times.asked = ticks(now.asked);
    record.times.taken = ticks(now.taken);
    record.times.released = ticks(now.left);
    const double in_source = queues_on_device ? 0.01 : fill(k);
    record.times.work = static_cast<std::uint64_t>(length(in_source)) |
                        static_cast<std::uint64_t>(k % static_cast<std::size_t>(streams))
                            << detail::BatchTimes::kStreamShift;
    if (one_timed_in != 0 && k % one_timed_in == 0) {
      const auto turns = static_cast<std::size_t>(streams);
      record.device = {.source = on_device ? length(fill(k)) : -1,
                       .slot = on_device ? -1 : length(now.slot),
                       .copy = on_device ? -1 : length(copy(k)),
                       .transform = transform(k) > 0 ? length(transform(k)) : -1,
                       .wait = length(now.begun - now.reached),
                       .step = length(at[std::min(k + turns, all - 1)].reached - now.begun)};
    }
    records.push_back(record);
  }
  return records;
}

inline Stats MadePipeline::stats(std::size_t count) const {
  Stats stats;
  auto recent = std::make_shared<RecentBatches>();
  recent->batches = records(count);
  const bool on_device = source == MadeSource::on_device;
  for (const detail::FinishedBatch& batch : recent->batches)
    stats.source.busy += std::chrono::nanoseconds(batch.times.source_time());
  stats.source.batches = stats.consumer.batches = count;
  if (!on_device) stats.copy = {.batches = count, .bytes = 100 * count};
  stats.workers = workers;
  stats.host_depth = on_device ? 0 : host_depth;
  stats.device_depth = device_depth;
  stats.host_bytes = 100 * stats.host_depth;
  stats.device_bytes = 10 * device_depth;
  stats.setup.per_sample = source == MadeSource::per_sample;
  stats.setup.batch_size = pieces;
  stats.setup.transforms = transform(0) > 0;
  stats.recent = std::move(recent);
  return stats;
}

}  // namespace penstock::test
