// SPDX-License-Identifier: Apache-2.0

#include "pipeline.hpp"

#include <penstock/emulation.hpp>
#include <penstock/launch.hpp>
#include <penstock/prefetcher.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <deque>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock::test {

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

struct Bytes {
  Tensor<std::uint8_t, 2> value;
};
struct Floats {
  Tensor<float, 2> value;
};
struct Tokens {
  Ragged<std::uint8_t> value;
};

constexpr std::int64_t kBytes = 128 << 10;
constexpr std::int64_t kSamples = 4;  // in a batch

template <class Batch>
Layout<Batch> layout_of() {
  if constexpr (std::is_same_v<Batch, Tokens>)
    return Layout<Batch>{kSamples}.field(&Batch::value, Capacity{kBytes});
  else if constexpr (std::is_same_v<Batch, Floats>)
    return Layout<Batch>{kSamples}.field(&Batch::value, {kBytes / kSamples / 4});
  else
    return Layout<Batch>{kSamples}.field(&Batch::value, {kBytes / kSamples});
}

/// What a row of a ragged field has: all have the same, so that copies take as long as they should.
void assign_rows(Tokens& batch, std::int64_t first, std::int64_t rows) {
  static const std::vector<std::uint8_t> values(kBytes / kSamples);
  for (std::int64_t row = first; row < first + rows; ++row)
    batch.value.assign(row, std::span<const std::uint8_t>(values));
}
template <class Batch>
void assign_rows(Batch&, std::int64_t, std::int64_t) {}

struct Span {
  Clock::time_point begin, end;
  Milliseconds late{0};  // It took so much longer than it should.

  Milliseconds length() const { return end - begin; }
};

/// A thread that sleeps wakes up late where it has to wait for a processor.
Span sleep(double milliseconds) {
  constexpr Milliseconds kUsual{0.2};  // of timers on an idle machine
  Span span{Clock::now(), {}};
  std::this_thread::sleep_for(Milliseconds(milliseconds));
  span.end = Clock::now();
  span.late = std::max(Milliseconds(0), span.length() - Milliseconds(milliseconds) - kUsual);
  return span;
}

/// Adds up what the stages of a kind noted.
class Notes {
 public:
  void add(Span span) {
    sum_ += (span.end - span.begin).count();
    late_ += std::chrono::duration_cast<Clock::duration>(span.late).count();
  }
  double milliseconds() const { return Milliseconds(Clock::duration(sum_.load())).count(); }
  double late_milliseconds() const { return Milliseconds(Clock::duration(late_.load())).count(); }

 private:
  std::atomic<Clock::rep> sum_{0}, late_{0};
};

/// Of copies to the device, as the emulated machine ran them.
double milliseconds_of_copies() {
  Milliseconds all{0};
  for (const emulation::Operation& operation : emulation::timeline())
    if (operation.kind == emulation::OperationKind::copy) all += operation.end - operation.begin;
  return all.count();
}

void start_machine(double copy_milliseconds) {
  emulation::Options options = emulation::options();
  options.schedule = emulation::Schedule::eager;  // Delays are a bottleneck of their own.
  options.machine.host_to_device = kBytes / (copy_milliseconds * 1e-3);
  emulation::reset(options);
  emulation::record_timeline(true);
}

/// One run of a pipeline of this kind of batch.
template <class Batch>
class Run {
 public:
  explicit Run(const Pipeline& pipeline) : pipeline_(pipeline) { steps_.reserve(pipeline.batches); }

  Outcome operator()() {
    const PrefetcherOptions options{.workers = pipeline_.workers,
                                    .host_depth = pipeline_.host_depth,
                                    .device_depth = pipeline_.device_depth,
                                    .epochs = pipeline_.epochs,
                                    .device_times = pipeline_.device_times};
    const auto layout = layout_of<Batch>();
    if (!pipeline_.transforms) {
      Prefetcher<Batch> prefetcher{layout, sampler(), source(), options};
      return consume(prefetcher);
    }
    const DeviceTransform<Batch, Bytes> transform{
        layout_of<Bytes>(), [this](const Ticket&, const Batch&, Bytes&, cudaStream_t stream) {
          for_each(stream, 1,
                   [this](std::int64_t) { transforms_.add(sleep(pipeline_.transform)); });
        }};
    Prefetcher<Bytes, Batch> prefetcher{layout, sampler(), source(), transform, options};
    return consume(prefetcher);
  }

 private:
  std::uint64_t per_epoch() const { return pipeline_.batches / pipeline_.epochs; }

  AnySampler sampler() const {
    if (pipeline_.unbounded) return Unbounded{kSamples};
    return Sampler{{.samples = per_epoch() * kSamples, .batch_size = kSamples}};
  }

  /// Number of the batch over all epochs.
  std::uint64_t number(std::uint64_t epoch, std::uint64_t batch) const {
    return pipeline_.unbounded ? batch : epoch * per_epoch() + batch;
  }

  AnySource<Batch> source() {
    const auto fill = [this](std::uint64_t batch, double part) {
      fills_.add(sleep(pipeline_.fill.of(batch) * part));
    };
    const auto warm_up = [this] {
      static thread_local bool is_cold = true;  // a worker of this run, or its stream
      if (std::exchange(is_cold, false)) sleep(pipeline_.first_fill);
    };
    switch (pipeline_.source) {
      case Source::batch:
        return [this, warm_up, fill](const Ticket& ticket, Batch& batch) {
          if (ticket.batch >= per_epoch() && pipeline_.unbounded) return false;
          warm_up();
          fill(number(ticket.epoch, ticket.batch), 1);
          assign_rows(batch, 0, kSamples);
          return true;
        };
      case Source::sample:
        return per_sample([this, warm_up, fill](const Sample& sample, Batch& batch) {
          warm_up();
          fill(number(sample.epoch, sample.batch), 1.0 / kSamples);
          assign_rows(batch, sample.row, 1);
        });
      case Source::device:
        return on_device([this, warm_up, fill](const Ticket& ticket, Batch&, cudaStream_t) {
          warm_up();
          fill(number(ticket.epoch, ticket.batch), 1);
        });
      case Source::device_queues:
        return on_device([this, warm_up, fill](const Ticket& ticket, Batch&, cudaStream_t stream) {
          const std::uint64_t batch = number(ticket.epoch, ticket.batch);
          for_each(stream, 1, [warm_up, fill, batch](std::int64_t) {
            warm_up();
            fill(batch, 1);
          });
        });
    }
    throw std::logic_error("no such source");
  }

  template <class Prefetcher>
  Outcome consume(Prefetcher& prefetcher) {
    const Stream stream;
    std::deque<decltype(prefetcher.next(stream.get()))> held;
    sleep(pipeline_.start);
    for (std::uint64_t batch = 0;; ++batch) {
      if (pipeline_.replaces && batch > 0)
        held.front() = prefetcher.next(stream.get());
      else
        held.push_back(prefetcher.next(stream.get()));
      if (!held.back()) break;
      const double step = pipeline_.step.of(batch) + (batch == 0 ? pipeline_.first_step : 0);
      if (pipeline_.loop != Loop::works)
        for_each(stream.get(), 1, [this, step](std::int64_t) { steps_.push_back(sleep(step)); });
      if (pipeline_.loop != Loop::queues) stream.synchronize();
      if (pipeline_.loop == Loop::works) steps_.push_back(sleep(step));
      if (held.size() == pipeline_.leases && !pipeline_.replaces) held.pop_front();
    }
    held.clear();
    stream.synchronize();
    return {truth(), prefetcher.stats()};
  }

  Truth truth() const {
    Milliseconds computing{0}, late{0}, overslept{0};
    for (std::size_t i = 1; i < steps_.size(); ++i) {
      computing += steps_[i].length();
      overslept += steps_[i].late;
      late = std::max<Milliseconds>(late, steps_[i].begin - steps_[i - 1].end);
    }
    const Milliseconds wall = steps_.back().end - steps_.front().end;
    const auto batches = static_cast<double>(steps_.size());
    Truth truth;
    constexpr std::size_t kStart = 24;
    const std::size_t first = steps_.size() >= 2 * kStart ? kStart : 0;
    truth.period = Milliseconds(steps_.back().end - steps_[first].end).count() /
                   static_cast<double>(steps_.size() - 1 - first);
    const double all = wall.count() / (batches - 1) * batches;
    truth.source = fills_.milliseconds() / pipeline_.workers / all;
    truth.copy = milliseconds_of_copies() / all;
    truth.transform = transforms_.milliseconds() / all;
    truth.consumer = computing / wall;
    truth.late = late / wall;
    truth.overslept = (overslept.count() + fills_.late_milliseconds() / pipeline_.workers +
                       transforms_.late_milliseconds()) /
                      wall.count();
    return truth;
  }

  const Pipeline& pipeline_;
  std::vector<Span> steps_;
  Notes fills_, transforms_;
};

}  // namespace

double Work::of(std::uint64_t batch) const {
  constexpr std::uint64_t kGroup = 8, kBetweenStalls = 20;
  constexpr double kQuick = 0.2;  // of the mean
  switch (shape) {
    case Shape::steady:
      return milliseconds;
    case Shape::jitter: {
      const std::uint64_t bits = (batch + 1) * 0x9E3779B97F4A7C15u >> 40;
      return milliseconds * (kQuick + 1.6 * static_cast<double>(bits) / (1 << 24));
    }
    case Shape::bursts:
      return milliseconds *
             (batch % kGroup == kGroup - 1 ? kGroup - (kGroup - 1) * kQuick : kQuick);
    case Shape::lognormal: {  // The sum of twelve numbers from 0 to 1 is about normal.
      double sum = -6;
      for (std::uint64_t i = 1; i <= 12; ++i)
        sum += static_cast<double>((batch * 12 + i) * 0x9E3779B97F4A7C15u >> 40) / (1 << 24);
      constexpr double kSigma = 0.35;
      return milliseconds * std::exp(kSigma * sum - kSigma * kSigma / 2);
    }
    case Shape::outliers:
      return milliseconds * (batch % 16 == 5 ? 10 : 1) * 16 / 25;
    case Shape::phases:
      return milliseconds * (batch / 32 % 2 == 0 ? 0.5 : 1.5);
    case Shape::stalls:
      return milliseconds + (batch % kBetweenStalls == kBetweenStalls / 2 ? stall : 0);
  }
  return 0;
}

std::string Pipeline::text() const {
  constexpr std::array kSources{"batch", "per_sample", "on_device", "on_device, queues"};
  constexpr std::array kLoops{"queues", "waits", "works on the host"};
  constexpr std::array kShapes{"",           " jitter",   " bursts", " stalls",
                               " lognormal", " outliers", " phases"};
  std::string text = kSources.at(static_cast<std::size_t>(source));
  const auto say = [&](bool is, const char* what) { text += is ? what : ""; };
  const auto number = [](double value) { return std::to_string(value).substr(0, 4); };
  const auto shape = [&](const Work& work) {
    return kShapes.at(static_cast<std::size_t>(work.shape));
  };
  say(unbounded, ", unbounded");
  say(ragged, ", ragged");
  say(floats, ", float");
  text += ", loop " + std::string(kLoops.at(static_cast<std::size_t>(loop)));
  text += ": fill " + number(fill.milliseconds) + shape(fill) + ", copy " + number(copy);
  if (transforms) text += ", transform " + number(transform);
  text += ", step " + number(step.milliseconds) + shape(step) + "; workers " +
          std::to_string(workers) + ", host_depth " + std::to_string(host_depth) +
          ", device_depth " + std::to_string(device_depth) + ", leases " + std::to_string(leases) +
          ", batches " + std::to_string(batches) + ", epochs " + std::to_string(epochs);
  say(device_times, ", device_times");
  if (start > 0) text += ", starts after " + number(start);
  if (first_fill > 0) text += ", first fill " + number(first_fill);
  if (first_step > 0) text += ", first step " + number(first_step);
  say(replaces, ", replaces its lease");
  return text;
}

Outcome run(const Pipeline& pipeline) {
  start_machine(pipeline.copy);
  if (pipeline.ragged) return Run<Tokens>(pipeline)();
  if (pipeline.floats) return Run<Floats>(pipeline)();
  return Run<Bytes>(pipeline)();
}

}  // namespace penstock::test
