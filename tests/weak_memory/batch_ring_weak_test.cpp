// SPDX-License-Identifier: Apache-2.0

#include "replace_std.hpp"
//
#include <penstock/detail/pipeline/batch_ring.hpp>

using penstock::detail::BatchRing;
using penstock::test::weak::expect;
using penstock::test::weak::explore;
using penstock::test::weak::InPlace;

namespace {

using Ring = BatchRing<InPlace<std::uint64_t>>;

void work(Ring& ring) {
  while (ring.enter()) {
    const auto number = ring.claim();
    if (!number) return;
    ring.publish(*number, InPlace<std::uint64_t>(*number));
  }
}

}  // namespace

TEST_CASE("weak: a ring hands over every number once, in order", "[batch_ring]") {
  const std::size_t depth = GENERATE(1u, 2u, 3u);
  explore([depth] {
    constexpr std::uint64_t kFirst = 5, kNumbers = 4;
    Ring ring(depth, true);
    ring.reopen(kFirst, kFirst + kNumbers);
    std::thread first([&] { work(ring); }), second([&] { work(ring); });
    for (std::uint64_t i = 0; i < kNumbers; ++i) {
      ring.wait();
      expect(ring.full(), "the ring is not over");
      expect(ring.front() == kFirst + i, "numbers come in order");
      ring.pop();
    }
    ring.wait();
    expect(ring.over() && !ring.full(), "the ring is over");
    first.join();
    second.join();
  });
}

TEST_CASE("weak: a worker that claims late writes a cell that another's entry saw empty",
          "[batch_ring]") {
  const bool ordered = GENERATE(true, false);
  explore([ordered] {
    constexpr std::uint64_t kNumbers = 5;
    Ring ring(2, ordered);
    ring.reopen(0, kNumbers);
    std::atomic<bool> late_is_inside{false};  // Relaxed: they order nothing.
    std::atomic<std::uint64_t> others{0};
    const auto wait_for = [](auto& atomic, auto value) {
      while (atomic.load(std::memory_order_relaxed) != value) std::this_thread::yield();
    };
    std::thread late([&] {
      expect(ring.enter(), "there is room at the start");
      std::optional<std::uint64_t> number;
      if (!ordered) number = ring.claim();
      late_is_inside.store(true, std::memory_order_relaxed);
      wait_for(others, kNumbers - 1);
      if (ordered) number = ring.claim();
      ring.publish(*number, InPlace<std::uint64_t>(*number));
    });
    std::thread quick([&] {
      wait_for(late_is_inside, true);
      while (ring.enter()) {
        const auto number = ring.claim();
        ring.publish(*number, InPlace<std::uint64_t>(*number));
        others.fetch_add(1, std::memory_order_relaxed);
      }
    });
    for (std::uint64_t i = 0; i < kNumbers; ++i) {
      ring.wait();
      const std::uint64_t front = ring.front();
      if (ordered) expect(front == i, "numbers come in order");
      ring.pop();
    }
    late.join();
    quick.join();
  });
}

TEST_CASE("weak: as they come, a ring hands over every number once", "[batch_ring]") {
  const std::size_t depth = GENERATE(1u, 2u);
  explore([depth] {
    Ring ring(depth, false);
    ring.reopen(0, 4);
    std::thread first([&] { work(ring); }), second([&] { work(ring); });
    std::uint64_t seen = 0;
    for (int i = 0; i < 4; ++i) {
      ring.wait();
      expect(ring.full(), "the ring is not over");
      seen |= std::uint64_t{1} << ring.front();
      ring.pop();
    }
    expect(seen == 15 && ring.over(), "each number came once");
    first.join();
    second.join();
  });
}

TEST_CASE("weak: a ring can be closed at any moment, by anybody", "[batch_ring]") {
  const bool by_worker = GENERATE(false, true);
  explore([by_worker] {
    Ring ring(2, true);
    ring.reopen(0, 1000);
    std::thread first([&] { work(ring); });
    std::thread second([&] {
      if (by_worker)
        ring.close();
      else
        work(ring);
    });
    for (std::uint64_t i = 0;; ++i) {
      if (i == 2 && !by_worker) ring.close();
      ring.wait();
      if (!ring.full()) break;
      expect(ring.front() == i, "numbers come in order, to the last that was claimed");
      ring.pop();
    }
    expect(ring.over() && ring.head() == ring.next_number(), "all that was claimed was taken");
    first.join();
    second.join();
    expect(ring.closed() && !ring.enter(), "nobody can enter");
  });
}
