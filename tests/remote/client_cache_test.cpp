// SPDX-License-Identifier: Apache-2.0

// The cache of a Client, with a real server: what it keeps, for the next client too.

#include <penstock/remote.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "client_fixture.hpp"
#include "server.hpp"

namespace penstock::test {
namespace {

using namespace std::chrono_literals;
using penstock::remote::Client;
using penstock::remote::Options;
using SteadyClock = std::chrono::steady_clock;

/// A cache of 1 MB in slots of 16 KiB.
Options cached(const TemporaryDirectory& directory) {
  Options options = small();
  options.cache = {.directory = directory / "cache", .bytes = 1 << 20, .slot_bytes = 16 << 10};
  return options;
}

/// Reads until nothing is missing: the cache is filled by a thread.
template <class Read>
bool comes_from_cache(const Client& client, const Read& read) {
  return eventually([&] {
    const auto before = client.stats().cache_misses;
    const auto requests = client.stats().requests;
    return read() && client.stats().cache_misses == before && client.stats().requests == requests;
  });
}

}  // namespace

TEST_CASE("Client: what was read once comes from the cache, also for the next client", "[remote]") {
  ClientFixture f;
  const TemporaryDirectory directory;
  {
    const Client client(cached(directory));
    const File file = client.file(f.server.url("/files/a.bin"));
    CHECK(comes_from_cache(client, [&] { return reads(file, f.all, 1000, 300'000); }));
    CHECK(client.stats().from_cache >= 300'000);
  }
  const Client client(cached(directory));
  const File file = client.file(f.server.url("/files/a.bin"));
  CHECK(reads(file, f.all, 1000, 300'000));
  CHECK(client.stats().requests == 1);  // to open it
  CHECK(client.stats().from_cache == 300'000);
  CHECK(client.stats().cache_hits == 19);

  // A larger read than the cache, and one that begins elsewhere.
  CHECK(reads(file, f.all, 0, 3'000'000));
  CHECK(reads(file, f.all, 2000, 300'000));
  const FileRange range{1000, 300'000};
  const auto before = client.stats().requests;
  file.will_need({&range, 1}, SteadyClock::now());  // It is there.
  const FileRange another{2'500'000, 100'000};
  file.will_need({&another, 1}, penstock::remote::later);  // Nothing is fetched.
  CHECK(reads(file, f.all, 1000, 300'000));
  CHECK(client.stats().requests == before);
  CHECK(client.stats().from_ahead == 0);

  const auto changed = random_bytes(3'000'000, 9);
  f.server.replace("a.bin", changed);
  CHECK(reads(client.file(f.server.url("/files/a.bin")), changed, 1000, 300'000));
  CHECK(client.stats().cache_errors + client.stats().cache_damaged == 0);
}

TEST_CASE("Client: a file that is announced takes the place of others in the cache", "[remote]") {
  ClientFixture f;
  const TemporaryDirectory directory;
  Options options = cached(directory);
  options.cache.bytes = 2 * options.cache.slot_bytes;
  options.cache.wait = true;
  const Client client(options);
  const File file = client.file(f.server.url("/files/a.bin"));
  const FileRange first{1'000, 16'000}, second{50'000, 16'000}, third{90'000, 16'000};
  const auto read = [&](const FileRange& range) {
    return reads(file, f.all, range.offset, static_cast<std::size_t>(range.bytes));
  };
  const auto hits = [&] { return client.stats().cache_hits; };
  CHECK((read(first) && read(second) && hits() == 0));
  CHECK((read(first) && read(second) && hits() == 2));
  CHECK(client.stats().to_cache == 32'000);
  CHECK(client.stats().cache_full);
  const std::vector<FileRange> order{third, first, third, first};
  file.will_need(order, penstock::remote::later);
  CHECK((read(third) && hits() == 2));  // It goes to the place of the second one.
  CHECK((read(first) && read(third) && read(first) && hits() == 5));
  CHECK((read(second) && hits() == 5));
}

TEST_CASE("Client: objects of a folder come from the cache from the second time on", "[remote]") {
  ClientFixture f;
  f.server.put("b.bin", random_bytes(100'000, 5));
  const TemporaryDirectory directory;
  Options options = cached(directory);
  options.cache.bytes = 8 << 20;
  const Client client(options);
  const auto folder = client.folder(f.server.url("/files/"));
  std::vector<std::byte> scratch;
  const auto read = [&] {
    const auto large = folder->read("a.bin", scratch);
    const bool is_right = std::ranges::equal(large, f.all);
    return is_right && std::ranges::equal(folder->read("b.bin", scratch), random_bytes(100'000, 5));
  };
  CHECK(comes_from_cache(client, read));
  const std::vector<std::string_view> names{"a.bin", "b.bin", "c.bin"};
  folder->will_need(names, penstock::remote::later);
  CHECK(read());
}

TEST_CASE("Client: a folder is served from the cache in the next run, but for what has changed",
          "[remote]") {
  ClientFixture f;
  f.server.put("b.bin", random_bytes(100'000, 5));
  const TemporaryDirectory directory;
  Options options = cached(directory);
  options.cache.bytes = 8 << 20;
  std::vector<std::byte> scratch;
  const auto read = [&](const FolderReader& folder, std::uint64_t seed) {
    const bool is_right = std::ranges::equal(folder.read("a.bin", scratch), f.all);
    return is_right &&
           std::ranges::equal(folder.read("b.bin", scratch), random_bytes(100'000, seed));
  };
  const auto fill = [&](std::uint64_t seed) {
    const Client client(options);
    const auto folder = client.folder(f.server.url("/files/"));
    CHECK(comes_from_cache(client, [&] { return read(*folder, seed); }));
    return client.stats();
  };
  fill(5);
  const auto unchanged = [&] { return f.server.requests("\" 304 "); };
  {
    const Client client(options);
    const auto folder = client.folder(f.server.url("/files/"));
    CHECK(read(*folder, 5));
    CHECK(client.stats().requests == 2);  // Each object is asked for once, without its bytes.
    CHECK(client.stats().bytes == 0);
    CHECK(client.stats().cache_misses == 0);
    CHECK(eventually([&] { return unchanged() == 2; }));
    CHECK(read(*folder, 5));
    CHECK(client.stats().requests == 2);
  }
  // The size is the same, but not the ETag.
  f.server.replace("b.bin", random_bytes(100'000, 6));
  const auto stats = fill(6);
  // Only b.bin is read, and once more if it is not in the cache yet.
  CHECK(stats.bytes > 0);
  CHECK(stats.bytes < f.all.size());
  CHECK(eventually([&] { return unchanged() == 3; }));
  {
    const Client client(options);
    CHECK(read(*client.folder(f.server.url("/files/")), 6));
    CHECK(client.stats().bytes == 0);
    CHECK(client.stats().cache_damaged + client.stats().cache_errors == 0);
  }
}

TEST_CASE("Client: an object that is announced before it was read takes the place of others",
          "[remote]") {
  ClientFixture f;
  for (int i = 0; i < 3; ++i)
    f.server.put((std::to_string(i) + ".bin").c_str(), random_bytes(10'000, 20 + i));
  const TemporaryDirectory directory;
  Options options = cached(directory);
  options.cache.bytes = 2 * options.cache.slot_bytes;
  options.cache.wait = true;
  const Client client(options);
  const auto folder = client.folder(f.server.url("/files/"));
  std::vector<std::byte> scratch;
  const auto read = [&](int i) {
    return std::ranges::equal(folder->read(std::to_string(i) + ".bin", scratch),
                              random_bytes(10'000, 20 + i));
  };
  const auto hits = [&] { return client.stats().cache_hits; };
  CHECK((read(0) && read(1) && read(0) && read(1) && hits() == 2));
  const std::vector<std::string_view> order{"2.bin", "0.bin", "2.bin", "0.bin"};
  folder->will_need(order, penstock::remote::later);
  CHECK((read(2) && hits() == 2));  // It goes to the place of the second one.
  CHECK((read(0) && read(2) && read(0) && hits() == 5));
  CHECK((read(1) && hits() == 5));
}

TEST_CASE("Client: what is in the cache is not fetched ahead", "[remote]") {
  ClientFixture f;
  const auto all = random_bytes(6'000'000, 12);
  f.server.put("long.bin", all);
  const TemporaryDirectory directory;
  Options options = cached(directory);
  options.cache.slot_bytes = 4096;
  options.cache.bytes = 8 << 20;
  {
    // More pieces than one look at the cache takes.
    const Client client(options);
    const File file = client.file(f.server.url("/files/long.bin"));
    CHECK(comes_from_cache(client, [&] { return reads(file, all, 1000, 5'000'000); }));
    const auto before = client.stats().requests;
    const FileRange range{1000, 5'000'000};
    file.will_need({&range, 1}, SteadyClock::now());
    CHECK(reads(file, all, 5'500'000, 1000));  // Requests begin in their order.
    CHECK(client.stats().requests == before + 1);
  }
  options.cache.directory = directory / "small";
  options.cache.bytes = 10 << 12;
  const Client client(options);
  const File file = client.file(f.server.url("/files/long.bin"));
  const FileRange range{2000, 40 << 12};
  const auto read = [&] { return reads(file, all, range.offset, range.bytes); };
  CHECK(eventually([&] {
    const auto before = client.stats().cache_hits;
    return read() && client.stats().cache_hits == before + 10;
  }));
  file.will_need({&range, 1}, SteadyClock::now());
  const auto before = client.stats();
  CHECK(read());
  CHECK(client.stats().from_ahead - before.from_ahead == 30 << 12);
  CHECK(client.stats().from_cache - before.from_cache == 10 << 12);
}

TEST_CASE("Client: without room for the cache it reads as without one", "[remote]") {
  ClientFixture f;
  const TemporaryDirectory directory;
  Options options = cached(directory);
  options.cache.directory = "/dev/null/cache";
  const Client client(options);
  const File file = client.file(f.server.url("/files/a.bin"));
  for (int i = 0; i < 2; ++i) CHECK(reads(file, f.all, 1000, 300'000));
  CHECK(client.stats().cache_errors == 1);
  CHECK(client.stats().cache_hits == 0);
}

TEST_CASE("Client: a cache with options out of their range", "[remote]") {
  const TemporaryDirectory directory;
  const auto client = [&](std::uint64_t bytes, std::size_t slot_bytes) {
    Options options;
    options.cache = {.directory = directory / "c", .bytes = bytes, .slot_bytes = slot_bytes};
    return Client(options);
  };
  CHECK_THROWS_AS(client(0, 4096), std::invalid_argument);
  CHECK_THROWS_AS(client(4095, 4096), std::invalid_argument);
  CHECK_THROWS_AS(client(1 << 20, 4095), std::invalid_argument);
  CHECK_THROWS_AS(client(std::uint64_t{1} << 60, 4096), std::invalid_argument);
  CHECK(!std::filesystem::exists(directory / "c"));
  CHECK(client(4096, 4096).stats().cache_errors == 0);
}

}  // namespace penstock::test
