// SPDX-License-Identifier: Apache-2.0

// Loads: arrivals, latencies and verdicts as numbers; closed and open loops on a small network.

#include "../../../../../examples/resnet/infer/latency/load.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "../../../../../examples/resnet/infer/latency/report.hpp"
#include "../../../../support/catch.hpp"
#include "../../matchers.hpp"
#include "../models.hpp"

namespace resnet::latency {
namespace {

using namespace resnet::test;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST_CASE("latencies: percentiles of any numbers, within a bin", "[resnet][latency]") {
  std::mt19937_64 random(3);
  for (const int bits : {4, 20, 45}) {
    Latencies latencies;
    std::vector<std::uint64_t> all;
    for (int i = 0; i < 5000; ++i) {
      all.push_back(random() >> (64 - bits) >> (random() % 4));
      latencies.add(nanoseconds(all.back()));
    }
    std::sort(all.begin(), all.end());
    for (const double percent : {0.0, 1.0, 50.0, 99.0, 99.9, 100.0}) {
      const auto rank = static_cast<std::size_t>(std::ceil(percent / 100 * 5000 - 1e-9));
      const auto wanted = static_cast<double>(all[std::max<std::size_t>(rank, 1) - 1]);
      const auto got = static_cast<double>(latencies.percentile(percent).count());
      INFO(bits << " bits, " << percent << " %: " << got << ", wanted " << wanted);
      CHECK(got >= wanted);
      CHECK(got <= wanted * (1 + 1.0 / 128));
    }
    CHECK(latencies.count() == 5000);
    CHECK(latencies.longest() == nanoseconds(all.back()));
  }
}

TEST_CASE("latencies: none, one, and those that a clock cannot have", "[resnet][latency]") {
  Latencies latencies;
  CHECK(latencies.percentile(50) == nanoseconds(0));
  CHECK(latencies.mean() == nanoseconds(0));
  latencies.add(nanoseconds(-5));
  CHECK(latencies.percentile(100) == nanoseconds(0));
  latencies.add(nanoseconds::max());
  CHECK(latencies.percentile(100) == nanoseconds::max());
  CHECK(latencies.percentile(50) == nanoseconds(0));
}

TEST_CASE("arrivals: at the rate, by the seed", "[resnet][latency]") {
  constexpr int count = 20'000;
  const auto schedule = [](ArrivalKind kind, std::uint64_t seed) {
    Arrivals arrivals(1000, kind, seed);
    std::vector<double> times;
    for (int i = 0; i < count; ++i)
      times.push_back(std::chrono::duration<double>(arrivals.next()).count());
    return times;
  };
  const auto uniform = schedule(ArrivalKind::uniform, 1);
  CHECK(uniform.front() == Approx(0.001));
  CHECK(uniform.back() == Approx(count / 1000.0));

  const auto poisson = schedule(ArrivalKind::poisson, 1);
  CHECK(std::is_sorted(poisson.begin(), poisson.end()));
  CHECK(poisson.back() == Approx(count / 1000.0).epsilon(0.03));  // four standard deviations
  // Of an exponential distribution, a part of exp(-1) is longer than the mean.
  int longer = 0;
  for (std::size_t i = 1; i < count; ++i) longer += poisson[i] - poisson[i - 1] > 0.001;
  CHECK(longer / static_cast<double>(count) == Approx(std::exp(-1)).margin(0.014));

  CHECK(poisson == schedule(ArrivalKind::poisson, 1));
  CHECK(poisson != schedule(ArrivalKind::poisson, 2));
  CHECK_THROWS_AS(Arrivals(0, ArrivalKind::uniform, 1), std::invalid_argument);
}

TEST_CASE("a queue grows when more wait at the end than half-way, and than are under way",
          "[resnet][latency]") {
  Result result;
  result.load.max_batch = 8;
  const auto grows = [&](std::uint64_t half, std::uint64_t end) {
    result.backlog_half = half;
    result.backlog_end = end;
    return queue_grows(result, 2);
  };
  CHECK(grows(250, 500));
  CHECK(grows(0, 25));
  CHECK_FALSE(grows(12, 24));    // two contexts' batches, and one that is being formed
  CHECK_FALSE(grows(400, 410));  // a queue that a slow start has left
  CHECK_FALSE(grows(0, 0));
}

/// A network that tells images apart, with its server.
struct Fixture {
  explicit Fixture(int contexts, const std::vector<std::int64_t>& batches = {1, 3, 8})
      : network(test::Unfolded("resnet8", {2, 3, 12, 12}).folded(), {.batches = batches},
                stream.get()),
        server(network,
               {.images = network.image(),
                .format = Format::nhwc,
                .factor = {1 / 64.f, 1 / 64.f, 1 / 64.f, 0},
                .offset = {-2, -2, -2, 0}},
               contexts),
        images(30, 12) {
    server.warm_up();
    images.expect(server);
  }

  penstock::Stream stream;
  InferenceNetwork network;
  Server server;
  Images images;
};

TEST_CASE("closed loop: every request is answered, with its own answer", "[resnet][latency]") {
  Fixture fixture(3);
  const int clients = GENERATE(1, 5);
  const Result result = run(fixture.server, fixture.images,
                            {.clients = clients,
                             .requests = 100,
                             .warmup = 11,
                             .deadline = std::chrono::microseconds(100),
                             .max_batch = 4});
  CHECK(result.all_answered == 111);
  CHECK(result.latencies.count() == 100);
  CHECK(result.wrong == 0);
  for (const auto& [size, batches] : result.batches) {
    CHECK(size <= std::min<std::size_t>(4, static_cast<std::size_t>(clients)));
    CHECK(batches > 0);
  }
  CHECK(result.throughput() > 0);
  CHECK(result.mean_batch() >= 1);
}

TEST_CASE("open loop: requests are sent as of their times, however late the sender is",
          "[resnet][latency]") {
  const Load load{.rate = 1000, .arrivals = ArrivalKind::uniform, .requests = 40, .warmup = 10};
  const Clock::time_point start = Clock::now() - milliseconds(5000);
  std::uint64_t sent = 0;
  send_by_schedule(load, start, [&](std::uint64_t number, Clock::time_point arrival) {
    CHECK(number == sent++);
    CHECK(arrival == start + milliseconds(number + 1));
    return sent < 45;
  });
  CHECK(sent == 45);  // until there are no more
}

TEST_CASE("open loop: a queue that nobody serves grows, and that is told", "[resnet][latency]") {
  Fixture fixture(1);
  Server nobody(fixture.network, {}, 0);
  const Load load{.rate = 1e6, .requests = 100, .warmup = 10, .max_batch = 8};
  const Result result = run(nobody, fixture.images, load);
  CHECK(result.backlog_half == 60);
  CHECK(result.backlog_end == 110);
  CHECK(result.all_answered == 0);
  CHECK(queue_grows(result, 1));
  CHECK_THAT(table_row(result, 1),
             contains("BEYOND what is reached here: 1e+06 requests a second"));
  CHECK_THAT(table_row(result, 1), contains("110 had no answer (60 half-way)"));
}

TEST_CASE("open loop: latency counts from the schedule", "[resnet][latency]") {
  Fixture fixture(2);
  Load load{.rate = 10'000,
            .arrivals = ArrivalKind::uniform,
            .requests = 120,
            .warmup = 10,
            .max_batch = 8};
  // The sender is five seconds behind: so are all answers, and nobody may leave that out.
  const Clock::time_point behind = Clock::now() - milliseconds(5000);
  const Result late = run(fixture.server, fixture.images, load, behind);
  CHECK(late.all_answered == 130);
  CHECK(late.latencies.count() == 120);
  CHECK(late.wrong == 0);
  CHECK(late.latencies.percentile(0) >= milliseconds(5000 - 13));
  CHECK(late.late >= milliseconds(5000 - 13));
  CHECK(late.seconds >= 4.98);

  load.rate = 2000;
  const Result calm = run(fixture.server, fixture.images, load);
  CHECK(calm.all_answered == 130);
  CHECK(calm.wrong == 0);
  CHECK(calm.seconds >= 119 / 2000.0);
}

TEST_CASE("images: another image's answer is wrong", "[resnet][latency]") {
  Fixture fixture(1);
  const Request requests[] = {fixture.images.request(0, {}), fixture.images.request(31, {})};
  CHECK(requests[1].image == 1);
  const std::span<const float> logits = fixture.server.contexts().front()->infer(requests);
  const auto classes = static_cast<std::size_t>(fixture.network.classes());
  for (std::size_t of = 0; of < 2; ++of)
    for (std::size_t row = 0; row < 2; ++row)
      CHECK(fixture.images.is_right(
                {requests[of], logits.subspan(row * classes, classes), row, 2, {}}) == (of == row));
  const std::vector<float> none(classes, NAN);
  CHECK_FALSE(fixture.images.is_right({requests[0], none, 0, 1, {}}));
}

TEST_CASE("images: a network that tells them not apart is of no use", "[resnet][latency]") {
  const penstock::Stream stream;
  Model model = Unfolded("resnet8", {2, 3, 12, 12}).folded();
  std::fill(model.last_weights.begin(), model.last_weights.end(), 0.0f);
  const InferenceNetwork network(model, {.batches = {1}}, stream.get());
  Server server(network, {.images = network.image(), .format = Format::nhwc}, 1);
  Images images(2, 12);
  CHECK_THROWS_WITH(images.expect(server), contains("images 0 and 1 are the same"));
}

}  // namespace
}  // namespace resnet::latency
