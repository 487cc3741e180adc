// SPDX-License-Identifier: Apache-2.0

#include <penstock/detail/pipeline/batch_record.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>

#include "support/allocations.hpp"
#include "support/catch.hpp"

using penstock::detail::BatchRecord;
using penstock::detail::Stage;

namespace {

struct RecordValues {
  penstock::Tensor<std::int32_t, 2> value;
  penstock::Ragged<std::int32_t> words;
};

const auto kRecordLayout = penstock::Layout<RecordValues>{5}
                               .field(&RecordValues::value, {3})
                               .field(&RecordValues::words, penstock::Capacity{40});

std::size_t offset_in(const BatchRecord& record, const void* member) {
  return static_cast<std::size_t>(static_cast<const std::byte*>(member) -
                                  reinterpret_cast<const std::byte*>(&record));
}

}  // namespace

TEST_CASE("what is written at one step of the route shares cache lines with nothing else",
          "[batch_record]") {
  const BatchRecord record(kRecordLayout.erased(), 3);
  CHECK(reinterpret_cast<std::uintptr_t>(&record) % 64 == 0);
  CHECK(offset_in(record, &record.rows) < 64);
  CHECK(offset_in(record, &record.index) >= 64);
  CHECK(offset_in(record, &record.failures) + sizeof(record.failures) <= 128);
  CHECK(offset_in(record, &record.memory) + sizeof(record.memory) <= 192);
  CHECK(offset_in(record, &record.times) == 192);
  CHECK(offset_in(record, &record.to_fill) == 256);
  CHECK(offset_in(record, &record.ended) < 320);
  CHECK(offset_in(record, &record.pattern) == 320);
}

TEST_CASE("a record has room for a batch, and its next batch finds nothing of the last one",
          "[batch_record]") {
  std::deque<BatchRecord> records;
  for (std::uint32_t i = 0; i < 2; ++i) records.emplace_back(kRecordLayout.erased(), i);
  BatchRecord& record = records[1];
  CHECK(record.index == 1);
  CHECK(record.is(Stage::free));
  CHECK(record.batch == record.object.get());
  CHECK(record.scratch.size() >= kRecordLayout.erased().scratch_bytes());

  penstock::PinnedPool pool;
  record.memory.block = pool.acquire(256);
  record.open(7);
  CHECK(record.number == 7);
  CHECK(record.is(Stage::open));
  CHECK(record.memory);  // It comes before the number.
  record.numbers = {5, 6};
  record.ticket.samples = record.numbers;
  record.rows = 2;
  record.to_fill.open(5);
  record.times.opened = 3;
  record.times.work = 4;
  record.work = 4;
  record.ended = true;
  record.fail({nullptr, nullptr, 2});
  record.set(Stage::failed);

  record.clear();
  CHECK(record.is(Stage::free));
  CHECK_FALSE(record.memory);
  CHECK(pool.stats().bytes_in_use == 0);
  CHECK(record.failures.empty());

  record.open(8);
  CHECK(record.number == 8);
  CHECK(record.is(Stage::open));
  CHECK(record.ticket.samples.empty());
  CHECK(record.numbers.empty());
  CHECK(record.rows == 0);
  CHECK(record.to_fill.all() == 0);
  CHECK(record.times.opened == 0);
  CHECK(record.times.work == 0);
  CHECK(record.work == 0);
  CHECK_FALSE(record.ended);
}

TEST_CASE("a batch of the layout's size needs no allocation", "[batch_record]") {
  BatchRecord record(kRecordLayout.erased(), 0);
  const std::uint64_t before = penstock::test::allocations_of_this_thread();
  record.open(1);
  for (std::uint64_t i = 0; i < 5; ++i) record.numbers.push_back(i);
  CHECK(penstock::test::allocations_of_this_thread() == before);
}
