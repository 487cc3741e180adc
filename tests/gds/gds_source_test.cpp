// SPDX-License-Identifier: Apache-2.0

#include <penstock/gds/gds_source.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <penstock/npy_file.hpp>
#include <penstock/packed_file.hpp>
#include <penstock/packed_file_writer.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/record_file.hpp>
#include <span>
#include <string>
#include <vector>

#include "cufile_machine.hpp"
#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::gds {
namespace {

using namespace penstock::test;

constexpr std::int64_t kBatch = 16;

struct RecordRows {
  Tensor<std::uint8_t, 2> bytes;
};

Layout<RecordRows> rows_of(std::int64_t record_bytes) {
  return Layout<RecordRows>{kBatch}.field(&RecordRows::bytes, {record_bytes});
}

/// Reads all batches, each on the stream of the consumer, and checks every byte. Returns how many
/// samples there were.
std::size_t check_all(Prefetcher<RecordRows>& prefetcher) {
  const TestStream stream;
  std::size_t samples = 0;
  while (const auto batch = prefetcher.next(stream)) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(batch->bytes.size()));
    REQUIRE_CUDA(cudaMemcpyAsync(bytes.data(), batch->bytes.data_handle(), bytes.size(),
                                 cudaMemcpyDeviceToHost, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    const std::size_t row_bytes = bytes.size() / batch.ticket().samples.size();
    for (std::size_t row = 0; row < batch.ticket().samples.size(); ++row, ++samples)
      REQUIRE(is_record(std::span(bytes).subspan(row * row_bytes, row_bytes),
                        batch.ticket().samples[row]));
  }
  return samples;
}

TEST_CASE("gds_source fills rows with records of several files", "[gds]") {
  CufileMachine machine;
  const bool is_direct = GENERATE(true, false);
  machine.settings.has_module = is_direct;
  const TemporaryDirectory directory;
  const RecordFile store(
      {directory.records("a.bin", 0, 100, 700), directory.records("b.bin", 100, 59, 700)}, 700);
  for (const bool shuffle : {false, true}) {
    Prefetcher<RecordRows> prefetcher{
        rows_of(700),
        {.samples = store.size(), .batch_size = kBatch, .shuffle = shuffle},
        gds_source(store, &RecordRows::bytes,
                   {.file = emulated_library(true), .reader = {.depth = 5}}),
        {.workers = 3, .device_depth = 2, .epochs = 3}};
    CHECK(check_all(prefetcher) == 3 * 159);
  }
  CHECK((machine.counts.reads == 0) == is_direct);  // All are in batches, or none is.
}

TEST_CASE("gds_source joins neighbours", "[gds]") {
  const CufileMachine machine;
  const TemporaryDirectory directory;
  const RecordFile store({directory.records("a.bin", 0, 160, 64)}, 64);
  Prefetcher<RecordRows> prefetcher{
      rows_of(64),
      {.samples = store.size(), .batch_size = kBatch},
      gds_source(store, &RecordRows::bytes,
                 {.file = emulated_library(), .reader = {.use_batches = false}}),
      {.workers = 1}};
  CHECK(check_all(prefetcher) == 160);
  CHECK(machine.counts.reads == 10);  // one for each batch
}

TEST_CASE("gds_source reads records of a pack, without their checksums", "[gds]") {
  const CufileMachine machine;
  const TemporaryDirectory directory;
  {
    PackedFileWriter writer(directory / "a.pack");
    for (std::uint64_t i = 0; i < 50; ++i)
      writer.append(std::vector<std::byte>(333, record_byte(i)));
    writer.finish();
  }
  Prefetcher<RecordRows> prefetcher{rows_of(333),
                                    {.samples = 50, .batch_size = kBatch, .shuffle = true},
                                    gds_source(PackedFile(directory / "a.pack"), &RecordRows::bytes,
                                               {.file = emulated_library()}),
                                    {.workers = 2}};
  CHECK(check_all(prefetcher) == 50);
}

TEST_CASE("gds_source has to be allowed the compatibility mode", "[gds]") {
  CufileMachine machine;
  machine.settings.has_module = false;
  const TemporaryDirectory directory;
  const RecordFile store({directory.records("a.bin", 0, 16, 64)}, 64);
  CHECK_THAT(thrown<GdsError>(
                 [&] { gds_source(store, &RecordRows::bytes, {.file = emulated_library()}); }),
             Mentions("GdsOptions::allow_compatibility_mode"));
}

/// The text of the StoreError within the SourceError of the next batch.
std::string next_failure(Prefetcher<RecordRows>& prefetcher, std::uint64_t sample) {
  const TestStream stream;
  try {
    prefetcher.next(stream);
  } catch (const SourceError& error) {
    try {
      std::rethrow_if_nested(error);
    } catch (const StoreError& nested) {
      CHECK(nested.sample() == sample);
      return nested.what();
    }
  }
  return "(nothing was thrown)";
}

TEST_CASE("gds_source: an error names the sample, the file and the place", "[gds]") {
  CufileMachine machine;
  const TemporaryDirectory directory;
  const RecordFile store({directory.records("a.bin", 0, 64, 100)}, 100);
  const auto prefetcher = [&](std::int64_t row_bytes) {
    return Prefetcher<RecordRows>{
        rows_of(row_bytes),
        {.samples = store.size(), .batch_size = kBatch},
        gds_source(store, &RecordRows::bytes, {.file = emulated_library()}),
        {.workers = 1, .device_depth = 1}};
  };
  {
    machine.settings.bad_byte = 520;
    auto failing = prefetcher(100);
    const std::string what = next_failure(failing, 0);  // all 16 are one read
    CHECK_THAT(what, Mentions("a.bin"));
    CHECK_THAT(what, Mentions("is lost: "));
    CHECK_THAT(what, Mentions("cuFile cannot read 1600 bytes at byte 0: Input/output error"));
  }
  machine.settings = {};
  {
    auto another = prefetcher(101);
    CHECK_THAT(next_failure(another, 0),
               Mentions("sample 0 has 100 bytes, and a row of the batch 101"));
  }
  {
    std::filesystem::resize_file(directory / "a.bin", 550);
    auto cut = prefetcher(100);
    CHECK_THAT(next_failure(cut, 5), Mentions("sample 5 is lost: the file ends at byte 550, and "
                                              "had 6400 bytes when it was opened"));
  }
}

}  // namespace
}  // namespace penstock::gds
