// SPDX-License-Identifier: Apache-2.0

#include <fstream>
#include <iterator>
#include <penstock/trace/recording.hpp>
#include <system_error>

#include "support/catch.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"
#include "timelines.hpp"

using namespace penstock::trace;
using penstock::test::Mentions;
using penstock::test::TemporaryDirectory;
using penstock::test::thrown;

namespace {

/// Something in every member.
Timeline example() {
  Timeline timeline;
  timeline.origin = {
      "./train --data \"a b\"", "node7", 4711, 3, 8, "H200", "CUPTI 13.0", true, 1'790'000'000, 42,
      "the last 30 s"};
  timeline.names = {"", "cudaMemcpyAsync", "copy host to device", "step", "training"};
  timeline.tracks = {{Track::Kind::stream, 1, 13, "copies"}, {Track::Kind::thread, -1, 815, ""}};
  timeline.events = {{100, 400, 17, 0, 3, 1, 4, Kind::range, Direction::none, 0, 0xff59a14f},
                     {120, 130, 999, 6, 1, 1, 0, Kind::call, Direction::none, failed},
                     {125, 300, 1U << 20, 6, 2, 0, 0, Kind::copy, Direction::host_to_device,
                      pageable | synchronous}};
  timeline.begin = 90;
  timeline.end = 500;
  timeline.memory = {{90, 1U << 20, 1}, {130, 5'000'000'000, 1}, {130, 7, 2}};
  timeline.engine_use = {{200, 14, 1}, {366, 100, 1}};
  timeline.dropped = 12;
  return timeline;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

}  // namespace

TEST_CASE("recording: what is saved is loaded", "[trace]") {
  const TemporaryDirectory directory;
  const Timeline saved = example();
  save(saved, directory / "run.trace");
  const Timeline loaded = load(directory / "run.trace");

  CHECK(loaded.origin.program == saved.origin.program);
  CHECK(loaded.origin.host == saved.origin.host);
  CHECK(loaded.origin.process == saved.origin.process);
  CHECK(loaded.origin.rank == saved.origin.rank);
  CHECK(loaded.origin.world_size == saved.origin.world_size);
  CHECK(loaded.origin.device == saved.origin.device);
  CHECK(loaded.origin.recorder == saved.origin.recorder);
  CHECK(loaded.origin.emulated == saved.origin.emulated);
  CHECK(loaded.origin.started == saved.origin.started);
  CHECK(loaded.origin.wall_clock == saved.origin.wall_clock);
  CHECK(loaded.origin.excerpt == saved.origin.excerpt);
  CHECK(loaded.begin == saved.begin);
  CHECK(loaded.end == saved.end);
  CHECK(loaded.dropped == saved.dropped);
  CHECK(loaded.names == saved.names);
  REQUIRE(loaded.tracks.size() == saved.tracks.size());
  for (std::size_t i = 0; i < saved.tracks.size(); ++i) {
    CHECK(loaded.tracks[i].kind == saved.tracks[i].kind);
    CHECK(loaded.tracks[i].device == saved.tracks[i].device);
    CHECK(loaded.tracks[i].id == saved.tracks[i].id);
    CHECK(loaded.tracks[i].name == saved.tracks[i].name);
  }
  CHECK(loaded.events == saved.events);
  REQUIRE(loaded.memory.size() == saved.memory.size());
  for (std::size_t i = 0; i < saved.memory.size(); ++i) {
    CHECK(loaded.memory[i].begin == saved.memory[i].begin);
    CHECK(loaded.memory[i].bytes == saved.memory[i].bytes);
    CHECK(loaded.memory[i].device == saved.memory[i].device);
  }
  REQUIRE(loaded.engine_use.size() == saved.engine_use.size());
  for (std::size_t i = 0; i < saved.engine_use.size(); ++i) {
    CHECK(loaded.engine_use[i].time == saved.engine_use[i].time);
    CHECK(loaded.engine_use[i].percent == saved.engine_use[i].percent);
    CHECK(loaded.engine_use[i].device == saved.engine_use[i].device);
  }

  Timeline empty;
  empty.names = {""};
  save(empty, directory / "run.trace");  // replaces it
  CHECK(load(directory / "run.trace").events.empty());
}

TEST_CASE("recording: every part of a file is told from a whole one", "[trace]") {
  const TemporaryDirectory directory;
  const auto path = directory / "run.trace";
  save(example(), path);
  const std::string whole = read(path);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write(path, whole.substr(0, size));
    INFO("the first " << size << " of " << whole.size() << " bytes");
    REQUIRE_THAT(thrown<std::runtime_error>([&] { load(path); }), Mentions(path.string() + ": "));
  }
  write(path, whole + 'x');
  CHECK_THAT(thrown<std::runtime_error>([&] { load(path); }), Mentions("more behind its end"));
}

TEST_CASE("recording: a flipped bit is told, in whichever byte", "[trace]") {
  const TemporaryDirectory directory;
  const auto path = directory / "run.trace";
  save(example(), path);
  std::string content = read(path);
  for (std::size_t byte = 0; byte < content.size(); ++byte) {
    const char kept = content[byte];
    content[byte] = static_cast<char>(kept ^ (1 << byte % 8));
    write(path, content);
    content[byte] = kept;
    INFO("byte " << byte);
    REQUIRE_THAT(thrown<std::runtime_error>([&] { load(path); }), Mentions(path.string() + ": "));
  }
}

TEST_CASE("recording: a timeline that makes no sense is not loaded", "[trace]") {
  const TemporaryDirectory directory;
  const auto path = directory / "run.trace";
  const auto refused = [&](auto change) {
    Timeline timeline = example();
    change(timeline);
    save(timeline, path);
    return thrown<std::runtime_error>([&] { load(path); });
  };
  CHECK_THAT(refused([](Timeline& timeline) { timeline.names.clear(); }), Mentions("first name"));
  CHECK_THAT(refused([](Timeline& timeline) { timeline.events[0].name = 5; }),
             Mentions("without a name or a track"));
  CHECK_THAT(refused([](Timeline& timeline) { timeline.events[0].domain = 5; }),
             Mentions("without a name or a track"));
  CHECK_THAT(refused([](Timeline& timeline) { timeline.events[2].track = 2; }),
             Mentions("without a name or a track"));
  CHECK_THAT(refused([](Timeline& timeline) { timeline.events[2].track = 1; }),
             Mentions("a track of the other kind"));
  CHECK_THAT(refused([](Timeline& timeline) { timeline.events[2].end = 110; }),
             Mentions("out of order"));
  CHECK_THAT(refused([](Timeline& timeline) { timeline.events[2].begin = 110; }),
             Mentions("out of order"));
  CHECK_THAT(refused([](Timeline& timeline) { timeline.begin = 101; }), Mentions("out of order"));
  CHECK_THAT(refused([](Timeline& timeline) { timeline.end = 399; }), Mentions("out of order"));
  CHECK_THAT(refused([](Timeline& timeline) { std::swap(timeline.tracks[0], timeline.tracks[1]); }),
             Mentions("tracks out of order"));
  CHECK_THAT(refused([](Timeline& timeline) { timeline.tracks[1].kind = Track::Kind::lane; }),
             Mentions("a call in a lane"));
  CHECK_THAT(refused([](Timeline& timeline) { timeline.tracks[1].kind = Track::Kind{3}; }),
             Mentions("a track of an unknown kind"));
  CHECK_THAT(refused([](Timeline& timeline) { timeline.events[0].kind = Kind{7}; }),
             Mentions("unknown kind"));
  for (const Time begin : {Time{89}, Time{131}, Time{501}})
    CHECK_THAT(refused([&](Timeline& timeline) { timeline.memory[1].begin = begin; }),
               Mentions("memory out of order"));
  for (const int device : {-1, 2'000'000'000})
    CHECK_THAT(refused([&](Timeline& timeline) { timeline.memory[2].device = device; }),
               Mentions("memory of no device"));
  CHECK_THAT(refused([&](Timeline& timeline) { timeline.engine_use[1].time = 199; }),
             Mentions("video engines out of order"));
  CHECK_THAT(refused([&](Timeline& timeline) { timeline.engine_use[0].percent = 101; }),
             Mentions("video engines out of order"));
  CHECK_THAT(refused([&](Timeline& timeline) { timeline.engine_use[0].device = -1; }),
             Mentions("video engines of no device"));
  CHECK_THAT(refused([](Timeline& timeline) {
               timeline.events.clear();
               timeline.memory.clear();
               timeline.begin = 501;
             }),
             Mentions("its end is before its begin"));
  for (const int device : {-1, 2'000'000'000})
    CHECK_THAT(refused([&](Timeline& timeline) { timeline.tracks[0].device = device; }),
               Mentions("a stream of no device"));
}

TEST_CASE("recording: what is no recording, or of another version, is said", "[trace]") {
  const TemporaryDirectory directory;
  const auto path = directory / "run.trace";
  CHECK_THAT(thrown<std::runtime_error>([&] { load(path); }), Mentions("No such file"));
  CHECK_THAT(thrown<std::runtime_error>([&] { load(directory / "."); }), Mentions("directory"));
  write(path, std::string(1000, 'x'));
  CHECK_THAT(thrown<std::runtime_error>([&] { load(path); }), Mentions("no recording of penstock"));
  save(example(), path);
  std::string content = read(path);
  ++content[16];
  write(path, content);
  CHECK_THAT(thrown<std::runtime_error>([&] { load(path); }), Mentions("format version 6"));
}

TEST_CASE("recording: a file that cannot be written leaves the one before, and no part",
          "[trace]") {
  const TemporaryDirectory directory;
  CHECK_THAT(thrown<std::system_error>([&] { save(example(), directory / "no/run.trace"); }),
             Mentions("no/run.trace"));
  std::filesystem::create_directory(directory / "run.trace");
  CHECK_THROWS_AS(save(example(), directory / "run.trace"), std::system_error);
  const auto left = std::distance(std::filesystem::directory_iterator(directory / "."), {});
  CHECK(left == 1);  // the directory that was there
}
