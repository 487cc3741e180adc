// SPDX-License-Identifier: Apache-2.0

// Files of a folder that are announced: each is one request, before it is read.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <penstock/file_folder.hpp>
#include <penstock/remote.hpp>
#include <string>
#include <vector>

#include "client_fixture.hpp"
#include "server.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock::test {
namespace {

using namespace std::chrono_literals;
using penstock::remote::Client;
using penstock::remote::Options;
using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kFiles = 40, kBytes = 20'000, kLarge = 700'000;

std::vector<std::byte> content(std::uint64_t index) {
  return random_bytes(index == 0 ? kLarge : kBytes, index + 1);
}

/// Files 0.jpg to 39.jpg, the first of which is large.
struct Folder {
  Folder() {
    for (std::uint64_t i = 0; i < kFiles; ++i) {
      names.push_back(std::to_string(i) + ".jpg");
      server.put(names.back().c_str(), content(i));
    }
    std::iota(all.begin(), all.end(), std::uint64_t{0});
  }

  FileFolder open(const Client& client, const char* place = "/files/") const {
    return FileFolder::from_files(client.folder(server.url(place)), names);
  }
  bool reads_all(const FileFolder& files) const {
    std::vector<std::byte> scratch;
    return std::ranges::all_of(all, [&](std::uint64_t i) {
      return std::ranges::equal(files.read(i, scratch), content(i));
    });
  }

  Server server;
  std::vector<std::string> names;
  std::vector<std::uint64_t> all = std::vector<std::uint64_t>(kFiles);
};

}  // namespace

TEST_CASE("Client: a file of a folder that was announced is fetched by one request", "[remote]") {
  const Folder f;
  const Client client(small());
  const FileFolder files = f.open(client);
  files.will_need(f.all, SteadyClock::now() + 1s);
  files.will_need(f.all, SteadyClock::now() + 2s);  // is under way, or there
  CHECK(eventually([&] { return client.stats().requests == kFiles; }));
  CHECK(f.reads_all(files));
  // The first 256 KiB of the large one have come, and the rest is two parts.
  CHECK(client.stats().requests == kFiles + 2);
  CHECK(client.stats().from_ahead == (kFiles - 1) * kBytes + (256 << 10));
  CHECK(f.reads_all(files));  // What was read is gone.
  CHECK(client.stats().requests == 2 * (kFiles + 2));
  CHECK(client.stats().from_ahead == (kFiles - 1) * kBytes + (256 << 10));
}

TEST_CASE("Client: what has no room is asked for by the read", "[remote]") {
  const Folder f;
  Options options = small();
  options.ahead_bytes = std::size_t{1} << 20;  // four files, as long as their sizes are not known
  const Client client(options);
  const FileFolder files = f.open(client);
  files.will_need(f.all, {});
  CHECK(eventually([&] { return client.stats().requests == 4; }));
  CHECK(f.reads_all(files));
  CHECK(client.stats().requests == kFiles + 2);
  files.will_need(f.all, {});  // 64 KiB are enough for nearly all.
  CHECK(eventually([&] { return client.stats().requests == kFiles + 2 + 16; }));
  CHECK(f.reads_all(files));
}

TEST_CASE("Client: an announced file that cannot be fetched is an error of its read", "[remote]") {
  const Folder f;
  const Client client(small());
  const FileFolder files =
      FileFolder::from_files(client.folder(f.server.url("/files/")), {"none.jpg", "1.jpg"});
  files.will_need(std::vector<std::uint64_t>{0, 1}, {});
  std::vector<std::byte> scratch;
  CHECK_THAT(thrown<StoreError>([&] { files.read(0, scratch); }),
             Mentions("none.jpg: sample 0 is lost: HTTP 404"));
  CHECK(std::ranges::equal(files.read(1, scratch), content(1)));
}

TEST_CASE("Client: a folder ends while its files are fetched", "[remote]") {
  const Folder f;
  const auto begin = SteadyClock::now();
  const Client client(small());
  {
    const FileFolder files = f.open(client, "/hung/");
    files.will_need(f.all, {});
    CHECK(eventually([&] { return client.stats().requests > 0; }));
  }
  CHECK(f.reads_all(f.open(client)));  // The others take no requests any more.
  {
    const Client other(small());
    const FileFolder files = f.open(other, "/hung/");
    files.will_need(f.all, {});
  }
  CHECK(SteadyClock::now() - begin < 50s);  // The server would answer after 60.
}

TEST_CASE("Client: what the cache has is not fetched ahead", "[remote]") {
  const Folder f;
  const TemporaryDirectory directory;
  Options options = small();
  options.cache = {.directory = directory / "cache",
                   .bytes = std::uint64_t{64} << 16,
                   .slot_bytes = std::size_t{64} << 10,
                   .wait = true};
  for (const bool is_first : {true, false}) {
    const Client client(options);
    const FileFolder files = f.open(client);
    files.will_need(f.all, {});
    if (is_first) CHECK(eventually([&] { return client.stats().requests == kFiles; }));
    CHECK(f.reads_all(files));
    CHECK((client.stats().from_ahead > 0) == is_first);
    CHECK((client.stats().bytes == 0) == !is_first);  // They are asked for by their ETags.
    const auto before = client.stats().requests;
    files.will_need(f.all, {});
    CHECK(f.reads_all(files));
    CHECK(client.stats().requests == before);
  }
}

}  // namespace penstock::test
