// SPDX-License-Identifier: Apache-2.0

// penstock_soak [BATCHES]: small batches, ten million of them unless told otherwise, twice:
//
//   1. one pipeline from the beginning to the end;
//   2. one pipeline after the other, with other workers, depths and schedules, each going on at the
//      State that the one before left as text.
//
// Some batches fail. What is delivered, in its order, read back from the device, is folded into a
// digest, which must be the same in both and the same as the digest that a plain loop over the
// Sampler gives. After its first tenth no pipeline may hold more memory, threads or CUDA objects.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <penstock/detail/mix.hpp>
#include <penstock/emulation.hpp>
#include <penstock/launch.hpp>
#include <penstock/prefetcher.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "vitals.hpp"

namespace {

using namespace penstock;
using emulation::Schedule;
using test::Vitals;
using test::vitals;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kBatchSize = 4;

Sampler make_sampler() {
  return Sampler{{.samples = 99'991, .batch_size = kBatchSize, .shuffle = true, .seed = 12}};
}

/// One batch of a thousand.
bool fails(std::uint64_t epoch, std::uint64_t batch) {
  return batch_seed(77, epoch, batch) % 1000 == 0;
}

struct Numbers {
  Tensor<std::uint64_t, 1> sample, hash;
};

void fill(const Ticket& ticket, Numbers& batch) {
  if (fails(ticket.epoch, ticket.batch)) throw std::runtime_error("a bad image");
  for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
    batch.sample(static_cast<std::int64_t>(i)) = ticket.samples[i];
    batch.hash(static_cast<std::int64_t>(i)) = detail::mix64(ticket.samples[i]);
  }
}

/// Folds what was delivered, in its order. Used by one thread at a time.
struct Digest {
  std::uint64_t value = 0, batches = 0, failed = 0, torn = 0;

  void fold(std::uint64_t number) { value = detail::mix64(value ^ number) + 1; }
  void fold_failure(std::uint64_t epoch, std::uint64_t batch) {
    fold(~(epoch << 32 ^ batch));
    ++failed;
  }
  bool operator==(const Digest&) const = default;
};

/// On the consumer's stream: reads the batch on the device.
struct FoldBatch {
  Numbers batch;
  Digest* digest;
  void operator()(std::int64_t) const {
    for (std::int64_t i = 0; i < batch.sample.extent(0); ++i) {
      digest->fold(batch.sample(i));
      digest->torn += batch.hash(i) == detail::mix64(batch.sample(i)) ? 0 : 1;
    }
    ++digest->batches;
  }
};
struct FoldFailure {
  std::uint64_t epoch, batch;
  Digest* digest;
  void operator()(std::int64_t) const { digest->fold_failure(epoch, batch); }
};

Digest serial_digest(std::uint64_t batches) {
  const Sampler sampler = make_sampler();
  Digest digest;
  std::vector<std::uint64_t> samples;
  for (std::uint64_t i = 0; i < batches; ++i) {
    const std::uint64_t epoch = i / sampler.batches(), batch = i % sampler.batches();
    if (fails(epoch, batch)) {
      digest.fold_failure(epoch, batch);
      continue;
    }
    sampler.samples(epoch, batch, samples);
    for (const std::uint64_t sample : samples) digest.fold(sample);
    ++digest.batches;
  }
  return digest;
}

struct Leg {
  Schedule schedule;
  int workers;
  std::size_t host_depth, device_depth;
  std::uint64_t share;  // of the batches, in thousandths
};

const char* name_of(Schedule schedule) {
  switch (schedule) {
    case Schedule::eager:
      return "eager";
    case Schedule::lazy:
      return "lazy";
    case Schedule::random:
      return "random";
  }
  return "?";
}

/// Takes `batches` batches, or the failures in their places.
void deliver(Prefetcher<Numbers>& prefetcher, std::uint64_t batches, Digest& digest,
             const Stream& stream) {
  for (std::uint64_t i = 0; i < batches; ++i) {
    try {
      const auto batch = prefetcher.next(stream.get());
      if (!batch) throw std::logic_error("the pipeline ended early");
      for_each(stream.get(), 1, FoldBatch{*batch, &digest});
    } catch (const SourceError& error) {
      for_each(stream.get(), 1, FoldFailure{error.epoch(), error.batch(), &digest});
    }
  }
  stream.synchronize();
}

/// Runs `batches` batches from `text` on, a State; returns the one behind them. Throws
/// std::runtime_error when something has grown.
std::string run(const Leg& leg, const std::string& text, std::uint64_t batches, Digest& digest) {
  constexpr std::uint64_t kParts = 10;  // the first is the warm-up
  emulation::reset({.schedule = leg.schedule, .seed = batches});
  const Stream stream;
  Prefetcher<Numbers> prefetcher(
      Layout<Numbers>{kBatchSize}.field(&Numbers::sample, {}).field(&Numbers::hash, {}),
      make_sampler(), fill,
      {.workers = leg.workers,
       .host_depth = leg.host_depth,
       .device_depth = leg.device_depth,
       .epochs = std::uint64_t{1} << 40});
  if (!text.empty()) prefetcher.restore(State::parse(text));
  Vitals warm;
  for (std::uint64_t part = 0; part < kParts; ++part) {
    const auto begin = Clock::now();
    const std::uint64_t count = batches * (part + 1) / kParts - batches * part / kParts;
    deliver(prefetcher, count, digest, stream);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    const Vitals now = vitals();
    if (part == 0) warm = now;
    std::cout << name_of(leg.schedule) << ", " << leg.workers << " workers, depths "
              << leg.host_depth << " and " << leg.device_depth << ": "
              << digest.batches + digest.failed << " batches, "
              << static_cast<std::uint64_t>(static_cast<double>(count) / seconds) << " a second, "
              << now << std::endl;
  }
  if (const std::string growth = growth_between(warm, vitals()); !growth.empty())
    throw std::runtime_error("not flat: " + growth);
  return to_string(prefetcher.state());
}

/// One run after the other, together `batches` batches.
Digest run_all(const std::vector<Leg>& legs, std::uint64_t batches) {
  Digest digest;
  std::string state;
  std::uint64_t share = 0, done = 0;
  for (const Leg& leg : legs) {
    share += leg.share;
    const std::uint64_t end = batches * share / 1000;
    state = run(leg, state, end - done, digest);
    done = end;
  }
  return digest;
}

bool report(const char* name, const Digest& digest, const Digest& expected) {
  const bool same = digest == expected;
  std::printf("%-22s digest %016llx, %llu batches delivered, %llu failed, %llu torn: %s\n", name,
              static_cast<unsigned long long>(digest.value),
              static_cast<unsigned long long>(digest.batches),
              static_cast<unsigned long long>(digest.failed),
              static_cast<unsigned long long>(digest.torn), same ? "as it should be" : "WRONG");
  return same;
}

int soak(std::uint64_t batches) {
  const std::vector<Leg> one{{Schedule::eager, 2, 8, 2, 1000}};
  // A random schedule takes its time: little of it keeps the whole within minutes.
  const std::vector<Leg> many{{Schedule::eager, 1, 4, 3, 390},
                              {Schedule::lazy, 3, 6, 1, 200},
                              {Schedule::random, 2, 16, 4, 10},
                              {Schedule::eager, 0, 2, 2, 390},
                              {Schedule::random, 4, 4, 1, 10}};
  const Digest serial = serial_digest(batches);
  const Digest first = run_all(one, batches), second = run_all(many, batches);
  bool good = report("a plain loop", serial, serial);
  good &= report("one pipeline", first, serial);
  good &= report("one after the other", second, serial);
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  return soak(argc > 1 ? std::stoull(argv[1]) : 10'000'000);
} catch (const std::exception& error) {
  std::fprintf(stderr, "penstock_soak: %s\n", error.what());
  return 1;
}
