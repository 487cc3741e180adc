// SPDX-License-Identifier: Apache-2.0

// Programs that were once told something wrong.

#include <sys/socket.h>
#include <unistd.h>
#include <penstock/emulation.hpp>
#include <penstock/launch.hpp>
#include <penstock/prefetcher.hpp>

#include <array>
#include <chrono>
#include <thread>

#include "pipeline.hpp"
#include "support/catch.hpp"
#include "support/made_stats.hpp"

using namespace std::chrono_literals;
using penstock::Bottleneck;
using penstock::Layout;
using penstock::Prefetcher;
using penstock::Stats;
using penstock::Stream;
using penstock::Tensor;
using penstock::Ticket;
using penstock::Verdict;
using penstock::VerdictKind;
using penstock::test::Loop;
using penstock::test::Outcome;
using penstock::test::Pipeline;
using penstock::test::run;
using penstock::test::says;
using penstock::test::Shape;

namespace {

/// Stages sleep, and others may need the processors: one of three runs must be undisturbed.
template <class Run, class IsRight>
Verdict right_in_one_of_three(Run run, IsRight is_right) {
  Verdict verdict;
  for (int attempt = 0; attempt < 3; ++attempt) {
    verdict = run().verdict();
    if (is_right(verdict)) break;
  }
  INFO(verdict.sentence);
  CHECK(is_right(verdict));
  return verdict;
}

bool asks_for_fewer_bytes(const Verdict& verdict) {
  return verdict.kind == VerdictKind::faster_copy && verdict.stage == Bottleneck::copy;
}

struct Numbers {
  Tensor<std::int32_t, 1> value;
};

/// Reads `batches` numbers that another thread sends every 4 ms, until there are no more.
Stats read_from_socket(std::uint64_t batches) {
  penstock::emulation::reset();
  std::array<int, 2> ends{};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  std::thread sender([&] {
    for (std::uint64_t i = 0; i < batches; ++i) {
      std::this_thread::sleep_for(4ms);
      const std::int32_t value = 7;
      if (write(ends[1], &value, sizeof value) != sizeof value) break;
    }
    close(ends[1]);
  });
  const Stream stream;
  Prefetcher<Numbers> prefetcher{Layout<Numbers>{1}.field(&Numbers::value, {}),
                                 penstock::Unbounded{1}, [&](const Ticket&, Numbers& batch) {
                                   std::int32_t value = 0;
                                   if (read(ends[0], &value, sizeof value) != sizeof value)
                                     return false;
                                   batch.value(0) = value;
                                   return true;
                                 }};
  while (const auto batch = prefetcher.next(stream.get())) {
  }
  stream.synchronize();
  sender.join();
  close(ends[0]);
  return prefetcher.stats();
}

/// The consumer takes 0.2 ms a batch, the source less, but for one that is held up for 60 ms.
Stats run_with_hiccup(bool device_times) {
  penstock::emulation::reset();
  const Stream stream;
  Prefetcher<Numbers> prefetcher{Layout<Numbers>{64}.field(&Numbers::value, {}),
                                 penstock::Sampler{{.samples = 64 * 63, .batch_size = 64}},
                                 [](const Ticket& ticket, Numbers&) {
                                   if (ticket.batch == 30) std::this_thread::sleep_for(60ms);
                                 },
                                 {.workers = 1, .host_depth = 4, .device_times = device_times}};
  while (const auto batch = prefetcher.next(stream.get()))
    penstock::for_each(stream.get(), 1, [](std::int64_t) { std::this_thread::sleep_for(1ms); });
  stream.synchronize();
  return prefetcher.stats();
}

}  // namespace

TEST_CASE("bytes that are small already are not to become uint8", "[verdict]") {
  const bool device_times = GENERATE(false, true), floats = GENERATE(false, true);
  // Far longer than a thread waits for a processor on a busy machine: the copy stays at its limit.
  const Pipeline pipeline{.floats = floats,
                          .fill = {0.5},
                          .step = {0.5},
                          .copy = 40,
                          .batches = 16,
                          .device_times = device_times};
  const Verdict verdict =
      right_in_one_of_three([&] { return run(pipeline).stats; }, asks_for_fewer_bytes);
  CHECK(verdict.stage == Bottleneck::copy);
  CHECK(says(verdict, "uint8 in place of float, where 8 bits are enough, makes it 4.0 times") ==
        floats);
  CHECK(says(verdict, "float") == floats);
}

TEST_CASE("a transform of 10 ms is not the bus", "[verdict]") {
  const bool device_times = GENERATE(false, true);
  const Loop loop = GENERATE(Loop::queues, Loop::waits);
  const Pipeline pipeline{.transforms = true,
                          .loop = loop,
                          .fill = {0.5},
                          .step = {0.5},
                          .copy = 0.2,
                          .transform = 10,
                          .batches = 20,
                          .device_times = device_times};
  const Verdict verdict = right_in_one_of_three(
      [&] { return run(pipeline).stats; },
      [](const Verdict& told) { return told.stage == Bottleneck::transform; });
  CHECK(verdict.stage == Bottleneck::transform);
  CHECK(verdict.transform > 9ms);
  CHECK(verdict.copy < 5ms);
}

TEST_CASE("a lease that ends right after its batch was staged does not charge the wait to the copy",
          "[verdict]") {
  const Pipeline pipeline{
      .fill = {12}, .step = {0.2}, .copy = 1, .batches = 20, .device_times = false};
  const Verdict verdict = right_in_one_of_three(
      [&] { return run(pipeline).stats; },
      [](const Verdict& told) { return told.stage == Bottleneck::source && told.copy < 3ms; });
  CHECK(verdict.kind == VerdictKind::more_workers);
}

TEST_CASE("a stream that waits for its socket needs no workers", "[verdict]") {
  const Verdict verdict = right_in_one_of_three(
      [] { return read_from_socket(30); },
      [](const Verdict& told) { return told.stage == Bottleneck::waiting_for_data; });
  CHECK(verdict.kind == VerdictKind::nothing);
  CHECK(verdict.enough_workers == 0);
  CHECK(says(verdict, "waiting for data"));
  CHECK_FALSE(says(verdict, "workers"));
}

TEST_CASE("one hiccup asks for no deeper ring", "[verdict]") {
  const bool device_times = GENERATE(false, true);
  const Verdict verdict =
      right_in_one_of_three([&] { return run_with_hiccup(device_times); },
                            [](const Verdict& told) { return says(told, "one batch came"); });
  CHECK(verdict.enough_host_depth == 0);
  CHECK(verdict.enough_workers == 0);
  CHECK(verdict.kind == VerdictKind::nothing);
}

TEST_CASE("more workers come with a slot where the consumer holds all of them", "[verdict]") {
  // Copy and step take turns, 20 ms a batch: workers alone would gain a tenth.
  const Pipeline pipeline{.fill = {22}, .step = {10}, .copy = 10, .device_depth = 1, .batches = 16};
  Outcome before;
  const Verdict verdict = right_in_one_of_three(
      [&] {
        before = run(pipeline);
        return before.stats;
      },
      [](const Verdict& told) { return told.kind == VerdictKind::more_workers; });
  CHECK(verdict.enough_workers >= 2);
  CHECK(verdict.enough_device_depth == 2);
  Pipeline taken = pipeline;
  taken.workers = verdict.enough_workers;
  taken.device_depth = verdict.enough_device_depth;
  double period = run(taken).truth.period;
  for (int again = 0; again < 2 && period > 15; ++again) period = run(taken).truth.period;
  CHECK(before.truth.period > 20);
  CHECK(period < 15);
}
