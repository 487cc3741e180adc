// SPDX-License-Identifier: Apache-2.0

// A prefetcher with a transform on the device. Runs emulated, and on a GPU.

#include <penstock/device_transform.hpp>
#include <penstock/prefetcher.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using namespace test;

/// What the source fills: the fields of Numbers in another order, and one that stays behind.
struct Packed {
  Tensor<std::uint32_t, 2> payload;
  Tensor<double, 1> unused;
  Tensor<std::uint64_t, 1> sample;
  std::uint64_t seed = 0;
};

Layout<Packed> packed_layout(std::int64_t batch_size) {
  return Layout<Packed>{batch_size}
      .field(&Packed::payload, {kPayload})
      .field(&Packed::unused, {})
      .field(&Packed::sample, {});
}

void write_packed(const Ticket& ticket, Packed& batch) {
  for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    batch.sample(row) = ticket.samples[i];
    batch.unused(row) = 0;
    for (std::int64_t j = 0; j < kPayload; ++j)
      batch.payload(row, j) = payload_of(ticket.samples[i], j);
  }
  batch.seed = ticket.seed;
}

template <class T, int Rank>
void copy_field(Tensor<T, Rank> from, Tensor<T, Rank> to, cudaStream_t stream) {
  detail::check(cudaMemcpyAsync(to.data_handle(), from.data_handle(), from.size() * sizeof(T),
                                cudaMemcpyDeviceToDevice, stream),
                "cudaMemcpyAsync");
}

void unpack(const Ticket&, const Packed& packed, Numbers& numbers, cudaStream_t stream) {
  copy_field<std::uint64_t, 1>(packed.sample, numbers.sample, stream);
  copy_field<std::uint32_t, 2>(packed.payload, numbers.payload, stream);
  numbers.seed = packed.seed;
}

TEST_CASE("transform: every batch comes transformed, whole, in order, the short one too",
          "[transform]") {
  const int workers = GENERATE(0, 1, 3);
  const std::size_t depth = GENERATE(1u, 2u);
  const TestStream stream;
  const Sampler sampler = shuffled(53, 4);
  Prefetcher<Numbers, Packed> prefetcher(packed_layout(4), sampler, write_packed,
                                         {numbers_layout(4), unpack},
                                         {.workers = workers, .device_depth = depth, .epochs = 3});
  NumbersSink sink(4, 3 * sampler.batches());
  std::vector<std::uint64_t> batch_samples;
  while (auto batch = prefetcher.next(stream)) {
    CHECK(batch->seed == batch.ticket().seed);
    CHECK(batch->sample.extent(0) == static_cast<std::int64_t>(batch.ticket().samples.size()));
    sink.take(batch, stream);
  }
  sink.wait(stream);
  CHECK(sink.all_sample_numbers() == serial_sample_numbers(sampler, 3));
}

TEST_CASE("transform: host and device may be of one type", "[transform]") {
  const TestStream stream;
  const Sampler sampler = shuffled(40, 4);
  Prefetcher<Numbers> prefetcher(
      numbers_layout(4), sampler, write_numbers,
      {numbers_layout(4),
       [](const Ticket&, const Numbers& in, Numbers& out, cudaStream_t copies) {
         copy_field<std::uint64_t, 1>(in.sample, out.sample, copies);
         copy_field<std::uint32_t, 2>(in.payload, out.payload, copies);
       }},
      {.workers = 2});
  NumbersSink sink(4, sampler.batches());
  while (auto batch = prefetcher.next(stream)) sink.take(batch, stream);
  sink.wait(stream);
  CHECK(sink.all_sample_numbers() == serial_sample_numbers(sampler, 1));
}

TEST_CASE("transform: it may make more samples of a batch, or fewer", "[transform]") {
  const TestStream stream;
  const Sampler sampler = shuffled(12, 4);
  const auto twice = [layout = numbers_layout(8)](const Ticket&, const Packed& in, Numbers& out,
                                                  cudaStream_t copies) {
    const std::int64_t samples = in.sample.extent(0);
    layout.resize(out, 2 * samples);
    for (std::int64_t view = 0; view < 2; ++view) {
      const auto sample = in.sample, to_sample = out.sample;
      const auto payload = in.payload, to_payload = out.payload;
      copy_field<std::uint64_t, 1>(
          sample, Tensor<std::uint64_t, 1>(&to_sample(view * samples), samples), copies);
      copy_field<std::uint32_t, 2>(
          payload, Tensor<std::uint32_t, 2>(&to_payload(view * samples, 0), samples, kPayload),
          copies);
    }
  };
  Prefetcher<Numbers, Packed> prefetcher(packed_layout(4), sampler, write_packed,
                                         {numbers_layout(8), twice}, {.workers = 1});
  NumbersSink sink(8, 3);
  while (auto batch = prefetcher.next(stream)) sink.take(batch, stream);
  sink.wait(stream);
  for (std::size_t batch = 0; batch < 3; ++batch) {
    std::vector<std::uint64_t> want;
    sampler.samples(0, batch, want);
    want.insert(want.end(), want.begin(), want.begin() + 4);
    CHECK(sink.sample_numbers(batch) == want);
  }
}

TEST_CASE("transform: what it throws takes the batch's place; those behind it come",
          "[transform]") {
  const int workers = GENERATE(0, 2);
  const TestStream stream;
  const auto fails_once = [](const Ticket& ticket, const Packed& in, Numbers& out,
                             cudaStream_t copies) {
    if (ticket.batch == 3) {
      cudaMemsetAsync(out.sample.data_handle(), 0, std::size_t{1} << 60, copies);
      throw std::range_error("sad");  // because that failed
    }
    if (ticket.batch == 5) throw 5;
    unpack(ticket, in, out, copies);
  };
  Prefetcher<Numbers, Packed> prefetcher(packed_layout(4), shuffled(40, 4), write_packed,
                                         {numbers_layout(4), fails_once}, {.workers = workers});
  for (std::uint64_t b = 0; b < 10; ++b) {
    if (b == 5)
      CHECK_THAT(thrown<SourceError>([&] { prefetcher.next(stream); }),
                 Mentions("batch 5: an exception that is no std::exception"));
    else if (b != 3)
      CHECK(prefetcher.next(stream).ticket().batch == b);
    if (b != 3) continue;
    try {
      prefetcher.next(stream);
      FAIL("nothing was thrown");
    } catch (const SourceError& error) {
      CHECK(error.epoch() == 0);
      CHECK(error.batch() == 3);
      CHECK_THAT(error.what(), Mentions("the DeviceTransform failed at epoch 0, batch 3: sad"));
      CHECK_THROWS_AS(std::rethrow_if_nested(error), std::range_error);
    }
    CHECK(cudaGetLastError() == cudaSuccess);
  }
  CHECK_FALSE(prefetcher.next(stream));
}

TEST_CASE("transform: a launch that fails unseen is an error in the batch's place", "[transform]") {
  const int workers = GENERATE(0, 2);
  const TestStream stream;
  const auto fails_once = [](const Ticket& ticket, const Packed& in, Numbers& out,
                             cudaStream_t copies) {
    if (ticket.batch == 3)  // As a <<<>>> whose configuration is wrong: it tells nobody.
      cudaMemsetAsync(out.sample.data_handle(), 0, std::size_t{1} << 60, copies);
    else
      unpack(ticket, in, out, copies);
  };
  Prefetcher<Numbers, Packed> prefetcher(packed_layout(4), shuffled(40, 4), write_packed,
                                         {numbers_layout(4), fails_once},
                                         {.workers = workers, .epochs = 2});
  for (std::uint64_t b = 0; b < 20; ++b) {
    if (b % 10 != 3) {
      CHECK(prefetcher.next(stream).ticket().batch == b % 10);
      continue;
    }
    try {
      prefetcher.next(stream);
      FAIL("nothing was thrown");
    } catch (const SourceError& error) {
      CHECK(error.epoch() == b / 10);
      CHECK_THAT(error.what(), Mentions("the DeviceTransform failed at epoch") &&
                                   Mentions("batch 3: what the DeviceTransform launched"));
      CHECK_THROWS_AS(std::rethrow_if_nested(error), CudaError);
    }
    CHECK(cudaGetLastError() == cudaSuccess);  // It was reported.
  }
  CHECK_FALSE(prefetcher.next(stream));
}

TEST_CASE("transform: an error of the user's own, not checked yet, harms no batch and stays",
          "[transform]") {
  const TestStream stream;
  std::vector<std::thread::id> ran_on;
  const auto notes = [&](const Ticket& ticket, const Packed& in, Numbers& out,
                         cudaStream_t copies) {
    ran_on.push_back(std::this_thread::get_id());
    unpack(ticket, in, out, copies);
  };
  Prefetcher<Numbers, Packed> prefetcher(packed_layout(4), shuffled(12, 4), write_packed,
                                         {numbers_layout(4), notes},
                                         {.workers = 1, .host_depth = 1, .device_depth = 1});
  auto first = prefetcher.next(stream);
  REQUIRE(eventually([&] {
    const penstock::StageStats source = prefetcher.stats().source;
    // The worker has handed on the second batch, since it waits for room for the third.
    return source.batches == 2 &&
           prefetcher.stats().source.waiting_for_room > source.waiting_for_room;
  }));
  CHECK(cudaSetDevice(-1) == cudaErrorInvalidDevice);
  first.release();  // makes room for the second batch, whose transform runs here
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  const auto second = prefetcher.next(stream);
  CHECK(second);
  REQUIRE(ran_on.size() == 2);
  CHECK(ran_on[1] == std::this_thread::get_id());
}

TEST_CASE("transform: tensors of the batch may not be pointed elsewhere", "[transform]") {
  const TestStream stream;
  const auto steals = [](const Ticket&, const Packed& in, Numbers& out, cudaStream_t) {
    out.sample = in.sample;
  };
  Prefetcher<Numbers, Packed> prefetcher(packed_layout(4), shuffled(8, 4), write_packed,
                                         {numbers_layout(4), steals}, {.workers = 1});
  CHECK_THAT(
      thrown<SourceError>([&] { prefetcher.next(stream); }),
      Mentions("the DeviceTransform failed at epoch 0, batch 0") && Mentions("points elsewhere"));
}

TEST_CASE("transform: the device of the prefetcher is current", "[transform]") {
  int devices = 0;
  REQUIRE_CUDA(cudaGetDeviceCount(&devices));
  if (devices < 2) return;
  const int workers = GENERATE(0, 1);
  REQUIRE_CUDA(cudaSetDevice(1));
  {
    const TestStream stream;
    std::vector<int> current;
    const auto notes = [&](const Ticket& ticket, const Packed& in, Numbers& out,
                           cudaStream_t copies) {
      current.push_back(current_device());
      unpack(ticket, in, out, copies);
    };
    Prefetcher<Numbers, Packed> prefetcher(packed_layout(4), shuffled(40, 4), write_packed,
                                           {numbers_layout(4), notes}, {.workers = workers});
    REQUIRE_CUDA(cudaSetDevice(0));
    while (prefetcher.next(stream)) {
    }
    CHECK(current_device() == 0);
    CHECK(current == std::vector<int>(10, 1));
  }
}

TEST_CASE("transform: a layout without a batch size has the host layout's", "[transform]") {
  const std::int64_t batch_size = GENERATE(1, 4, 7);
  const TestStream stream;
  const auto layout =
      Layout<Numbers>().field(&Numbers::sample, {}).field(&Numbers::payload, {kPayload});
  const DeviceTransform<Packed, Numbers> transform(layout, unpack);
  CHECK(transform.layout().batch_size() == 0);
  const Sampler sampler = shuffled(53, batch_size);
  for (int i = 0; i < 2; ++i) {  // The transform may be used again.
    Prefetcher<Numbers, Packed> prefetcher(packed_layout(batch_size), sampler, write_packed,
                                           transform, {.workers = 2});
    CHECK(prefetcher.stats().device_bytes ==
          2 * numbers_layout(batch_size).bytes() + packed_layout(batch_size).bytes());
    NumbersSink sink(batch_size, sampler.batches());
    while (auto batch = prefetcher.next(stream)) sink.take(batch, stream);
    sink.wait(stream);
    CHECK(sink.all_sample_numbers() == serial_sample_numbers(sampler, 1));
  }
}

TEST_CASE("transform: the batch size is written once", "[transform]") {
  const TestStream stream;
  Prefetcher<Numbers, Packed> prefetcher(
      packed_layout(4), {.samples = 53, .shuffle = true, .seed = 11}, write_packed,
      {Layout<Numbers>().field(&Numbers::sample, {}).field(&Numbers::payload, {kPayload}), unpack},
      {.workers = 1});
  const Sampler sampler = shuffled(53, 4);
  NumbersSink sink(4, sampler.batches());
  while (auto batch = prefetcher.next(stream)) sink.take(batch, stream);
  sink.wait(stream);
  CHECK(sink.all_sample_numbers() == serial_sample_numbers(sampler, 1));
  CHECK(prefetcher.state().batch_size == 4);
}

TEST_CASE("transform: the host layout has to have a batch size", "[transform]") {
  const auto without = Layout<Packed>().field(&Packed::payload, {kPayload});
  const auto check_refusal = [](auto call) {
    CHECK_THAT(thrown<std::invalid_argument>(call),
               Mentions("no batch size, and describes what a source fills") &&
                   Mentions("of a DeviceTransform alone"));
  };
  check_refusal([&] {
    Prefetcher<Numbers, Packed>(without, {.samples = 9}, write_packed, {numbers_layout(4), unpack});
  });
  check_refusal([&] {
    Prefetcher<Numbers, Packed>(without, shuffled(9, 4), write_packed, {numbers_layout(4), unpack});
  });
}

TEST_CASE("transform: bad arguments", "[transform]") {
  CHECK_THROWS_AS((DeviceTransform<Packed, Numbers>(numbers_layout(4), nullptr)),
                  std::invalid_argument);
  CHECK_THAT(thrown<std::invalid_argument>([&] {
               Prefetcher<Numbers, Packed>(packed_layout(4), shuffled(8, 4), write_packed,
                                           {numbers_layout(3), unpack}, {.workers = 1});
             }),
             Mentions("holds 3 samples, and the batches have 4"));
}

TEST_CASE("transform: the memory that batches pass through is counted", "[transform]") {
  Prefetcher<Numbers, Packed> prefetcher(packed_layout(4), shuffled(8, 4), write_packed,
                                         {numbers_layout(4), unpack},
                                         {.workers = 1, .device_depth = 3});
  CHECK(prefetcher.stats().device_bytes ==
        3 * numbers_layout(4).bytes() + packed_layout(4).bytes());
}

}  // namespace
}  // namespace penstock
