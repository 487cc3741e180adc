// SPDX-License-Identifier: Apache-2.0

// What requests are made of: the head of an answer, the limit of requests, latencies, sizes, memory
// for bytes, and what a service says about an error.

#include <answer_head.hpp>
#include <buffers.hpp>
#include <latencies.hpp>
#include <request_limit.hpp>
#include <service_error.hpp>
#include <usual_size.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "support/catch.hpp"

using namespace penstock::remote;
using namespace std::chrono_literals;

namespace {

AnswerHead head_of(std::initializer_list<const char*> lines) {
  AnswerHead head;
  for (const char* const line : lines) head.take(line);
  return head;
}

std::optional<AnswerHead::Range> range_of(const std::string& value) {
  return head_of({"HTTP/1.1 206 Partial\r\n", ("Content-Range: " + value + "\r\n").c_str()})
      .range();
}

/// As many requests as may run at the same time, which bring `bytes` each.
void fill(RequestLimit& limit, Time now, std::size_t bytes) {
  int running = 0;
  while (limit.try_begin(now)) ++running;
  for (; running > 0; --running) limit.end(now, bytes, false);
}

}  // namespace

TEST_CASE("AnswerHead: names in any letters, values with spaces, the last head counts",
          "[remote]") {
  AnswerHead head = head_of({"HTTP/1.1 100 Continue\r\n", "ETag: \"old\"\r\n", "\r\n"});
  CHECK(head.status() == 100);
  CHECK(head.complete());
  for (const char* const line : {"HTTP/1.1 206 Partial Content\r\n", "CONTENT-LENGTH:  12 \r\n",
                                 "content-range: bytes 5-16/100\r\n", "no colon\r\n", "\r\n"})
    head.take(line);
  CHECK(head.complete());
  CHECK(head.status() == 206);
  CHECK(head.etag().empty());
  CHECK(head.length() == 12);
  REQUIRE(head.range());
  CHECK(head.range()->has_bytes);
  CHECK(head.range()->first == 5);
  CHECK(head.range()->last == 16);
  CHECK(head.range()->total == 100);
  CHECK_FALSE(head_of({"HTTP/1.1 200 OK", "Content-Length: 5"}).complete());
  CHECK_FALSE(head_of({"HTTP/1.1 abc", ""}).complete());
  head.take("etag: W/\"a b\"");
  CHECK(head.etag() == "W/\"a b\"");
  CHECK(head_of({"HTTP/1.1 200 OK", ("ETag: " + std::string(256, 'x')).c_str()}).etag().empty());
  CHECK(head_of({"HTTP/1.1 abc"}).status() == 0);
  CHECK_FALSE(head_of({"HTTP/1.1 200 OK", "Content-Length: -1"}).length());
  CHECK_FALSE(head_of({"HTTP/1.1 200 OK", "Content-Length: 99999999999999999999"}).length());
}

TEST_CASE("AnswerHead: a range that is none is not there", "[remote]") {
  const auto unknown = range_of("bytes 0-9/*");
  REQUIRE(unknown);
  CHECK(unknown->has_bytes);
  CHECK_FALSE(unknown->total);
  const auto total_alone = range_of("bytes */7");
  REQUIRE(total_alone);
  CHECK_FALSE(total_alone->has_bytes);
  CHECK(total_alone->total == 7);
  for (const char* const wrong : {"", "bytes", "bytes 0-9", "bytes 9-0/100", "bytes 0-100/100",
                                  "bytes -9/100", "bytes 0-/100", "bytes a-b/100", "bytes 0-9/-1",
                                  "items 0-9/100", "bytes 0-9/18446744073709551616"}) {
    INFO(wrong);
    CHECK_FALSE(range_of(wrong));
  }
}

TEST_CASE("AnswerHead: a checksum of the whole object, as Google or S3 say it", "[remote]") {
  const auto checksum = [](const std::string& line) {
    return head_of({"HTTP/1.1 200 OK", line.c_str()}).crc32c();
  };
  // Of "123456789".
  CHECK(checksum("x-amz-checksum-crc32c: 4waSgw==") == 0xE3069283);
  CHECK(checksum("X-Goog-Hash: crc32c=4waSgw==") == 0xE3069283);
  CHECK(checksum("x-goog-hash: md5=JfnnlDI7RTiF9RgfG2JNCw==, crc32c=4waSgw==") == 0xE3069283);
  CHECK(checksum("x-amz-checksum-crc32c: AAAAAA==") == 0u);
  CHECK(checksum("x-amz-checksum-crc32c: /////w==") == 0xFFFFFFFF);
  CHECK(checksum("x-amz-checksum-crc32c: +/AAAQ==") == 0xFBF00001);
  for (const char* const none :
       {"x-amz-checksum-crc32c: 4waSgw==-3", "x-amz-checksum-crc32c: 4waSgw",
        "x-amz-checksum-crc32c: 4waSg*==", "x-amz-checksum-crc32c: 4waSgwA=",
        "x-amz-checksum-crc32c:", "x-amz-checksum-crc32: 4waSgw==", "x-goog-hash: md5=4waSgw==",
        "x-goog-hash: ,,", "x-goog-hash: crc32c=", "etag: crc32c=4waSgw=="}) {
    INFO(none);
    CHECK_FALSE(checksum(none));
  }
  AnswerHead head =
      head_of({"HTTP/1.1 200 OK", "x-goog-hash: crc32c=4waSgw==", "x-goog-hash: md5=a"});
  CHECK(head.crc32c() == 0xE3069283);  // in two lines
  head.take("HTTP/1.1 200 OK");
  CHECK_FALSE(head.crc32c());
}

TEST_CASE("RequestLimit: rises while that brings more, and goes back where it does not",
          "[remote]") {
  RequestLimit limit(64);
  Time now = Time{} + 1h;
  CHECK(limit.limit() == 16);
  CHECK(limit.try_begin(now));
  limit.end(now, 1000, false);  // The first period begins.
  const auto period = [&](std::size_t bytes) {
    now += 1s;
    fill(limit, now, bytes);
    return limit.limit();
  };
  CHECK(period(1000) == 32);
  CHECK(period(1000) == 64);                             // twice the answers
  CHECK(period(500) == 32);                              // no more than before: it goes back,
  for (int i = 0; i < 8; ++i) CHECK(period(500) == 32);  // and stays
  CHECK(period(500) == 36);                              // From then on it rises by an eighth.
  CHECK(period(500) == 40);                              // 36 answers in place of 32: 12 % more
  CHECK(period(400) == 36);                              // less than before
}

TEST_CASE("RequestLimit: has its bounds, and stays where it was not reached", "[remote]") {
  Time now = Time{} + 1h;
  RequestLimit unused(64);
  for (int i = 0; i < 100; ++i) {
    REQUIRE(unused.try_begin(now));
    unused.end(now += 100ms, 1000, false);
  }
  CHECK(unused.limit() == 16);
  RequestLimit one(1);
  CHECK(one.try_begin(now));
  CHECK_FALSE(one.try_begin(now));
  CHECK_FALSE(one.has_room());
  one.begin_anyway(now);
  one.end(now, 10, false);
  CHECK_FALSE(one.has_room());
  one.end(now, 10, true);
  CHECK(one.has_room());
  CHECK(one.limit() == 1);
}

TEST_CASE("RequestLimit: 429 and 503 halve it, once a second", "[remote]") {
  RequestLimit limit(64);
  const Time now = Time{} + 1h;
  CHECK_FALSE(limit.throttled_lately(now));
  const auto throttle = [&](Time then) {
    limit.begin_anyway(then);
    limit.end(then, 0, true);
    return limit.limit();
  };
  CHECK(throttle(now) == 8);
  CHECK(throttle(now + 999ms) == 8);
  CHECK(limit.throttled_lately(now + 1998ms));
  CHECK_FALSE(limit.throttled_lately(now + 1999ms));
  CHECK(throttle(now + 1s) == 4);
  CHECK(throttle(now + 2s) == 2);
  CHECK(throttle(now + 3s) == 1);
  CHECK(throttle(now + 4s) == 1);
}

TEST_CASE("Histogram: a bound is not below what was added, nor 19 % above", "[remote]") {
  for (const auto duration : {60us, 1000us, 123'456us, 7'000'000us}) {
    Histogram one;
    CHECK_FALSE(one.quantile(0.5));
    one.add(duration);
    REQUIRE(one.quantile(0.5));
    CHECK(*one.quantile(0.5) >= duration);
    CHECK(*one.quantile(0.5) <= duration * 1.19);
  }
  Histogram many;
  for (int i = 0; i < 95; ++i) many.add(1ms);
  for (int i = 0; i < 5; ++i) many.add(1s);
  CHECK(*many.quantile(0.95) < 2ms);
  CHECK(*many.quantile(0.96) >= 1s);
  many.halve();
  CHECK(many.count() == 100 - 47 - 2);
  Histogram ends;
  ends.add(0ns);
  ends.add(10h);
  CHECK(*ends.quantile(0.5) == 50us);
  CHECK(*ends.quantile(1) > 10min);
}

TEST_CASE("Latencies: by size, from 20 requests on", "[remote]") {
  Latencies latencies;
  for (int i = 0; i < 20; ++i) {
    CHECK_FALSE(latencies.quantile(100'000, 0.5));
    latencies.add(65'537, 1ms);
    latencies.add(std::size_t{1} << 40, 1s);
  }
  CHECK(*latencies.quantile(131'072, 0.5) < 2ms);
  CHECK_FALSE(latencies.quantile(65'536, 0.5));
  CHECK_FALSE(latencies.quantile(131'073, 0.5));
  CHECK(*latencies.quantile(std::size_t{1} << 30, 0.5) >= 1s);
  CHECK(latencies.all().count() == 40);
  for (int i = 0; i < 5000; ++i) latencies.add(100'000, 8ms);  // The old ones are forgotten.
  CHECK(*latencies.quantile(100'000, 0.01) > 7ms);
}

TEST_CASE("Buffers: no more than their sum, and what comes back is used again", "[remote]") {
  constexpr std::size_t kKiB = 1024;
  Buffers buffers(256 * kKiB);
  Buffer a = buffers.take(100 * kKiB);  // 128
  Buffer b = buffers.take(1);           // 64
  Buffer c = buffers.take(64 * kKiB);
  CHECK(a);
  CHECK(b);
  CHECK(c);
  CHECK_FALSE(buffers.take(1));
  const std::byte* const memory = b.data();
  b = {};
  Buffer d = buffers.take(64 * kKiB);
  CHECK(d.data() == memory);
  c = {};
  d = {};
  CHECK(buffers.take(65 * kKiB));  // Two that are free go for one that is larger.
  CHECK_FALSE(buffers.take(257 * kKiB));
  CHECK_FALSE(buffers.take(SIZE_MAX));
  Buffer moved = std::move(a);
  CHECK(moved);
  CHECK_FALSE(a);
}

TEST_CASE("UsualSize: the power of two in which 95 % fit, by the objects of late", "[remote]") {
  constexpr std::uint64_t kKiB = 1024;
  UsualSize size;
  for (int i = 0; i < 19; ++i) size.add(1);
  CHECK(size.room() == 256 * kKiB);  // too few so far
  size.add(64 * kKiB);
  CHECK(size.room() == 64 * kKiB);
  size.add(64 * kKiB + 1);
  CHECK(size.room() == 64 * kKiB);  // 20 of 21
  size.add(1024 * kKiB);
  CHECK(size.room() == 128 * kKiB);  // 21 of 22
  for (int i = 0; i < 22; ++i) size.add(std::uint64_t{1} << 50);
  CHECK(size.room() == 8192 * kKiB);
  for (int i = 0; i < 5000; ++i) size.add(0);
  CHECK(size.room() == 64 * kKiB);
}

TEST_CASE("ServiceFault: of a body that is cut off, of a page, of nothing", "[remote]") {
  const auto fault = read_service_fault(
      "<?xml version='1.0'?><Error><Code>ExpiredToken</Code><Message>It was\na day.</Message><Tok");
  CHECK(fault.code == "ExpiredToken");
  CHECK(fault.expired());
  CHECK(fault.text() == ", ExpiredToken: It was\\x0Aa day.");
  CHECK(read_service_fault("<ErrorResponse><Error><Code>A</Code></Error></ErrorResponse>").text() ==
        ", A");
  for (const char* const body : {"", "<html><body>502</body></html>", "no page", "<Error>"}) {
    CHECK(read_service_fault(body).text().empty());
    CHECK_FALSE(read_service_fault(body).expired());
  }
}
