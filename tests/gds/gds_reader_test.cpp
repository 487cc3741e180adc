// SPDX-License-Identifier: Apache-2.0

#include <penstock/gds/gds_reader.hpp>

#include <cstddef>
#include <filesystem>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cufile_machine.hpp"
#include "support/catch.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::gds {
namespace {

using namespace penstock::test;

static_assert(std::is_nothrow_move_constructible_v<GdsReader>);
static_assert(!std::is_copy_constructible_v<GdsReader>);

constexpr std::size_t kRow = 1000, kRows = 300;

/// Rows of a file in any order, with memory for them.
struct RowsOfFile {
  RowsOfFile() : order(kRows) {
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937_64(3));
    for (std::size_t k = 0; k < kRows; ++k)
      requests.push_back({&file, order[k] * kRow, memory.data() + k * kRow, kRow});
  }
  std::string expected() const {
    std::string bytes;
    for (const std::size_t row : order) bytes += random.bytes.substr(row * kRow, kRow);
    return bytes;
  }

  RandomFile random{kRow * kRows};
  GdsFile file{File::open(random.path), emulated_library(true)};
  DeviceMemory<char> memory{kRow * kRows};
  std::vector<std::size_t> order;
  std::vector<GdsRequest> requests;
};

/// Reads all, and checks that each has one outcome.
std::vector<GdsOutcome> read_all(GdsReader& reader, const std::vector<GdsRequest>& requests) {
  std::vector<GdsOutcome> outcomes(requests.size());
  std::vector<int> calls(requests.size());
  reader.read(requests, [&](const GdsOutcome& outcome) {
    outcomes.at(outcome.request) = outcome;
    ++calls[outcome.request];
  });
  for (const int count : calls) REQUIRE(count == 1);
  return outcomes;
}
bool are_whole(const std::vector<GdsOutcome>& outcomes) {
  for (const GdsOutcome& outcome : outcomes)
    if (outcome.error || outcome.bytes != kRow) return false;
  return true;
}

TEST_CASE("GdsReader reads rows in any order, in batches", "[gds]") {
  CufileMachine machine;
  machine.settings.most_in_batch = GENERATE(128u, 7u);
  const RowsOfFile rows;
  GdsReader reader({.depth = 64});
  for (int turn = 0; turn < 2; ++turn) {
    CHECK(are_whole(read_all(reader, rows.requests)));
    CHECK((text_of(rows.memory) == rows.expected()));
  }
  CHECK(reader.why_no_batches().empty());
  const GdsReaderStats stats = reader.stats();
  CHECK(stats.requests == 2 * kRows);
  CHECK(stats.bytes == 2 * kRows * kRow);
  CHECK(stats.batches == (machine.settings.most_in_batch == 128 ? 2 * 5 : 2 * 43));
  CHECK(stats.alone == 0);
  CHECK(stats.compatible == 0);
  CHECK(machine.counts.reads == 0);
}

TEST_CASE("GdsReader counts what is read in the compatibility mode", "[gds]") {
  CufileMachine machine;
  machine.settings.has_module = false;
  const RowsOfFile rows;
  GdsReader reader;
  CHECK(are_whole(read_all(reader, rows.requests)));
  CHECK(reader.stats().compatible == kRows);
}

TEST_CASE("GdsReader reads one by one where cuFile refuses batches", "[gds]") {
  CufileMachine machine;
  const RowsOfFile rows;
  const bool use_batches = GENERATE(true, false);
  if (use_batches) machine.settings.batch_error = 5049;
  GdsReader reader({.use_batches = use_batches});
  CHECK(are_whole(read_all(reader, rows.requests)));
  CHECK((text_of(rows.memory) == rows.expected()));
  CHECK_THAT(reader.why_no_batches(),
             Mentions(use_batches ? "cuFileBatchIOSetUp: error 5049" : "use_batches is false"));
  CHECK(reader.stats().alone == kRows);
  CHECK(reader.stats().batches == 0);
}

TEST_CASE("GdsReader: a batch that fails as a whole is read one by one", "[gds]") {
  CufileMachine machine;
  const RowsOfFile rows;
  GdsReader reader;
  CHECK(are_whole(read_all(reader, rows.requests)));
  const bool is_status = GENERATE(true, false);
  (is_status ? machine.settings.status_error : machine.settings.submit_error) = 5040;
  CHECK(are_whole(read_all(reader, rows.requests)));
  CHECK((text_of(rows.memory) == rows.expected()));
  CHECK(machine.counts.in_flight == 0);
  CHECK(machine.counts.batches == 0);
  CHECK(machine.counts.cancelled == 1);
  CHECK_THAT(reader.why_no_batches(),
             Mentions(is_status ? "cuFileBatchIOGetStatus: error 5040" : "cuFileBatchIOSubmit"));
  CHECK(reader.stats().alone == kRows);
}

TEST_CASE("GdsReader: an error is one of its own request", "[gds]") {
  CufileMachine machine;
  const RowsOfFile rows;
  GdsReader reader({.use_batches = GENERATE(true, false)});
  machine.settings.bad_byte = 40 * kRow + 7;
  machine.settings.read_error = GENERATE(5, 5030);
  const std::vector<GdsOutcome> outcomes = read_all(reader, rows.requests);
  for (std::size_t k = 0; k < kRows; ++k) {
    CHECK((outcomes[k].error != nullptr) == (rows.order[k] == 40));
    if (outcomes[k].error)
      CHECK_THAT(thrown<GdsError>([&] { std::rethrow_exception(outcomes[k].error); }),
                 Mentions("random.bin: cuFile cannot read 1000 bytes at byte 40000"));
    else
      CHECK(outcomes[k].bytes == kRow);
  }
}

TEST_CASE("GdsReader continues short reads, and finds the end of the file", "[gds]") {
  CufileMachine machine;
  const RowsOfFile rows;
  GdsReader reader;
  machine.settings.most_bytes = 600;
  CHECK(are_whole(read_all(reader, rows.requests)));
  CHECK((text_of(rows.memory) == rows.expected()));
  machine.settings.most_bytes = SIZE_MAX;
  const DeviceMemory<char> memory(3000);
  const std::vector<GdsRequest> at_end{{&rows.file, kRow * kRows - 10, memory.data(), 1000},
                                       {&rows.file, kRow * kRows, memory.data() + 1000, 1000},
                                       {&rows.file, 1, nullptr, 0}};
  const std::vector<GdsOutcome> outcomes = read_all(reader, at_end);
  CHECK(outcomes[0].bytes == 10);
  CHECK(outcomes[1].bytes == 0);
  CHECK(outcomes[2].bytes == 0);
  std::filesystem::resize_file(rows.random.path, kRow * 10 + 500);
  const std::vector<GdsOutcome> cut = read_all(reader, rows.requests);
  for (std::size_t k = 0; k < kRows; ++k) {
    CHECK_FALSE(cut[k].error);
    CHECK(cut[k].bytes == (rows.order[k] < 10 ? kRow : rows.order[k] == 10 ? 500u : 0u));
  }
}

TEST_CASE("GdsReader: after an exception nothing is in flight", "[gds]") {
  CufileMachine machine;
  machine.settings.is_slow = true;
  const RowsOfFile rows;
  GdsReader reader({.depth = 16});
  int calls = 0;
  CHECK_THROWS_AS(reader.read(rows.requests,
                              [&](const GdsOutcome&) {
                                if (++calls == 3) throw std::length_error("enough");
                              }),
                  std::length_error);
  CHECK(machine.counts.in_flight == 0);
  machine.settings.is_slow = false;
  CHECK(are_whole(read_all(reader, rows.requests)));
}

TEST_CASE("GdsReader: what cannot be asked for", "[gds]") {
  const CufileMachine machine;
  CHECK_THROWS_AS(GdsReader({.depth = 0}), std::invalid_argument);
  CHECK_THAT(thrown<std::invalid_argument>([] { GdsReader({.depth = 4097}); }),
             Mentions("set GdsReaderOptions::depth to 1 to 4096"));
  const RowsOfFile rows;
  GdsReader reader;
  std::vector<GdsRequest> requests(2, rows.requests[0]);
  requests[1].file = nullptr;
  CHECK_THAT(
      thrown<std::invalid_argument>([&] { reader.read(requests, [](const GdsOutcome&) {}); }),
      Mentions("request 1 has no file"));
  CHECK(reader.stats().requests == 0);
  CHECK_THAT(thrown<std::logic_error>([&] {
               reader.read(rows.requests, [&](const GdsOutcome&) {
                 reader.read(rows.requests, [](const GdsOutcome&) {});
               });
             }),
             Mentions("called while it reads"));
  GdsReader moved = std::move(reader);
  CHECK(are_whole(read_all(moved, rows.requests)));
}

}  // namespace
}  // namespace penstock::gds
