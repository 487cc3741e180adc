// SPDX-License-Identifier: Apache-2.0

// What bounds a client, by its Stats: made up ones, and those of requests to a server in this
// process.

#include <penstock/remote_bound.hpp>

#include <chrono>
#include <penstock/remote.hpp>
#include <string>

#include "range_server.hpp"
#include "readers.hpp"
#include "support/catch.hpp"
#include "support/eventually.hpp"

namespace penstock::test {
namespace {

using namespace std::chrono_literals;
using penstock::remote::Bound;
using penstock::remote::Client;
using penstock::remote::diagnose;
using penstock::remote::Diagnosis;
using penstock::remote::explain;
using penstock::remote::Stats;

/// Ten seconds in which two reactors brought 1 GiB by 1,000 requests, 20 of them at a time.
Stats ten_seconds() {
  return {.requests = 1000,
          .bytes = std::uint64_t{1} << 30,
          .limit = 32,
          .most_limit = 64,
          .reactors = 2,
          .request_time = 200s,
          .limited_time = 4s,
          .processor_time = 6s,
          .time = std::chrono::steady_clock::time_point(10s),
          .latency_p50 = 150ms};
}
Diagnosis diagnosis_of(const Stats& stats) {
  return diagnose({}, stats);
}

bool mentions(const Diagnosis& diagnosis, const char* words) {
  INFO(diagnosis.sentence);
  const bool found = diagnosis.sentence.find(words) != std::string::npos;
  CHECK(found);
  return found;
}

}  // namespace

TEST_CASE("diagnose: the readers ask for too little", "[remote]") {
  Stats stats = ten_seconds();
  CHECK(diagnosis_of(stats).bound == Bound::latency);
  CHECK(
      diagnosis_of(stats).sentence ==
      "20.0 requests at the same time bring 102.4 MiB a second, and each takes 150.00 ms: announce "
      "more batches (read_ahead), or take more workers");
  stats.request_time = 4s;  // 0.4 at a time
  CHECK(diagnosis_of(stats).bound == Bound::demand);
  mentions(diagnosis_of(stats), "0.4 requests at the same time: the readers do not wait");
  CHECK(diagnosis_of({}).bound == Bound::demand);
}

TEST_CASE("diagnose: at the limit it is the bandwidth, at its most the latency", "[remote]") {
  Stats stats = ten_seconds();
  stats.limited_time = 6s;
  CHECK(diagnosis_of(stats).bound == Bound::bandwidth);
  mentions(diagnosis_of(stats), "more of them brought no more");
  stats.limit = stats.most_limit;
  CHECK(diagnosis_of(stats).bound == Bound::latency);
  mentions(diagnosis_of(stats), "raise Options::max_requests (this rank's part is 64)");
}

TEST_CASE("diagnose: busy reactors, and a server that throttles, come first", "[remote]") {
  Stats stats = ten_seconds();
  stats.limited_time = 10s;
  stats.processor_time = 18s;  // 90 % of two threads
  CHECK(diagnosis_of(stats).bound == Bound::processor);
  mentions(diagnosis_of(stats), "busy for 90 % of the time: more Options::reactors (now 2)");
  stats.throttled = 11;
  CHECK(diagnosis_of(stats).bound == Bound::throttling);
  mentions(diagnosis_of(stats), "429 or 503 to 11 of 1000 requests; 32 run at the same time now");
  stats.throttled = 10;
  CHECK(diagnosis_of(stats).bound == Bound::processor);
}

TEST_CASE("diagnose: only what is between the two Stats counts", "[remote]") {
  Stats before = ten_seconds();
  before.throttled = 500;
  Stats now = before;
  now.time += 10s;
  now.request_time += 10s;
  now.requests += 10;
  CHECK(diagnose(before, now).bound == Bound::latency);
}

TEST_CASE("explain: a pipeline that waits for its source has both sentences", "[remote]") {
  Verdict verdict;
  verdict.sentence = "the workers cannot keep up";
  verdict.stage = Bottleneck::source;
  CHECK(explain(verdict, {}, ten_seconds()) ==
        "the workers cannot keep up; remote: " + diagnosis_of(ten_seconds()).sentence);
  verdict.stage = Bottleneck::consumer;
  CHECK(explain(verdict, {}, ten_seconds()) == "the workers cannot keep up");
}

TEST_CASE("diagnose: of a server whose answers take their time, and that throttles", "[remote]") {
  RangeServer server(10'000);
  const Client client({.head_bytes = 1,
                       .max_requests = 4,
                       .attempts = 1'000'000,
                       .backoff = 1ms,
                       .most_backoff = 1ms,
                       .hedging = false});
  const File file = client.file(server.url());
  server.take(20ms);
  const auto after = [&](std::uint64_t requests, const Stats& before) {
    CHECK(eventually([&] { return client.stats().requests >= before.requests + requests; }));
    return diagnose(before, client.stats());
  };
  {
    const Readers readers(file, 2);
    const Diagnosis few = after(20, client.stats());
    CHECK(few.bound == Bound::latency);
    mentions(few, "announce more batches");
  }
  const Readers readers(file, 20);
  const Diagnosis many = after(40, client.stats());
  CHECK(many.bound == Bound::latency);
  mentions(many, "raise Options::max_requests (this rank's part is 4)");
  server.answer_with(503);
  CHECK(after(40, client.stats()).bound == Bound::throttling);
  server.answer_with(0);
}

}  // namespace penstock::test
