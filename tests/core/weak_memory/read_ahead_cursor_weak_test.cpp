// SPDX-License-Identifier: Apache-2.0

#include "replace_std.hpp"
//
#include <penstock/detail/pipeline/read_ahead_cursor.hpp>

using penstock::ReadAhead;
using penstock::detail::ReadAheadCursor;
using penstock::test::weak::expect;
using penstock::test::weak::explore;
using penstock::test::weak::Plain;

namespace {

/// Two epochs of two batches, each of one sample, which has the number of its batch.
struct Numbered {
  std::uint64_t batches() const { return 2; }
  void samples(std::uint64_t epoch, std::uint64_t batch, std::vector<std::uint64_t>& out) const {
    out.push_back(2 * epoch + batch);
  }
};

constexpr std::uint64_t kBatches = 4;

void all_are_announced(std::uint64_t ahead, int workers) {
  Plain<std::uint64_t> next{1};  // Not atomic: only one worker at a time may announce.
  const auto will_need = [&](std::span<const std::uint64_t> samples) {
    expect(samples.size() == 1 && samples.front() == next, "the next batch is announced");
    next = next + 1;
  };
  ReadAheadCursor cursor(ReadAhead{will_need, ahead}, Numbered{}, 1);
  cursor.restart(0, kBatches);
  std::atomic<std::uint64_t> begun{0};
  const std::stop_source source;
  const auto work = [&] {
    penstock::detail::WorkerTrace trace;
    while (true) {
      const std::uint64_t number = begun.fetch_add(1, std::memory_order_relaxed);
      if (number >= kBatches) return;
      cursor.begun(number, source.get_token(), trace);
    }
  };
  std::thread first(work);
  std::optional<std::thread> second;
  if (workers > 2) second.emplace(work);
  work();
  first.join();
  if (second) second->join();
  expect(next == kBatches, "all are announced when all have begun");
}

}  // namespace

TEST_CASE("weak: what a worker leaves to another one is announced, once and in order",
          "[read_ahead_cursor]") {
  const std::uint64_t ahead = GENERATE(1u, 2u);
  const int workers = GENERATE(2, 3);
  explore([&] { all_are_announced(ahead, workers); });
}
