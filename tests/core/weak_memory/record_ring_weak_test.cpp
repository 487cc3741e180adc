// SPDX-License-Identifier: Apache-2.0

#include "replace_std.hpp"
//
#include <penstock/detail/pipeline/record_ring.hpp>
#include <penstock/detail/sync/event_count.hpp>
#include <penstock/detail/sync/index_stack.hpp>

using penstock::detail::EventCount;
using penstock::detail::IndexStack;
using penstock::detail::RecordRing;
using penstock::test::weak::expect;
using penstock::test::weak::explore;
using penstock::test::weak::Plain;

namespace {

constexpr std::size_t kMostRecords = 4;

/// A ring, its records, and the waits of those who use both. A record is its index here; whoever
/// has it writes the number of its batch. That a cell is written while it is read is a race.
class Records {
 public:
  Records(std::uint32_t count, bool ordered, std::uint64_t first, std::uint64_t numbers)
      : ring(count, ordered) {
    for (std::uint32_t i = 0; i < count; ++i) free_.push(i);
    ring.reopen(first, first + numbers);
  }

  /// kNone: the ring was closed.
  std::uint32_t wait_for_record() {
    std::uint32_t record = IndexStack::kNone;
    room_.wait([&] { return (record = free_.pop()) != IndexStack::kNone || ring.closed(); });
    return record;
  }
  void publish(std::uint64_t number, std::uint32_t record) {
    numbers_[record] = number;
    ring.publish(number, record);
    news_.notify_one();
  }
  void work() {
    while (ring.reserve()) {
      const std::uint32_t record = wait_for_record();
      if (record == IndexStack::kNone) return;
      const auto number = ring.claim();
      if (!number) return give_back(record);
      publish(*number, record);
    }
  }

  /// False: all are staged, and no more will come.
  bool wait_for_filled() {
    news_.wait([&] { return ring.has_filled() || ring.all_staged(); });
    return ring.has_filled();
  }
  void stage() {
    ring.stage();
    staged_.notify_one();
  }
  std::uint64_t take_staged() {
    staged_.wait([&] { return ring.has_staged(); });
    const std::uint32_t record = ring.staged_head();
    const std::uint64_t number = numbers_[record];
    numbers_[record] = 0;
    ring.take();
    give_back(record);
    return number;
  }
  /// By one thread.
  std::uint64_t take() {
    stage();
    return take_staged();
  }
  void give_back(std::uint32_t record) {
    free_.push(record);
    room_.notify_one();
  }
  void close() {
    ring.close();
    room_.notify_all();
    news_.notify_one();
  }

  RecordRing<Plain<std::uint32_t>> ring;

 private:
  IndexStack free_{kMostRecords};
  Plain<std::uint64_t> numbers_[kMostRecords];
  EventCount room_, news_, staged_;
};

}  // namespace

TEST_CASE("weak: a ring hands over every number once, in order", "[record_ring]") {
  const std::uint32_t depth = GENERATE(1u, 2u, 3u);
  explore([depth] {
    constexpr std::uint64_t kFirst = 5, kNumbers = 4;
    Records records(depth, true, kFirst, kNumbers);
    std::thread first([&] { records.work(); }), second([&] { records.work(); });
    for (std::uint64_t i = 0; i < kNumbers; ++i) {
      expect(records.wait_for_filled(), "the ring is not over");
      expect(records.take() == kFirst + i, "numbers come in order");
    }
    expect(!records.wait_for_filled(), "the ring is over");
    first.join();
    second.join();
  });
}

TEST_CASE("weak: a worker that claims late writes a cell that another's record proves empty",
          "[record_ring]") {
  const bool ordered = GENERATE(true, false);
  explore([ordered] {
    constexpr std::uint64_t kNumbers = 5;
    Records records(2, ordered, 0, kNumbers);
    std::atomic<bool> late_is_inside{false};  // Relaxed: they order nothing.
    std::atomic<std::uint64_t> others{0};
    const auto wait_for = [](auto& atomic, auto value) {
      while (atomic.load(std::memory_order_relaxed) != value) std::this_thread::yield();
    };
    std::thread late([&] {
      expect(records.ring.reserve(), "there are numbers at the start");
      const std::uint32_t record = records.wait_for_record();
      std::optional<std::uint64_t> number;
      if (!ordered) number = records.ring.claim();
      late_is_inside.store(true, std::memory_order_relaxed);
      wait_for(others, kNumbers - 1);
      if (ordered) number = records.ring.claim();
      records.publish(*number, record);
    });
    std::thread quick([&] {
      wait_for(late_is_inside, true);
      while (records.ring.reserve()) {
        const std::uint32_t record = records.wait_for_record();
        const auto number = records.ring.claim();
        records.publish(*number, record);
        others.fetch_add(1, std::memory_order_relaxed);
      }
    });
    for (std::uint64_t i = 0; i < kNumbers; ++i) {
      records.wait_for_filled();
      const std::uint64_t number = records.take();
      if (ordered) expect(number == i, "numbers come in order");
    }
    late.join();
    quick.join();
  });
}

TEST_CASE("weak: as they come, a ring hands over every number once", "[record_ring]") {
  const std::uint32_t depth = GENERATE(1u, 2u);
  explore([depth] {
    Records records(depth, false, 0, 4);
    std::thread first([&] { records.work(); }), second([&] { records.work(); });
    std::uint64_t seen = 0;
    for (int i = 0; i < 4; ++i) {
      expect(records.wait_for_filled(), "the ring is not over");
      seen |= std::uint64_t{1} << records.take();
    }
    expect(seen == 15 && records.ring.all_staged(), "each number came once");
    first.join();
    second.join();
  });
}

TEST_CASE("weak: one thread stages and another takes, in order, and then comes the end",
          "[record_ring]") {
  const std::uint32_t depth = GENERATE(1u, 2u);
  explore([depth] {
    constexpr std::uint64_t kNumbers = 4;
    Records records(depth, true, 0, kNumbers);
    std::thread worker([&] { records.work(); });
    std::thread stager([&] {
      while (records.wait_for_filled()) records.stage();
    });
    for (std::uint64_t i = 0; i < kNumbers; ++i)
      expect(records.take_staged() == i, "numbers come in order");
    expect(records.ring.position() == kNumbers, "all of them");
    worker.join();
    stager.join();
    expect(!records.ring.has_staged(), "and no more");
  });
}

TEST_CASE("weak: a ring can be closed at any moment, by anybody", "[record_ring]") {
  const bool by_worker = GENERATE(false, true);
  explore([by_worker] {
    Records records(2, true, 0, 1000);
    std::thread first([&] { records.work(); });
    std::thread second([&] {
      if (by_worker)
        records.close();
      else
        records.work();
    });
    for (std::uint64_t i = 0;; ++i) {
      if (i == 2 && !by_worker) records.close();
      if (!records.wait_for_filled()) break;
      expect(records.take() == i, "numbers come in order, to the last that was claimed");
    }
    expect(records.ring.all_staged() && records.ring.position() == records.ring.next_number(),
           "all that was claimed was taken");
    first.join();
    second.join();
    expect(records.ring.closed() && !records.ring.reserve(), "nobody gets a number");
  });
}
