// SPDX-License-Identifier: Apache-2.0

// HostBatch: when its block goes back, and to whom it belongs.

#include <penstock/batch_producer.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/numbers.hpp"

using namespace std::chrono_literals;
using penstock::BatchProducer;
using penstock::HostBatch;
using penstock::PinnedPool;
using penstock::Sampler;
using penstock::test::DeviceMemory;
using penstock::test::Gate;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::sequential;
using penstock::test::TestStream;
using penstock::test::write_numbers;

TEST_CASE("a host batch goes back after the copy that reads it", "[batch_producer]") {
  TestStream stream;
  Gate gate;
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(4), Sampler{{.samples = 8, .batch_size = 4}},
                                  write_numbers, pool, {.workers = 1, .depth = 2});
  auto batch = producer.next();
  gate.hold(stream);
  batch->release_after(stream);
  CHECK(pool.stats().bytes_in_flight > 0);
  gate.open();
}

TEST_CASE("a batch that is released behind a stream keeps its block until the stream is there",
          "[batch_producer]") {
  Gate gate;
  TestStream stream;
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(4), sequential(4, 4), write_numbers, pool,
                                  {.workers = 1, .depth = 1});
  auto batch = producer.next();
  REQUIRE(batch);
  gate.hold(stream);
  batch->release_after(stream);
  CHECK(pool.stats().bytes_in_flight > 0);
  gate.open();
}

TEST_CASE("copy_to copies what a batch uses, and gives the block back behind it",
          "[batch_producer]") {
  const TestStream stream;
  const auto layout = numbers_layout(4);
  const DeviceMemory<unsigned char> device(layout.bytes());
  const std::size_t block_bytes = (BatchProducer<Numbers>::block_bytes(layout) + 255) / 256 * 256;
  PinnedPool pool({.max_bytes = block_bytes, .timeout = 50ms});
  std::optional<HostBatch<Numbers>> batch;
  {
    BatchProducer<Numbers> producer(layout, sequential(3, 4), write_numbers, pool, {.workers = 1});
    batch = producer.next();
    REQUIRE(batch);
  }  // A batch may outlive its producer.
  Gate gate;
  gate.hold(stream);
  batch->copy_to(reinterpret_cast<std::byte*>(device.data()), stream);
  CHECK(pool.stats().bytes_in_flight > 0);
  CHECK_THROWS_AS(pool.acquire(block_bytes), penstock::PoolExhausted);  // which asks for the copy
  CHECK_THROWS_AS(batch->copy_to(reinterpret_cast<std::byte*>(device.data()), stream),
                  std::logic_error);
  gate.open();
  std::vector<unsigned char> bytes = device.read();
  CHECK(pool.acquire(block_bytes));
  const Numbers copied = layout.bind(reinterpret_cast<std::byte*>(bytes.data()), 3);
  for (std::int64_t i = 0; i < 3; ++i) {
    CHECK(copied.sample(i) == static_cast<std::uint64_t>(i));
    for (std::int64_t j = 0; j < penstock::test::kPayload; ++j)
      CHECK(copied.payload(i, j) == penstock::test::payload_of(copied.sample(i), j));
  }
}

TEST_CASE("a batch that is released behind a stream keeps its memory until the stream is there",
          "[batch_producer]") {
  const auto layout = numbers_layout(4);
  const std::size_t bytes = BatchProducer<Numbers>::block_bytes(layout);
  PinnedPool pool({.max_bytes = (bytes + 255) / 256 * 256, .timeout = 0ms});
  BatchProducer<Numbers> producer(layout, sequential(4, 4), write_numbers, pool, {.workers = 1});
  const TestStream stream;
  Gate gate;
  gate.hold(stream);
  producer.next()->release_after(stream);
  CHECK_THROWS_AS(pool.acquire(bytes), penstock::PoolExhausted);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(pool.acquire(bytes));
}

TEST_CASE("a batch that was released or moved from cannot be read", "[batch_producer]") {
  TestStream stream;
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(4), sequential(8, 4), write_numbers, pool);
  auto batch = producer.next();
  REQUIRE(batch);
  HostBatch<Numbers> moved = std::move(*batch);
  CHECK_THROWS_AS(batch->ticket(), std::logic_error);
  CHECK(moved.ticket().batch == 0);
  moved.release_after(stream);
  CHECK_THROWS_AS(*moved, std::logic_error);
  CHECK_THROWS_AS(moved.ticket(), std::logic_error);
}
