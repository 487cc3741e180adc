// SPDX-License-Identifier: Apache-2.0

#include "../../examples/common/watch.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/made_records.hpp"

using namespace std::chrono_literals;
using examples::Watch;
using examples::watch_line;
using penstock::Stats;
using penstock::test::eventually;

namespace {

/// Of the n-th snapshot: 20 batches more than the one before.
Stats snapshot(int n) {
  const penstock::test::MadePipeline slow{.fill = 20.0, .copy = 0.5, .step = 5.0};
  Stats stats = slow.stats(static_cast<std::size_t>(20 * n));
  stats.source = {.busy = n * 990ms,
                  .waiting_for_room = n * 10ms,
                  .batches = static_cast<std::uint64_t>(20 * n),
                  .queued = 0.5,
                  .capacity = 4};
  stats.copy = {.waiting_for_input = n * 1s,
                .batches = static_cast<std::uint64_t>(20 * n),
                .bytes = static_cast<std::uint64_t>(n) * 3'000'000,
                .queued = 1,
                .capacity = 2};
  stats.consumer = {.busy = n * 250ms,
                    .waiting_for_input = n * 750ms,
                    .batches = static_cast<std::uint64_t>(20 * n)};
  return stats;
}

std::string text_of(std::FILE* file) {
  REQUIRE(std::fseek(file, 0, SEEK_SET) == 0);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}

/// What a watch writes until it has looked `looks` times.
std::string watched(bool terminal, int looks) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  std::atomic<int> calls{0};
  {
    const Watch watch([&] { return snapshot(++calls); },
                      {.file = file, .terminal = terminal, .interval = 1ms});
    CHECK(eventually([&] { return calls >= looks; }));
  }
  const int at_the_end = calls;
  const std::string text = text_of(file);
  std::fclose(file);
  CHECK(calls == at_the_end);  // Nobody looks any more.
  return text;
}

std::size_t count(const std::string& text, char c) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), c));
}

}  // namespace

TEST_CASE("the line of a watch", "[watch]") {
  CHECK(watch_line(snapshot(1), 0.5) ==
        "40.0 batches/s, 6.0 MB/s | ready 0.5 of 4, on the device 1.0 of 2 | GPU waits 75 % | "
        "source: more_workers (4)");
  CHECK(watch_line(Stats{}, 0).find("balanced: too_early") != std::string::npos);
}

TEST_CASE("on a terminal the line is redrawn in place, and a fresh one follows", "[watch]") {
  const std::string text = watched(true, 4);
  CHECK(count(text, '\r') >= 3);
  CHECK(count(text, '\n') == 1);
  CHECK(text.back() == '\n');
  CHECK(text.find("\x1b[K") != std::string::npos);
  CHECK(text.rfind("watched: ") > text.rfind('\r', text.size() - 2) - 1);
}

TEST_CASE("elsewhere each look is a line", "[watch]") {
  const std::string text = watched(false, 4);
  CHECK(count(text, '\n') >= 3);
  CHECK(count(text, '\r') == 0);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find("source: more_workers (4)\n") != std::string::npos);
  CHECK(text.find("\nwatched: ") != std::string::npos);
}

TEST_CASE("a watch that ends at once says one line", "[watch]") {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  {
    const Watch watch([] { return snapshot(1); },
                      {.file = file, .terminal = false, .interval = 1h});
  }
  const std::string text = text_of(file);
  std::fclose(file);
  CHECK(count(text, '\n') == 1);
  CHECK(text.rfind("watched: ", 0) == 0);
}
