// SPDX-License-Identifier: Apache-2.0

// What PENSTOCK_CHECKS finds. This program is compiled with it.

#include <penstock/detail/memory/checks.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/launch.hpp>
#include <penstock/prefetcher.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"
#include "support/thrown.hpp"

using penstock::BatchProducer;
using penstock::DeviceArena;
using penstock::DeviceSlot;
using penstock::Layout;
using penstock::PinnedBlock;
using penstock::PinnedPool;
using penstock::Prefetcher;
using penstock::Sampler;
using penstock::SourceError;
using penstock::Tensor;
using penstock::Ticket;
using penstock::test::Mentions;
using penstock::test::TestStream;
using penstock::test::thrown;

namespace {

constexpr std::int64_t kRows = 4;

struct Pair {
  Tensor<std::uint8_t, 2> bytes;    // sample x 64: ends where a field may begin
  Tensor<std::int32_t, 1> numbers;  // sample
};

Layout<Pair> layout() {
  return Layout<Pair>{kRows}.field(&Pair::bytes, {64}).field(&Pair::numbers, {});
}

void fill_pair(const Ticket& ticket, Pair& batch) {
  for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    std::memset(&batch.bytes(row, 0), static_cast<int>(i), 64);
    batch.numbers(row) = static_cast<std::int32_t>(ticket.samples[i]);
  }
}

/// What next() says when `mischief` follows a correct fill.
template <class Mischief>
std::string told(int workers, Mischief mischief) {
  PinnedPool pool;
  const auto source = [&](const Ticket& ticket, Pair& batch) {
    fill_pair(ticket, batch);
    mischief(batch);
  };
  BatchProducer<Pair> producer(layout(), Sampler{{.samples = 6, .batch_size = kRows}}, source, pool,
                               {.workers = workers});
  const std::string first = thrown<SourceError>([&] { producer.next(); });
  CHECK(thrown<SourceError>([&] { producer.next(); }) != "(nothing was thrown)");  // The short one.
  return first;
}

}  // namespace

TEST_CASE("PENSTOCK_CHECKS=1 in the environment turns the checks on, and nothing else does",
          "[checks]") {
  CHECK(penstock::detail::checks_are_wanted("1"));
  CHECK_FALSE(penstock::detail::checks_are_wanted("0"));
  CHECK_FALSE(penstock::detail::checks_are_wanted(""));
  CHECK_FALSE(penstock::detail::checks_are_wanted(nullptr));
}

TEST_CASE("one source compiled with PENSTOCK_CHECKS turns them on in the library", "[checks]") {
  CHECK(penstock::detail::checks());
  CHECK(layout().bytes() > 2 * penstock::detail::field_guard);
}

TEST_CASE("a write beside a field is told, with the place", "[checks]") {
  const int workers = GENERATE(0, 2);
  const auto beside = [&](std::ptrdiff_t from_bytes) {
    return told(workers, [=](Pair& batch) {
      *(reinterpret_cast<std::byte*>(batch.bytes.data_handle()) + from_bytes) = std::byte{1};
    });
  };
  const std::ptrdiff_t end = kRows * 64;
  CHECK_THAT(beside(-1), Mentions("1 bytes before field 0"));
  CHECK_THAT(beside(end), Mentions("0 bytes behind the end of field 0"));
  CHECK_THAT(beside(end + 255), Mentions("255 bytes behind the end of field 0"));
  CHECK_THAT(told(workers, [](Pair& batch) { batch.numbers.data_handle()[kRows] = 7; }),
             Mentions("behind the end of field 1"));
}

TEST_CASE("a field that was not written is told", "[checks]") {
  const int workers = GENERATE(0, 2);
  PinnedPool pool;
  const auto source = [](const Ticket& ticket, Pair& batch) {
    if (ticket.batch == 0) std::memset(batch.bytes.data_handle(), 0, kRows * 64);
    if (ticket.batch == 1) fill_pair(ticket, batch);
  };
  BatchProducer<Pair> producer(layout(), Sampler{{.samples = 12, .batch_size = kRows}}, source,
                               pool, {.workers = workers});
  CHECK_THAT(thrown<SourceError>([&] { producer.next(); }), Mentions("left field 1 unwritten"));
  CHECK(producer.next());
  CHECK_THAT(thrown<SourceError>([&] { producer.next(); }), Mentions("left field 0 unwritten"));
}

TEST_CASE("8 bytes that were not written are told, 4 may be so by chance", "[checks]") {
  const std::uint64_t samples = GENERATE(1, 2);  // of the one batch
  PinnedPool pool;
  const auto source = [](const Ticket& ticket, Pair& batch) {
    std::memset(batch.bytes.data_handle(), 0, ticket.samples.size() * 64);
  };
  BatchProducer<Pair> producer(layout(), Sampler{{.samples = samples, .batch_size = kRows}}, source,
                               pool, {.workers = 1});
  if (samples == 2)
    CHECK_THAT(thrown<SourceError>([&] { producer.next(); }), Mentions("left field 1 unwritten"));
  else
    CHECK(producer.next());
}

TEST_CASE("a pinned block that is written after its release is told", "[checks]") {
  PinnedPool pool;
  std::byte* data = nullptr;
  {
    const PinnedBlock block = pool.acquire(1000);
    data = block.data();
    std::memset(data, 0, 1000);
  }
  CHECK(pool.acquire(1000));  // Untouched so far.
  data[17] = std::byte{1};
  CHECK_THAT(thrown<std::logic_error>([&] { pool.acquire(1000); }),
             Mentions("written after its release, at byte 17"));
}

TEST_CASE("a released pinned block reads as poison", "[checks]") {
  PinnedPool pool;
  TestStream stream;
  PinnedBlock block = pool.acquire(256);
  const std::byte* data = block.data();
  std::memset(block.data(), 0, 256);
  block.release_after(stream);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  const PinnedBlock again = pool.acquire(256);  // Its event was seen done.
  REQUIRE(again.data() == data);
  CHECK(data[0] == std::byte{penstock::detail::poison});
}

TEST_CASE("a lease that is used after its release reads poison", "[checks]") {
  TestStream stream, other;
  Prefetcher<Pair> prefetcher(layout(), Sampler{{.samples = 4, .batch_size = kRows}}, fill_pair,
                              {.workers = 1, .device_depth = 1});
  auto lease = prefetcher.next(stream);
  const Pair batch = *lease;
  lease.also_used_on(other);
  std::int32_t before = 0, after = 0;
  const auto read_into = [&](std::int32_t& value, cudaStream_t on) {
    REQUIRE_CUDA(cudaMemcpyAsync(&value, batch.numbers.data_handle() + 1, sizeof(value),
                                 cudaMemcpyDeviceToHost, on));
  };
  read_into(before, other);
  lease.release();
  read_into(after, stream);
  REQUIRE_CUDA(cudaStreamSynchronize(other));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(before == 1);
  std::int32_t poison = 0;
  std::memset(&poison, penstock::detail::poison, sizeof(poison));
  CHECK(after == poison);
}
