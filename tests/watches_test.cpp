// SPDX-License-Identifier: Apache-2.0

// CopyWatch and TakeWatch: one thread records, any thread reads.

#include <penstock/cuda.hpp>
#include <penstock/detail/measure/copy_watch.hpp>
#include <penstock/detail/measure/take_watch.hpp>

#include <atomic>
#include <thread>

#include "support/catch.hpp"

using penstock::Stream;
using penstock::detail::CopyWatch;
using penstock::detail::TakeWatch;

namespace {

constexpr std::uint64_t kWatched = 100;

/// Calls `read` on another thread as long as `record` runs. Nothing here orders the two:
/// ThreadSanitizer sees what the watch orders.
template <class Record, class Read>
void record_while_reading(Record record, Read read) {
  std::atomic<bool> over{false};
  std::thread reader([&] {
    while (!over.load(std::memory_order_relaxed)) read();
  });
  for (std::uint64_t i = 0; i < kWatched; ++i) record();
  over.store(true, std::memory_order_relaxed);
  reader.join();
}

}  // namespace

TEST_CASE("batches that are taken are timed by whoever looks, one thread at a time",
          "[take_watch]") {
  const Stream stream;
  TakeWatch watch(4);
  record_while_reading(
      [&] {
        watch.record_request(stream.get());
        watch.record_issue(stream.get());
        watch.record_take(stream.get());
        stream.synchronize();
        watch.collect();
      },
      [&] { watch.collect(); });
  // The first begins the second's span. What a stopped reader holds up is not timed.
  const std::uint64_t timed = watch.times(kWatched).batches;
  CHECK(timed > 0);
  CHECK(timed < kWatched);
}

TEST_CASE("copies are timed by whoever looks, one thread at a time", "[copy_watch]") {
  const bool timed = GENERATE(false, true);
  const Stream stream;
  CopyWatch watch(4, timed);
  record_while_reading(
      [&] {
        watch.queue(stream.get());
        watch.begin(stream.get());
        watch.end(stream.get());
        stream.synchronize();
        watch.sample();
      },
      [&] { watch.sample(); });
  watch.collect();
  CHECK(watch.issued() == kWatched);
  CHECK((watch.timed() > 0) == timed);
  CHECK(watch.timed() <= kWatched);
}
