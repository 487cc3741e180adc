// SPDX-License-Identifier: Apache-2.0

// The requests of a client in a trace, against a server.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <penstock/file_folder.hpp>
#include <penstock/remote.hpp>
#include <penstock/trace/report.hpp>
#include <penstock/trace/session.hpp>
#include <string>
#include <thread>
#include <vector>

#include "client_fixture.hpp"
#include "support/temporary_directory.hpp"

namespace penstock::test {
namespace {

using namespace std::chrono_literals;
using remote::Client;
using remote::Options;
using trace::Event;
using trace::Timeline;
using trace::Track;

/// The requests of a trace, in the order of their begins.
std::vector<Event> requests_of(const Timeline& timeline) {
  std::vector<Event> found;
  for (const Event& event : timeline.events)
    if (timeline.track(event).kind == Track::Kind::lane) found.push_back(event);
  return found;
}

std::ptrdiff_t named(const Timeline& timeline, const std::string& begin) {
  return std::count_if(timeline.events.begin(), timeline.events.end(),
                       [&](const Event& event) { return timeline.name(event).starts_with(begin); });
}

TEST_CASE("trace: requests are in lanes that have one at a time", "[remote]") {
  ClientFixture f;
  const Client client(small());
  const File file = client.file(f.server.url("/slow/a.bin"));
  trace::Session session;
  const std::uint64_t before = client.stats().requests;
  CHECK(reads(file, f.all, 100, 1'000'000));  // 4 parts
  const Timeline timeline = session.stop();

  const std::vector<Event> requests = requests_of(timeline);
  REQUIRE(requests.size() == 4);
  CHECK(client.stats().requests - before == 4);
  std::map<std::uint32_t, trace::Time> ends;
  std::uint64_t bytes = 0;
  for (const Event& request : requests) {
    INFO(timeline.name(request));
    CHECK(timeline.domain(request) == "penstock");
    CHECK(request.duration() >= 1'000'000'000);  // The server takes a second for each.
    const auto last = ends.find(request.track);
    if (last != ends.end()) CHECK(request.begin >= last->second);
    ends[request.track] = request.end;
    bytes += request.value;
  }
  CHECK(bytes == 1'000'000);
  CHECK(ends.size() == 4);
  CHECK(named(timeline, "GET /slow/a.bin 100-250099") == 1);
  CHECK(named(timeline, "GET /slow/a.bin 750100-1000099") == 1);
  CHECK(named(timeline, "remote read") == 1);

  const auto ranges = trace::Report(timeline).ranges;
  const auto summed = std::find_if(ranges.begin(), ranges.end(),
                                   [](const auto& range) { return range.name == "GET"; });
  REQUIRE(summed != ranges.end());
  CHECK(summed->count == 4);
}

TEST_CASE("trace: a whole object has no range in its name", "[remote]") {
  ClientFixture f;
  f.server.put("b.jpg", random_bytes(1000, 1));
  const Client client(small());
  trace::Session session;
  const auto folder = FileFolder::from_files(client.folder(f.server.url("/files/")), {"b.jpg"});
  std::vector<std::byte> scratch;
  CHECK(folder.read(0, scratch).size() == 1000);
  const Timeline timeline = session.stop();
  const std::vector<Event> requests = requests_of(timeline);
  REQUIRE(requests.size() == 1);
  CHECK(timeline.name(requests[0]) == "GET /files/b.jpg");
}

TEST_CASE("trace: retries and hedges have names and colours of their own", "[remote]") {
  ClientFixture f;
  Options options = small();
  options.attempts = 20;
  options.hedging = true;
  const Client client(options);
  trace::Session session;
  CHECK(reads(client.file(f.server.url("/busy/a.bin")), f.all, 100, 700'000));
  const File late = client.file(f.server.url("/late/a.bin"));
  std::this_thread::sleep_for(1s);  // There are no hedges within a second of a 503.
  for (std::size_t i = 0; i < 200; ++i) REQUIRE(reads(late, f.all, 1000 + 1000 * i, 1000));
  const Timeline timeline = session.stop();

  const auto stats = client.stats();
  CHECK(stats.retries > 0);
  CHECK(stats.hedges > 0);
  CHECK(named(timeline, "GET retry /") == static_cast<std::ptrdiff_t>(stats.retries));
  CHECK(named(timeline, "GET hedge /late/a.bin ") == static_cast<std::ptrdiff_t>(stats.hedges));
  CHECK(named(timeline, "GET ") == static_cast<std::ptrdiff_t>(stats.requests));
  std::map<std::uint32_t, std::string> kind_of_colour;
  for (const Event& request : requests_of(timeline)) {
    const std::string& name = timeline.name(request);
    const std::string kind = name.substr(0, name.find(" /"));
    CHECK(kind_of_colour.try_emplace(request.color, kind).first->second == kind);
  }
  CHECK(kind_of_colour.size() == 3);
}

TEST_CASE("trace: calls for lists and for credentials are ranges of the thread that waits",
          "[remote]") {
  ClientFixture f;
  const std::string page =
      "<ListBucketResult><KeyCount>1</KeyCount><Contents><Key>cat/a.jpg</Key><Size>9</Size></"
      "Contents>"
      "</ListBucketResult>";
  const auto* const bytes = reinterpret_cast<const std::byte*>(page.data());
  f.server.put("listed", {bytes, bytes + page.size()});
  const TemporaryDirectory directory;
  Options options = small();
  options.stores.endpoint = f.server.url("/files");
  options.stores.anonymous = true;
  trace::Session session;
  CHECK(Client(options).save_list("s3://listed/", directory / "list") == 1);
  std::ofstream(directory / "token") << "a-token";
  const std::map<const char*, std::string> variables{
      {"AWS_WEB_IDENTITY_TOKEN_FILE", (directory / "token").string()},
      {"AWS_ROLE_ARN", "arn:aws:iam::1:role/a-role"},
      {"AWS_ENDPOINT_URL_STS", f.server.url("/files/no-sts")}};
  for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
  options.stores.anonymous = false;
  CHECK_THROWS(Client(options).file("s3://listed/a.bin"));
  for (const auto& [name, value] : variables) ::unsetenv(name);
  const Timeline timeline = session.stop();
  CHECK(named(timeline, "remote list") == 1);
  CHECK(named(timeline, "remote credentials") >= 1);
  for (const std::string& name : timeline.names) {
    INFO(name);
    for (const char* const secret : {"a-token", "a-role", "127."})
      CHECK(name.find(secret) == std::string::npos);
  }
}

TEST_CASE("trace: no secret and no host is in a name, and a long path is cut", "[remote]") {
  ClientFixture f;
  std::string url = f.server.url("/files/a.bin?X-Amz-Signature=0123456789abcdef");
  url.insert(url.find("127"), "user:password@");
  const std::string deep = "/files/" + std::string(300, 'd') + "/../a.bin";
  const Client client(small());
  trace::Session session;
  CHECK(reads(client.file(url), f.all, 100, 1000));
  CHECK(client.file(f.server.url(deep)).size() == f.all.size());
  const Timeline timeline = session.stop();
  REQUIRE(named(timeline, "GET /files/a.bin 100-1099") == 1);
  for (const std::string& name : timeline.names) {
    INFO(name);
    for (const char* const secret : {"Signature", "0123456789abcdef", "user", "password", "127."})
      CHECK(name.find(secret) == std::string::npos);
    CHECK(name.size() < 300);
  }
  CHECK(named(timeline, "GET /dd") == 1);
}

}  // namespace
}  // namespace penstock::test
