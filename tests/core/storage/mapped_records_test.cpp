// SPDX-License-Identifier: Apache-2.0

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <penstock/mapped_records.hpp>
#include <penstock/read_ahead.hpp>
#include <penstock/sampler.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/numbered_rows.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using test::Mentions;
using test::numbered_rows;
using test::rows_of;
using test::TemporaryDirectory;
using test::thrown;

static_assert(std::is_nothrow_copy_constructible_v<MappedRecords>);

std::uint64_t row(std::span<const std::byte> bytes) {
  return rows_of(bytes, bytes.size()).at(0);
}

TEST_CASE("MappedRecords has the records of all files, without copying them", "[mapped_records]") {
  const TemporaryDirectory directory;
  const std::size_t bytes = GENERATE(8u, 100u, 4096u);
  const auto a = numbered_rows(directory / "a.bin", 0, 700, bytes);
  const auto b = numbered_rows(directory / "b.bin", 700, 1, bytes);
  const auto c = numbered_rows(directory / "c.bin", 701, 50, bytes);
  const RecordFile records{{a, b, c}, bytes};
  const MappedRecords rows(records);
  CHECK(rows.size() == 751);
  CHECK(rows.record_bytes() == bytes);
  std::size_t wrong = 0;
  for (std::uint64_t i = 0; i < rows.size(); ++i) wrong += row(rows[i]) != i ? 1 : 0;
  CHECK(wrong == 0);
  CHECK(rows[0].size() == bytes);
  CHECK(rows[699].data() == rows[0].data() + 699 * bytes);
  CHECK(rows.name(702) == c.string() + ", record 1");

  std::vector<std::byte> scratch;
  CHECK(rows.read(701, scratch).data() == rows[701].data());
  CHECK(scratch.empty());
  rows.will_need(std::vector<std::uint64_t>{3, 4, 750, 751});
  CHECK(read_ahead(rows, 2).batches == 2);
}

TEST_CASE("MappedRecords::read_many copies any records, in the order of their indices",
          "[mapped_records]") {
  const TemporaryDirectory directory;
  const std::size_t bytes = GENERATE(8u, 16u, 24u, 32u, 64u);
  std::vector<std::filesystem::path> files{numbered_rows(directory / "a.bin", 0, 600, bytes)};
  if (GENERATE(false, true))
    files = {numbered_rows(directory / "a.bin", 0, 300, bytes),
             numbered_rows(directory / "b.bin", 300, 300, bytes)};
  const RecordFile records{files, bytes};
  const MappedRecords rows(records);
  const Sampler sampler{{.samples = 600, .batch_size = 600, .shuffle = true, .seed = 5}};
  std::vector<std::uint64_t> samples;
  sampler.samples(0, 0, samples);
  samples.insert(samples.end(), {0, 0, 599, 599});
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{32}, std::size_t{33}, samples.size()}) {
    const auto some = std::span(samples).last(count);
    std::vector<std::byte> target(count * bytes);
    const std::uint64_t before = test::allocations_of_this_thread();
    rows.read_many(some, target);
    CHECK(test::allocations_of_this_thread() == before);
    CHECK(rows_of(target, bytes) == std::vector<std::uint64_t>(some.begin(), some.end()));
  }
}

TEST_CASE("MappedRecords::read_many copies records of four bytes", "[mapped_records]") {
  const TemporaryDirectory directory;
  const auto file = numbered_rows(directory / "a.bin", 0, 100, 8);
  const MappedRecords halves(RecordFile{{file}, 4});  // of the numbers
  const std::vector<std::uint64_t> some{198, 199, 0, 2};
  std::vector<std::uint32_t> read(some.size());
  halves.read_many(some, std::as_writable_bytes(std::span(read)));
  CHECK(read == std::vector<std::uint32_t>{99, 0, 0, 1});
}

TEST_CASE("MappedRecords rejects records that are not there, and targets of another size",
          "[mapped_records]") {
  const TemporaryDirectory directory;
  const MappedRecords rows(RecordFile{{numbered_rows(directory / "a.bin", 0, 3, 8)}, 8});
  const auto complaint = Mentions("there is no record 3, but 3, numbered from 0");
  std::vector<std::byte> scratch, target(16, std::byte{7});
  const std::vector<std::uint64_t> beyond{0, 3};
  CHECK_THAT(thrown<std::out_of_range>([&] { static_cast<void>(rows[3]); }), complaint);
  CHECK_THAT(thrown<std::out_of_range>([&] { rows.read(3, scratch); }), complaint);
  CHECK_THAT(thrown<std::out_of_range>([&] { rows.name(3); }), complaint);
  CHECK_THAT(thrown<std::out_of_range>([&] { rows.read_many(beyond, target); }), complaint);
  CHECK(target == std::vector<std::byte>(16, std::byte{7}));
  target.pop_back();
  CHECK_THAT(thrown<std::invalid_argument>([&] { rows.read_many(beyond, target); }),
             Mentions("MappedRecords::read_many: a target of 15 bytes for 2 records of 8"));
}

std::size_t mappings_of(const char* name) {
  std::size_t count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    count += line.find(name) != std::string::npos ? 1 : 0;
  return count;
}

TEST_CASE("MappedRecords shares its mappings with its copies, and the last one ends them",
          "[mapped_records]") {
  const TemporaryDirectory directory;
  const auto path = numbered_rows(directory / "mapped-once.bin", 0, 10, 8);
  {
    std::optional<MappedRecords> rows(std::in_place, RecordFile{{path}, 8});
    CHECK(mappings_of("mapped-once.bin") == 1);
    const MappedRecords copy = *rows;
    const MappedRecords moved = std::move(*rows);
    const auto nine = copy[9];
    CHECK(row((*rows)[9]) == 9);  // NOLINT(bugprone-use-after-move): as it was
    rows.reset();
    std::filesystem::remove(path);
    CHECK(mappings_of("mapped-once.bin") == 1);
    CHECK(row(nine) == 9);
    CHECK(row(moved[8]) == 8);
  }
  CHECK(mappings_of("mapped-once.bin") == 0);
}

TEST_CASE("MappedRecords names the file that it cannot map, and why", "[mapped_records]") {
  const TemporaryDirectory directory;
  const auto a = numbered_rows(directory / "a.bin", 0, 1000, 16);
  const auto b = numbered_rows(directory / "b.bin", 1000, 1000, 16);
  const RecordFile records{{a, b}, 16};
  SECTION("cut before it is mapped") {
    std::filesystem::resize_file(b, 16);
    CHECK_THAT(thrown<StoreError>([&] { MappedRecords rows(records); }),
               Mentions("MappedRecords: ") && Mentions("b.bin: the file has 16 bytes, and had "
                                                       "16000 when it was opened"));
  }
  CHECK(mappings_of("/a.bin") == 0);
}

TEST_CASE("MappedRecords may be read by many threads", "[mapped_records]") {
  const TemporaryDirectory directory;
  const MappedRecords rows(RecordFile{{numbered_rows(directory / "a.bin", 0, 5000, 16)}, 16});
  std::vector<std::uint64_t> wrong(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < rows.size(); ++i) wrong[t] += row(rows[i]) != i ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<std::uint64_t>(4, 0));
}

TEST_CASE("of a mapped file that is cut, an access to a lost record ends the process with SIGBUS",
          "[mapped_records]") {
  const TemporaryDirectory directory;
  const auto path = numbered_rows(directory / "a.bin", 0, 10, 4096);
  const MappedRecords rows(RecordFile{{path}, 4096});
  std::filesystem::resize_file(path, 4096);
  const ::pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGBUS, SIG_DFL);  // A sanitizer has a handler of its own.
    const ::rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    const bool first_is_there = row(rows[0]) == 0;
    if (!first_is_there) ::_exit(1);
    const volatile std::byte lost = rows[5][0];
    static_cast<void>(lost);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGBUS);
}

}  // namespace
}  // namespace penstock
