// SPDX-License-Identifier: Apache-2.0

// penstock::remote against a real server that misbehaves: right bytes or one named error.

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <penstock/remote.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "client_fixture.hpp"
#include "server.hpp"
#include "support/sanitized.hpp"
#include "support/thrown.hpp"

namespace penstock::test {
namespace {

using namespace std::chrono_literals;
using penstock::remote::Client;
using penstock::remote::Options;
using penstock::remote::RemoteError;
using SteadyClock = std::chrono::steady_clock;

/// What a read of 100,000 bytes behind the head says.
std::string error_of(const File& file, int* status = nullptr) {
  std::vector<std::byte> bytes(100'000);
  try {
    file.read(10, bytes);
  } catch (const RemoteError& error) {
    if (status != nullptr) *status = error.status();
    return error.what();
  }
  return "no error";
}

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("Client: ranges, sizes and names", "[remote]") {
  ClientFixture f;
  const Client client(small());
  const File file = client.file(f.server.url("/files/a.bin?token=secret"));
  CHECK(file.size() == f.all.size());
  CHECK(file.name() == f.server.url("/files/a.bin"));
  CHECK(reads(file, f.all, 0, f.all.size()));
  CHECK(reads(file, f.all, 0, 1));
  CHECK(reads(file, f.all, 12'345, 600'000));
  CHECK(reads(file, f.all, f.all.size() - 10, 100));
  std::vector<std::byte> some(10);
  CHECK(file.read(f.all.size(), some) == 0);
  CHECK(reads(client.file(f.server.url("/elsewhere/a.bin")), f.all, 500, 1000));

  f.server.put("empty.bin", {});
  CHECK(client.file(f.server.url("/files/empty.bin")).size() == 0);
  CHECK_THROWS_AS(client.file("ftp://127.0.0.1/a"), std::invalid_argument);
  try {
    client.file(f.server.url("/files/none?token=secret"));
    FAIL("a file that is not there was opened");
  } catch (const RemoteError& error) {
    CHECK(error.status() == 404);
    CHECK(error.attempts() == 1);
    CHECK(has(error.what(), "/files/none: HTTP 404 (1 attempt"));
    CHECK_FALSE(has(error.what(), "secret"));
  }
}

TEST_CASE("Client: a small object is one request", "[remote]") {
  const Server server;
  const auto bytes = random_bytes(1000, 3);
  server.put("small.bin", bytes);
  const Client client;
  const File file = client.file(server.url("/files/small.bin"));
  CHECK(reads(file, bytes, 0, 1000));
  CHECK(client.stats().requests == 1);
  CHECK(reads(client.file(server.url("/no_ranges/small.bin")), bytes, 10, 500));
}

TEST_CASE("Client: a file of a folder is one request without a range", "[remote]") {
  const Server server;
  const auto small_one = random_bytes(1000, 3), large = random_bytes(1'000'000, 4);
  server.put("small.jpg", small_one);
  server.put("large.jpg", large);
  server.put("empty.jpg", {});
  const Client client(small());
  std::vector<std::byte> scratch;
  const auto reads_file = [&](const char* place, const char* name,
                              const std::vector<std::byte>& all) {
    return std::ranges::equal(client.folder(server.url(place))->read(name, scratch), all);
  };
  CHECK(reads_file("/no_ranges/", "small.jpg", small_one));
  CHECK(reads_file("/files/", "empty.jpg", {}));
  CHECK(client.stats().requests == 2);
  CHECK(reads_file("/files/", "large.jpg", large));  // the rest by ranges
  CHECK(client.stats().requests == 2 + 1 + 3);
  CHECK(client.stats().bytes == 1000 + large.size());
  CHECK(reads_file("/files/", "large.jpg", large));  // scratch has room for all of it
  CHECK(client.stats().requests == 6 + 1);
}

TEST_CASE("Client: a server that refuses ranges behind the end", "[remote]") {
  const Server server;
  const auto bytes = random_bytes(200'000, 3);
  server.put("a.bin", bytes);
  Options options = small();
  options.head_bytes = 200'000;
  CHECK(reads(Client(options).file(server.url("/exact/a.bin")), bytes, 10, 199'000));
  options.head_bytes = 200'001;
  CHECK(reads(Client(options).file(server.url("/exact/a.bin")), bytes, 10, 199'000));
  // It is refused for another reason.
  const Client client(options);
  const std::string error =
      thrown<RemoteError>([&] { client.file(server.url("/bad_request/a.bin")); });
  CHECK_THAT(error, Mentions("HTTP 400, InvalidArgument: It was wrong. (1 attempt"));
  CHECK(client.stats().requests == 2);
}

TEST_CASE("Client: the ranks of a machine share the requests", "[remote]") {
  const auto limit = [](int requests, int ranks) {
    return Client({.max_requests = requests, .local_ranks = ranks}).stats().limit;
  };
  CHECK(limit(12, 1) == 12);
  CHECK(limit(12, 4) == 3);
  CHECK(limit(12, 100) == 1);
  CHECK(limit(1000, 4) == 16);  // as one rank begins
  CHECK_THROWS_AS(limit(12, -1), std::invalid_argument);
  const char* const variables[][2] = {
      {"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}};
  for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  CHECK(limit(12, 0) == 3);
  CHECK(limit(12, 2) == 6);
  for (const auto& [name, value] : variables) ::unsetenv(name);
  CHECK(limit(12, 0) == 12);
}

TEST_CASE("Client: random reads from 8 threads", "[remote]") {
  ClientFixture f;
  Options options = small();
  options.reactors = 2;
  const Client client(options);
  const File file = client.file(f.server.url("/files/a.bin"));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 8; ++seed)
    threads.emplace_back([&, seed] {
      std::minstd_rand random(seed + 1);
      for (int i = 0; i < 30; ++i) {
        const std::size_t offset = random() % f.all.size(), bytes = 1 + random() % 400'000;
        const FileRange range{offset, bytes};
        if (i % 3 == 0) file.will_need({&range, 1});
        if (!reads(file, f.all, offset, bytes)) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("Client: what passes is tried again", "[remote]") {
  ClientFixture f;
  Options options = small();
  options.attempts = 20;
  const Client client(options);
  for (const char* const place : {"/busy/", "/closed/", "/cut/"}) {
    INFO(place);
    CHECK(reads(client.file(f.server.url(std::string(place) + "a.bin")), f.all, 100, 700'000));
  }
  CHECK(client.stats().retries > 0);
  CHECK(client.stats().throttled > 0);

  const auto begin = SteadyClock::now();
  CHECK(reads(client.file(f.server.url("/busy_for_a_second/a.bin")), f.all, 100, 1000));
  CHECK(SteadyClock::now() - begin >= 1s);
}

TEST_CASE("Client: what does not pass is one error", "[remote]") {
  ClientFixture f;
  Options options = small();
  options.attempts = 3;
  options.stall_timeout = 200ms;
  const Client client(options);
  const auto error = [&](const char* path, int* status = nullptr) {
    return error_of(client.file(f.server.url(path)), status);
  };
  int status = 0;
  CHECK(has(error("/always_busy/a.bin", &status), "HTTP 503 (3 attempts"));
  CHECK(status == 503);
  CHECK(has(error("/forbidden/a.bin"), "HTTP 403 (1 attempt,"));
  CHECK(has(error("/hung/a.bin"), "less than 1 KiB a second for 0.2 s (3 attempts"));
  CHECK(has(error("/wrong/a.bin"), "another range"));
  std::vector<std::byte> ten(10);
  try {
    client.file(f.server.url("/long/a.bin")).read(10, ten);
    FAIL("an answer that is too long was read");
  } catch (const RemoteError& too_long) {
    CHECK(has(too_long.what(), "more bytes than were asked for"));
  }
  try {
    client.file(f.server.url("/no_ranges/a.bin"));
    FAIL("a file without ranges was opened");
  } catch (const RemoteError& no_ranges) {
    CHECK(has(no_ranges.what(), "does not serve ranges"));
  }

  const File file = client.file(f.server.url("/files/a.bin"));
  f.server.put("a.bin", random_bytes(2'000'000, 8));
  const std::string changed = error_of(file);
  INFO(changed);
  CHECK(has(changed, "has changed: ETag \""));
  CHECK(has(changed, "3000000 bytes, when it was opened; now ETag \""));
  CHECK(has(changed, "2000000 bytes"));
}

TEST_CASE("Client: a head that begins with a folded line has nothing of the answer before",
          "[remote]") {
  ClientFixture f;
  const Client client(small());
  const File good = client.file(f.server.url("/files/a.bin")),
             folded = client.file(f.server.url("/fault/always/folded/a.bin"));
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(reads(good, f.all, 1000 * i, 1000));
    bool is_right = false;  // Or an error: versions of libcurl differ.
    try {
      is_right = reads(folded, f.all, 1000 * i + 1, 1000);
    } catch (const RemoteError& error) {
      is_right = has(error.what(), "(1 attempt");
    }
    CHECK(is_right);
  }
}

TEST_CASE("Client: a late answer is asked for again", "[remote]") {
  ClientFixture f;
  Options options = small();
  options.hedging = true;
  const Client client(options);
  const File file = client.file(f.server.url("/late/a.bin"));
  std::vector<std::chrono::duration<double>> times;
  for (std::size_t i = 0; i < 600; ++i) {
    const auto begin = SteadyClock::now();
    REQUIRE(reads(file, f.all, 1000 + 1000 * i, 1000));
    times.emplace_back(SteadyClock::now() - begin);
  }
  std::sort(times.begin(), times.end());
  const auto stats = client.stats();
  CHECK(stats.hedges_won > 0);
  CHECK(20 * stats.hedges <= stats.requests);
  // Without hedges 1 % would take a second; the first one may come before there are quantiles.
  CHECK(times[times.size() - 1 - times.size() / 200].count() < 0.9);
}

TEST_CASE("Client: what was fetched ahead is not asked for again", "[remote]") {
  ClientFixture f;
  const Client client(small());
  const File file = client.file(f.server.url("/slow/a.bin"));
  const auto before = client.stats().requests;
  const std::vector<FileRange> ranges{{100'000, 10'000}, {110'000, 10'000}, {130'000, 1000}};
  file.will_need(ranges, SteadyClock::now() + 1s);
  for (const FileRange& range : ranges)
    CHECK(reads(file, f.all, range.offset, static_cast<std::size_t>(range.bytes)));
  CHECK(client.stats().requests == before + 1);
  CHECK(client.stats().from_ahead == 21'000);
  CHECK(reads(file, f.all, 100'000, 10'000));  // read a second time: it is gone
  CHECK(client.stats().requests == before + 2);
}

TEST_CASE("Client: ends while requests are under way", "[remote]") {
  ClientFixture f;
  const auto begin = SteadyClock::now();
  {
    const Client client(small());
    const File file = client.file(f.server.url("/hung/a.bin"));
    const FileRange range{1000, 1'000'000};
    file.will_need({&range, 1});
  }
  Client client(small());
  const File file = client.file(f.server.url("/hung/a.bin"));
  std::thread reader([&] { CHECK(has(error_of(file), "cancelled")); });
  CHECK(eventually([&] { return client.stats().requests == 2; }));
  client.cancel();
  reader.join();
  CHECK(has(error_of(file), "cancelled"));
  CHECK(SteadyClock::now() - begin < 50s);  // The server would answer after 60.
}

TEST_CASE("Client: TLS", "[remote]") {
  ClientFixture f;
  Options options = small();
  CHECK_THROWS_AS(Client(options).file(f.server.tls_url("/files/a.bin")), RemoteError);
  options.ca_file = f.server.ca_file();
  const Client client(options);
  CHECK(reads(client.file(f.server.tls_url("/files/a.bin")), f.all, 1000, 500'000));
}

TEST_CASE("Client: each attempt is signed, and no signature goes to another place", "[remote]") {
  ClientFixture f;
  Options options = small();
  std::atomic<int> signatures{0};
  options.authorizer = [&](penstock::remote::HttpRequest& request,
                           std::chrono::system_clock::time_point) {
    request.headers.push_back("X-Signature: " + std::to_string(++signatures));
  };
  const Client client(options);
  CHECK(reads(client.file(f.server.url("/busy/a.bin")), f.all, 1000, 1000));
  CHECK(signatures >= 3);
  CHECK(reads(client.file(f.server.url("/elsewhere/a.bin")), f.all, 1000, 1000));
  CHECK(static_cast<std::uint64_t>(signatures.load()) == client.stats().requests);
}

TEST_CASE("Client: credentials that have expired are renewed once", "[remote]") {
  ClientFixture f;
  const TemporaryDirectory directory;
  const std::string keys = (directory / "credentials").string();
  const auto set_key = [&](const char* id) {
    std::ofstream(keys) << "[here]\naws_access_key_id = " << id
                        << "\naws_secret_access_key = a-secret-key\n"
                        << "aws_session_token = a-session-token\n";
  };
  set_key("OLD");
  ::setenv("AWS_SHARED_CREDENTIALS_FILE", keys.c_str(), 1);
  ::setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
  Options options = small();
  options.stores = {.endpoint = f.server.url(""), .profile = "here"};
  // The place takes the key OLD for the first byte of a file alone.
  const Client client(options);
  const File file = client.file("s3://expiring/a.bin");
  const std::string error = error_of(file);
  CHECK_THAT(error, Mentions("HTTP 400, ExpiredToken (1 attempt"));  // The message has the token.
  CHECK(client.stats().requests == 3);
  CHECK_THAT(thrown<RemoteError>([&] {
               std::vector<std::byte> scratch;
               client.folder("s3://expiring/")->read("a.bin", scratch);
             }),
             Mentions("ExpiredToken"));
  set_key("NEW");
  CHECK(reads(file, f.all, 1000, 600'000));
  const auto before = client.stats().requests;
  CHECK(reads(file, f.all, 1000, 1000));
  CHECK(client.stats().requests == before + 1);
}

TEST_CASE("Client: requests take no new memory for what libcurl receives in", "[remote]") {
  if (PENSTOCK_TEST_SANITIZED) return;  // The sanitizers have another malloc.
  ClientFixture f;
  Options options = small();
  options.max_requests = 16;
  const Client client(options);
  const File file = client.file(f.server.url("/files/a.bin"));
  std::vector<std::byte> target(100'000);
  const auto faults = [&] {
    ::rusage use{};
    ::getrusage(RUSAGE_SELF, &use);
    return use.ru_minflt;
  };
  const auto read = [&] {
    for (std::uint64_t i = 0; i < 2000; i += 20) {
      std::vector<FileRange> ranges;
      for (std::uint64_t k = i; k < i + 20; ++k) ranges.push_back({k * 13 % 20 * 140'000, 100'000});
      file.will_need(ranges);
      for (const FileRange& range : ranges) file.read(range.offset, target);
    }
  };
  read();
  const auto before = faults();
  read();
  CHECK(faults() - before < 2000);  // A new buffer has 25 for each.
}

}  // namespace penstock::test
