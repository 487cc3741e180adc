// SPDX-License-Identifier: Apache-2.0

// Files that are cut short while a pipeline reads them: a batch is whole, or a SourceError at its
// place that names file and record.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <penstock/prefetcher.hpp>
#include <penstock/record_file.hpp>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using test::is_record;
using test::Mentions;
using test::TemporaryDirectory;
using test::TestStream;

struct Bytes {
  Tensor<std::uint64_t, 1> sample;
  Tensor<std::byte, 2> record;
};

struct Outcome {
  std::vector<std::uint64_t> delivered, failed;  // batches
  std::uint64_t torn = 0;                        // samples whose bytes are not their record's
  std::string last_error;
};

/// Runs one epoch in order. Leases are looked at on the device, by way of a copy to the host.
Outcome run(Prefetcher<Bytes>& prefetcher, std::uint64_t batches) {
  const TestStream stream;
  Outcome outcome;
  for (std::uint64_t i = 0; i < batches; ++i) {
    try {
      const auto batch = prefetcher.next(stream);
      REQUIRE(batch);
      const auto bytes = static_cast<std::size_t>(batch->record.extent(1));
      for (std::int64_t row = 0; row < batch->record.extent(0); ++row) {
        std::vector<std::byte> record(bytes);
        REQUIRE_CUDA(cudaMemcpyAsync(record.data(), &batch->record(row, 0), bytes,
                                     cudaMemcpyDeviceToHost, stream));
        REQUIRE_CUDA(cudaStreamSynchronize(stream));
        outcome.torn +=
            is_record(record, batch.ticket().samples[static_cast<std::size_t>(row)]) ? 0 : 1;
      }
      outcome.delivered.push_back(batch.ticket().batch);
    } catch (const SourceError& error) {
      outcome.failed.push_back(error.batch());
      outcome.last_error = error.what();
      CHECK_THROWS_AS(std::rethrow_if_nested(error), StoreError);
    }
  }
  return outcome;
}

Layout<Bytes> layout_of(std::int64_t batch_size, std::size_t record_bytes) {
  return Layout<Bytes>{batch_size}
      .field(&Bytes::sample, {})
      .field(&Bytes::record, {static_cast<std::int64_t>(record_bytes)});
}

void read_record(const RecordFile& records, std::uint64_t index, Bytes& batch, std::size_t row) {
  records.read_into(index,
                    {&batch.record(static_cast<std::int64_t>(row), 0), records.record_bytes()});
}

TEST_CASE("cut short under a running pipeline: an error at the batch, with file and record",
          "[damaged_file]") {
  const int workers = GENERATE(0, 1);
  const bool within_batch = GENERATE(false, true);
  const std::size_t cut = GENERATE(24'000u, 25'499u);  // of 40'000; before or within record 25
  constexpr std::size_t kBytes = 1000;
  const TemporaryDirectory directory;
  const auto path = directory.records("a.bin", 0, 40, kBytes);
  const RecordFile records{{path}, kBytes};
  const auto source = [&](const Ticket& ticket, Bytes& batch) {
    for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
      if (ticket.batch == 6 && i == (within_batch ? 1 : 0)) fs::resize_file(path, cut);
      read_record(records, ticket.samples[i], batch, i);
    }
  };
  Prefetcher<Bytes> prefetcher(layout_of(4, kBytes), Sampler{{.samples = 40, .batch_size = 4}},
                               source, {.workers = workers});
  const Outcome outcome = run(prefetcher, 10);
  CHECK(outcome.torn == 0);
  CHECK(outcome.delivered == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5});
  CHECK(outcome.failed == std::vector<std::uint64_t>{6, 7, 8, 9});
  CHECK_THAT(outcome.last_error,
             Mentions("source failed at epoch 0, batch 9") && Mentions("a.bin: record 36") &&
                 Mentions("has " + std::to_string(cut) + " bytes, and had 40000"));
}

TEST_CASE("cut short at any moment: a batch is whole, or an error", "[damaged_file]") {
  constexpr std::size_t kBytes = 700, kRecords = 4000, kBatch = 8, kPage = 4096;
  std::mt19937_64 random(5);
  for (int round = 0; round < 10; ++round) {
    const TemporaryDirectory directory;
    const auto path = directory.records("a.bin", 0, kRecords, kBytes);
    const RecordFile records{{path}, kBytes};
    std::atomic<std::uint64_t> begun{0};
    const auto source = [&](const Ticket& ticket, Bytes& batch) {
      ++begun;
      for (std::size_t i = 0; i < ticket.samples.size(); ++i)
        read_record(records, ticket.samples[i], batch, i);
    };
    const Sampler sampler{{.samples = kRecords, .batch_size = kBatch, .shuffle = true, .seed = 3}};
    Prefetcher<Bytes> prefetcher(layout_of(kBatch, kBytes), sampler, source, {.workers = 3});
    const std::uint64_t moment = random() % (kRecords / kBatch);
    // The rest of a page that is cut reads as zeros for a moment, before the file is shorter: not
    // ours to see.
    const std::size_t cut = random() % (kRecords * kBytes / kPage) * kPage;
    std::thread cutter([&] {
      while (begun < moment) std::this_thread::yield();
      fs::resize_file(path, cut);
    });
    const Outcome outcome = run(prefetcher, kRecords / kBatch);
    cutter.join();
    CHECK(outcome.torn == 0);
    CHECK(outcome.delivered.size() + outcome.failed.size() == kRecords / kBatch);
    std::vector<std::uint64_t> samples;
    for (const std::uint64_t batch : outcome.failed) {
      sampler.samples(0, batch, samples);
      CHECK(std::any_of(samples.begin(), samples.end(),
                        [&](std::uint64_t sample) { return (sample + 1) * kBytes > cut; }));
    }
  }
}

}  // namespace
}  // namespace penstock
