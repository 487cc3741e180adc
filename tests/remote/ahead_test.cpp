// SPDX-License-Identifier: Apache-2.0

// Ahead: what it asks for, what a read finds there, and when memory is free again.

#include <ahead.hpp>
#include <transfers.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "range_server.hpp"
#include "support/eventually.hpp"

namespace penstock::test {
namespace {

using namespace penstock::remote;
using namespace std::chrono_literals;
using Texts = std::vector<std::string>;

constexpr std::size_t kKiB = 1024, kObject = 1000 * kKiB;

Options options_of(int max_requests) {
  Options options;
  options.part_bytes = 256 * kKiB;
  options.max_requests = max_requests;
  options.attempts = 1;
  options.hedging = false;
  return options;
}

struct Fixture {
  explicit Fixture(std::size_t memory = 4096 * kKiB, int max_requests = 16)
      : options(options_of(max_requests)), transfers(options), ahead(transfers, memory) {
    object = make_object();
  }
  ~Fixture() {
    server.release();
    transfers.stop();
  }

  std::shared_ptr<const RemoteObject> make_object() const {
    RemoteObject made;
    made.url = made.name = server.url();
    made.size = kObject;
    made.etag = "\"1\"";
    return std::make_shared<const RemoteObject>(made);
  }
  void fetch(std::vector<FileRange> ranges, Time due = {}, Time now = Clock::now()) {
    ahead.fetch(object, ranges, due, now);
  }
  /// What is there from `offset` on; waits for it. nullopt: nothing is, or it has failed.
  std::optional<std::vector<std::byte>> take(std::uint64_t offset, std::size_t bytes) {
    const Ahead::Piece piece = ahead.find(*object, offset, bytes);
    if (piece.block == nullptr) return std::nullopt;
    std::vector<std::byte> target(piece.bytes);
    if (!ahead.take(*piece.block, offset, target)) return std::nullopt;
    return target;
  }
  /// The requests, sorted, when there are `count` of them.
  Texts asked(std::size_t count) const {
    CHECK(eventually([&] { return server.asked().size() >= count; }));
    Texts texts = server.asked();
    std::ranges::sort(texts);
    return texts;
  }

  RangeServer server{kObject};
  const Options options;
  Transfers transfers;
  Ahead ahead;
  std::shared_ptr<const RemoteObject> object;
};

bool is_content(const std::optional<std::vector<std::byte>>& bytes, std::uint64_t offset,
                std::size_t count) {
  if (!bytes || bytes->size() != count) return false;
  for (std::size_t i = 0; i < count; ++i)
    if ((*bytes)[i] != RangeServer::content(offset + i)) return false;
  return true;
}

}  // namespace

TEST_CASE("Ahead: neighbours are one request, and large ranges several", "[ahead]") {
  Fixture f;
  f.fetch({{0, 1000}, {1000, 1000}, {2000 + 64 * kKiB - 1, 1000}});
  CHECK(f.asked(1) == Texts{"0-" + std::to_string(3000 + 64 * kKiB - 2)});
  f.fetch({{300 * kKiB, 100}, {300 * kKiB + 100 + 64 * kKiB, 100}});  // 64 KiB between them
  CHECK(f.asked(3).size() == 3);
  f.fetch({{400 * kKiB, 600 * kKiB}, {0, 0}, {kObject, 5}});  // empty, and behind the end
  f.fetch({{kObject - 1, 5}});                                // is there already
  Texts asked = f.asked(6);
  CHECK(asked.size() == 6);
  for (const char* const part : {"409600-614399", "614400-819199", "819200-1023999"})
    CHECK(std::ranges::count(asked, part) == 1);
  CHECK(is_content(f.take(400 * kKiB, 1000), 400 * kKiB, 1000));
  // A piece ends with its block.
  CHECK(is_content(f.take(614'400 - 10, 1000), 614'400 - 10, 10));
}

TEST_CASE("Ahead: ranges that would be more than a part are not joined", "[ahead]") {
  Fixture f;
  f.fetch({{0, 200 * kKiB}, {200 * kKiB, 56 * kKiB}, {256 * kKiB, 1}});
  CHECK(f.asked(2) == Texts{"0-262143", "262144-262144"});
}

TEST_CASE("Ahead: what is there or under way is not asked for again", "[ahead]") {
  Fixture f;
  f.server.hold();
  f.fetch({{1000, 1000}});
  f.fetch({{1000, 1000}, {1200, 100}, {1000, 1000}});
  f.fetch({{1500, 1000}});  // overlaps: the read asks for it
  CHECK(f.asked(1).size() == 1);
  const Ahead::Piece before = f.ahead.find(*f.object, 500, 5000);
  CHECK(before.block == nullptr);
  CHECK(before.bytes == 500);  // up to the block
  const Ahead::Piece behind = f.ahead.find(*f.object, 2000, 5000);
  CHECK(behind.block == nullptr);
  CHECK(behind.bytes == 5000);
  CHECK(f.ahead.find(*f.make_object(), 1000, 10).block == nullptr);  // another object
  std::optional<std::vector<std::byte>> taken;
  std::thread reader([&] { taken = f.take(1000, 1000); });
  f.server.release();
  reader.join();
  CHECK(is_content(taken, 1000, 1000));
  CHECK(f.transfers.counters.from_ahead == 1000);
  CHECK(f.server.asked().size() == 1);
}

TEST_CASE("Ahead: memory is free when each byte that was wanted has been read", "[ahead]") {
  Fixture f(64 * kKiB);  // one buffer
  f.fetch({{0, 1000}, {2000, 1000}});
  f.fetch({{500'000, 100}});  // There is no room.
  CHECK(is_content(f.take(2000, 1000), 2000, 1000));
  f.fetch({{500'000, 100}});
  CHECK(is_content(f.take(0, 999), 0, 999));
  f.fetch({{500'000, 100}});
  CHECK_FALSE(f.take(500'000, 100));
  CHECK(is_content(f.take(999, 1), 999, 1));
  CHECK_FALSE(f.take(0, 10));
  f.fetch({{500'000, 100}});
  CHECK(is_content(f.take(500'000, 100), 500'000, 100));
  CHECK(f.server.asked() == Texts{"0-2999", "500000-500099"});
}

TEST_CASE("Ahead: what nobody reads gives way after its time", "[ahead]") {
  Fixture f(64 * kKiB);
  const Time now = Clock::now();
  // Bytes are counted a moment before their block may give way.
  const auto finds_room = [&](Time at) {
    return eventually([&] {
      f.fetch({{1000, 1000}}, {}, at);
      return is_content(f.take(1000, 1000), 1000, 1000);
    });
  };
  f.fetch({{0, 1000}}, now + 5s, now);
  REQUIRE(eventually([&] { return f.transfers.counters.bytes == 1000; }));
  f.fetch({{1000, 1000}}, {}, now + 14s);
  CHECK(f.server.asked().size() == 1);
  CHECK(finds_room(now + 16s));
  CHECK_FALSE(f.take(0, 1000));
  f.fetch({{0, 1000}}, {}, now);  // without a due time: a minute
  REQUIRE(eventually([&] { return f.transfers.counters.bytes == 3000; }));
  f.fetch({{1000, 1000}}, {}, now + 59s);
  CHECK_FALSE(f.take(1000, 1000));
  CHECK(finds_room(now + 61s));
}

TEST_CASE("Ahead: what has failed is asked for by the read, or fetched again", "[ahead]") {
  Fixture f(64 * kKiB);
  f.server.hold();
  f.server.answer_with(404);
  f.fetch({{0, 1000}});
  const Ahead::Piece piece = f.ahead.find(*f.object, 0, 1000);
  REQUIRE(piece.block != nullptr);
  f.server.release();
  std::vector<std::byte> target(1000, std::byte{7});
  CHECK_FALSE(f.ahead.take(*piece.block, 0, target));
  CHECK(std::ranges::count(target, std::byte{7}) == 1000);
  f.server.answer_with(0);
  f.fetch({{0, 1000}});  // The memory is free.
  CHECK(is_content(f.take(0, 1000), 0, 1000));
}

TEST_CASE("Ahead: what is forgotten is cancelled, and its memory free", "[ahead]") {
  Fixture f(64 * kKiB);
  f.server.hold();
  f.fetch({{0, 1000}});
  CHECK(f.asked(1).size() == 1);
  f.ahead.forget(*f.object);
  CHECK_FALSE(f.ahead.has(*f.object));
  CHECK_FALSE(f.take(0, 1000));
  f.server.release();
  f.object = f.make_object();
  CHECK(eventually([&] {
    f.fetch({{5000, 1000}});
    return f.ahead.has(*f.object);
  }));
  CHECK(is_content(f.take(5000, 1000), 5000, 1000));
}

TEST_CASE("Ahead: a block that a read waits for goes before the others", "[ahead]") {
  Fixture f(4096 * kKiB, 1);  // one request at a time
  f.server.hold();
  f.fetch({{0, 100}, {100'000, 100}, {200'000, 100}, {300'000, 100}});
  CHECK(f.asked(1) == Texts{"0-99"});
  const Ahead::Piece wanted = f.ahead.find(*f.object, 300'000, 100);
  REQUIRE(wanted.block != nullptr);
  f.server.release();
  std::vector<std::byte> target(100);
  CHECK(f.ahead.take(*wanted.block, 300'000, target));
  f.asked(4);
  CHECK(f.server.asked() == Texts{"0-99", "300000-300099", "100000-100099", "200000-200099"});
}

TEST_CASE("Ahead: after the stop nothing is fetched", "[ahead]") {
  Fixture f;
  f.transfers.stop();
  f.fetch({{0, 1000}});
  CHECK_FALSE(f.ahead.has(*f.object));
  CHECK_FALSE(f.ahead.fetch_whole(f.object, 1000, {}));
}

TEST_CASE("Ahead: an object that is not known comes whole, or its first bytes", "[ahead]") {
  Fixture f;
  RemoteObject unknown;
  unknown.url = unknown.name = f.server.url();
  std::vector<std::byte> bytes(kObject);
  std::uint64_t told = 0;
  const auto room = [&](std::uint64_t total) {
    told = total;
    return std::span(bytes);
  };
  for (const std::size_t has_room : {kObject, std::size_t{1000}}) {
    const auto object = std::make_shared<const RemoteObject>(unknown);
    CHECK_FALSE(f.ahead.take_whole(*object, room));
    CHECK(f.ahead.fetch_whole(object, has_room, {}));
    CHECK(f.ahead.has(*object));
    CHECK_FALSE(f.ahead.fetch_whole(object, has_room, {}));  // is under way
    const auto opened = f.ahead.take_whole(*object, room);
    REQUIRE(opened);
    CHECK(opened->received == has_room);
    CHECK(opened->total == kObject);
    CHECK(told == kObject);
    CHECK(opened->etag == "\"1\"");
    bytes.resize(has_room);
    CHECK(is_content(bytes, 0, has_room));
    bytes.assign(kObject, {});
    CHECK_FALSE(f.ahead.has(*object));
  }
  CHECK(f.server.asked() == Texts{"whole", "whole"});
  const auto object = std::make_shared<const RemoteObject>(unknown);
  f.server.answer_with(404);
  CHECK(f.ahead.fetch_whole(object, 1000, {}));
  CHECK_FALSE(f.ahead.take_whole(*object, room));
  CHECK(eventually([&] { return !f.ahead.has(*object); }));
  f.server.answer_with(0);
  CHECK(f.ahead.fetch_whole(object, 1000, {}));
  CHECK_THROWS_AS(
      f.ahead.take_whole(*object,
                         [](std::uint64_t) -> std::span<std::byte> { throw std::bad_alloc(); }),
      std::bad_alloc);
  CHECK(f.ahead.take_whole(*object, room));  // It is still there.
}

}  // namespace penstock::test
