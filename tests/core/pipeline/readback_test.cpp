// SPDX-License-Identifier: Apache-2.0

// Runs emulated, and on a GPU.

#include <penstock/error.hpp>
#include <penstock/readback.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <latch>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using namespace test;

/// A device value that is 0, 1, 2, ... at the pushes, and overwritten right after each.
class Counter {
 public:
  explicit Counter(int values) : numbers_(static_cast<std::size_t>(values)), value_(1) {
    for (int i = 0; i < values; ++i) numbers_[static_cast<std::size_t>(i)] = first_ + i;
  }

  void push_next(Readback<int>& readback, cudaStream_t stream, Readback<int>::Callback callback) {
    // On any thread: no assertions.
    detail::check(cudaMemcpyAsync(value_.data(), &numbers_[static_cast<std::size_t>(next_++)],
                                  sizeof(int), cudaMemcpyHostToDevice, stream),
                  "cudaMemcpyAsync");
    readback.push(value_.data(), stream, std::move(callback));
    detail::check(cudaMemsetAsync(value_.data(), 0xee, value_.bytes(), stream), "cudaMemsetAsync");
  }

 private:
  PinnedMemory<int> numbers_;
  DeviceMemory<int> value_;
  int first_ = 0, next_ = 0;
};

std::vector<int> first_numbers(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST_CASE("readback: each value as it was at its push, in order, on one thread of its own",
          "[readback]") {
  const std::size_t slots = GENERATE(1u, 2u, 7u, 64u);
  const TestStream stream;
  Counter counter(200);
  std::vector<int> values;
  std::vector<std::thread::id> threads;
  Readback<int> readback(slots);
  for (int i = 0; i < 200; ++i)
    counter.push_next(readback, stream, [&](int value) {
      values.push_back(value);
      threads.push_back(std::this_thread::get_id());
    });
  readback.drain();
  CHECK(values == first_numbers(200));
  CHECK(std::count(threads.begin(), threads.end(), threads.front()) == 200);
  CHECK(threads.front() != std::this_thread::get_id());
}

TEST_CASE("readback: a value may be any trivially copyable type", "[readback]") {
  struct Result {
    double loss;
    std::array<std::uint16_t, 301> classes;
  };
  const TestStream stream;
  const PinnedMemory<Result> host(1);
  const DeviceMemory<Result> device(1);
  host[0].loss = 0.25;
  for (std::size_t i = 0; i < 301; ++i) host[0].classes[i] = static_cast<std::uint16_t>(7 * i);
  copy_async(device, host, stream);
  Readback<Result> readback(3);
  Result got{};
  readback.push(device.data(), stream, [&](const Result& result) { got = result; });
  readback.drain();
  CHECK(got.loss == 0.25);
  CHECK(got.classes == host[0].classes);
}

TEST_CASE("readback: arrays, each as long as its push says and as it was then", "[readback]") {
  constexpr std::size_t kLargest = 50;
  const std::size_t slots = GENERATE(1u, 3u, 16u);
  const TestStream stream;
  const PinnedMemory<int> numbers(kLargest);
  for (std::size_t i = 0; i < kLargest; ++i) numbers[i] = static_cast<int>(i);
  const DeviceMemory<int> array(kLargest);
  std::vector<std::vector<int>> values;
  Readback<int[]> readback(slots, kLargest);
  for (std::size_t i = 0; i < 120; ++i) {
    copy_async(array, numbers, stream);
    readback.push(array.data(), i * 7 % (kLargest + 1), stream, [&](std::span<const int> some) {
      values.emplace_back(some.begin(), some.end());
    });
    REQUIRE_CUDA(cudaMemsetAsync(array.data(), 0xee, array.bytes(), stream));
  }
  readback.drain();
  REQUIRE(values.size() == 120);
  for (std::size_t i = 0; i < 120; ++i)
    CHECK(values[i] == first_numbers(static_cast<int>(i * 7 % (kLargest + 1))));
  CHECK_THAT(thrown<std::invalid_argument>(
                 [&] { readback.push(array.data(), kLargest + 1, stream, [](auto) {}); }),
             Mentions("51 values, and there is room for 50"));
}

TEST_CASE("readback: a push does not wait for the stream", "[readback]") {
  const TestStream stream;
  Counter counter(4);
  std::atomic<int> calls{0};
  Readback<int> readback(4);
  Gate gate;
  gate.hold(stream);
  for (int i = 0; i < 4; ++i) counter.push_next(readback, stream, [&](int) { ++calls; });
  CHECK(calls == 0);
  gate.open();
  readback.drain();
  CHECK(calls == 4);
}

TEST_CASE("readback: what the stream does after a push does not wait for a callback",
          "[readback]") {
  const TestStream stream;
  Counter counter(1);
  std::atomic<bool> go{false};
  {
    Readback<int> readback(1);
    counter.push_next(readback, stream, [&](int) {
      while (!go) std::this_thread::yield();
    });
    CHECK(eventually([&] { return cudaStreamQuery(stream) == cudaSuccess; }));
    go = true;
  }
}

TEST_CASE("readback: at most `slots` values are under way; then push waits", "[readback]") {
  const TestStream stream;
  Counter counter(10);
  Readback<int> readback(2);
  std::atomic<bool> go{false};
  std::atomic<int> pushed{0};
  std::vector<int> values;
  std::thread pusher([&] {
    for (int i = 0; i < 10; ++i, ++pushed)
      counter.push_next(readback, stream, [&](int value) {
        while (!go) std::this_thread::yield();
        values.push_back(value);
      });
  });
  const bool two = eventually([&] { return pushed == 2; });
  const int now = pushed;
  go = true;
  pusher.join();
  readback.drain();
  CHECK(two);
  CHECK(now == 2);
  CHECK(values == first_numbers(10));
}

TEST_CASE("readback: what a callback throws comes out of drain, once, and nothing else is lost",
          "[readback]") {
  const TestStream stream;
  Counter counter(6);
  std::vector<int> values;
  std::latch all_pushed(1);  // Else it comes out of a push.
  Readback<int> readback(6);
  for (int i = 0; i < 6; ++i)
    counter.push_next(readback, stream, [&](int value) {
      all_pushed.wait();
      values.push_back(value);
      if (value == 1 || value == 3) throw std::range_error("value " + std::to_string(value));
    });
  all_pushed.count_down();
  CHECK_THAT(thrown<std::range_error>([&] { readback.drain(); }), Mentions("value 1"));
  CHECK(values == first_numbers(6));
  CHECK_NOTHROW(readback.drain());
}

TEST_CASE("readback: what a callback throws comes out of the next push, which pushes nothing",
          "[readback]") {
  const TestStream stream;
  const DeviceMemory<int> value(1);
  Readback<int> readback(2);
  std::atomic<int> calls{0};
  readback.push(value.data(), stream, [&](int) {
    ++calls;
    throw std::range_error("bad");
  });
  const auto push = [&] { readback.push(value.data(), stream, [&](int) { ++calls; }); };
  const auto throws = [&] {
    try {
      push();
      return false;
    } catch (const std::range_error&) {
      return true;
    }
  };
  int pushes = 0;
  CHECK(eventually([&] { return throws() || ++pushes < 0; }));
  push();
  readback.drain();
  CHECK(calls == 1 + pushes + 1);
}

TEST_CASE("readback: callbacks that throw while others are pushed: each push says so or pushes",
          "[readback]") {
  const TestStream stream;
  const DeviceMemory<int> value(1);
  Readback<int> readback(2);
  std::atomic<int> calls{0};
  int pushed = 0, told = 0;
  for (int i = 0; i < 300; ++i) {
    try {
      readback.push(value.data(), stream, [&](int) {
        ++calls;
        throw std::range_error("bad");
      });
      ++pushed;
    } catch (const std::range_error&) {
      ++told;
    }
  }
  try {
    readback.drain();
  } catch (const std::range_error&) {
    ++told;  // Unless the last push was the one that told.
  }
  CHECK(calls == pushed);
  CHECK(told > 0);
}

TEST_CASE("readback: a callback and what it holds are gone when drain returns", "[readback]") {
  const TestStream stream;
  const DeviceMemory<int> value(1);
  const auto owner = std::make_shared<int>(0);
  Readback<int> readback(2);
  readback.push(value.data(), stream, [owner](int) {});
  readback.drain();
  CHECK(owner.use_count() == 1);
}

TEST_CASE("readback: the destructor calls back for everything", "[readback]") {
  const TestStream stream;
  Counter counter(5);
  std::vector<int> values;
  {
    Readback<int> first(8);
    Readback<int> readback = std::move(first);
    for (int i = 0; i < 5; ++i)
      counter.push_next(readback, stream, [&](int value) { values.push_back(value); });
  }
  CHECK(values == first_numbers(5));
}

TEST_CASE("readback: a callback may not push or drain", "[readback]") {
  const TestStream stream;
  const DeviceMemory<int> value(1);
  Readback<int> readback(1);
  readback.push(value.data(), stream,
                [&](int) { readback.push(value.data(), stream, [](int) {}); });
  CHECK_THAT(thrown<std::logic_error>([&] { readback.drain(); }), Mentions("Readback::push"));
  readback.push(value.data(), stream, [&](int) { readback.drain(); });
  CHECK_THAT(thrown<std::logic_error>([&] { readback.drain(); }), Mentions("Readback::drain"));
}

TEST_CASE("readback: several threads push, each from a stream of its own", "[readback]") {
  constexpr int kEach = 50;
  struct Pusher {
    TestStream stream;
    Counter counter{kEach};
    std::vector<int> values;
  };
  std::array<Pusher, 3> pushers;
  Readback<int> readback(4);
  std::vector<std::thread> threads;
  for (Pusher& pusher : pushers)
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i)
        pusher.counter.push_next(readback, pusher.stream,
                                 [&](int value) { pusher.values.push_back(value); });
    });
  for (std::thread& thread : threads) thread.join();
  readback.drain();
  for (const Pusher& pusher : pushers) CHECK(pusher.values == first_numbers(kEach));
}

TEST_CASE("readback: a push cannot be captured, and says so", "[readback]") {
  const TestStream stream;
  const DeviceMemory<int> value(1);
  Readback<int> readback(1);
  std::string why;
  const TestGraph graph = capture(stream, [&] {
    why = thrown<std::logic_error>([&] { readback.push(value.data(), stream, [](int) {}); });
  });
  CHECK_THAT(why, Mentions("captured"));
  CHECK(graph.nodes() == 0);
}

TEST_CASE("readback: bad arguments", "[readback]") {
  CHECK_THROWS_AS(Readback<int>(0), std::invalid_argument);
  CHECK_THROWS_AS(Readback<int[]>(0, 1), std::invalid_argument);
  CHECK_THROWS_AS(Readback<int[]>(1, 0), std::invalid_argument);
  const TestStream stream;
  const DeviceMemory<int> value(1);
  Readback<int> readback(1);
  CHECK_THROWS_AS(readback.push(value.data(), stream, nullptr), std::invalid_argument);
  constexpr auto kMinusOne = ~std::size_t{0};
  CHECK_THAT(thrown<std::invalid_argument>([] { Readback<int> many(kMinusOne); }),
             Mentions("larger than any memory"));
  CHECK_THROWS_AS(Readback<int[]>(1, kMinusOne / 4 + 3), std::invalid_argument);
  CHECK_THROWS_AS(Readback<int[]>(1, std::size_t{1} << 46), PoolExhausted);  // as large as can be
  Readback<int> moved(std::move(readback));
  CHECK_THROWS_AS(readback.drain(), std::logic_error);  // NOLINT(bugprone-use-after-move)
  CHECK_THROWS_AS(readback.push(value.data(), stream, [](int) {}), std::logic_error);
}

}  // namespace
}  // namespace penstock
