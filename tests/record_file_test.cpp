// SPDX-License-Identifier: Apache-2.0

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <penstock/record_file.hpp>
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
#include "support/eventually.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using test::is_record;
using test::Mentions;
using test::TemporaryDirectory;
using test::thrown;

std::string failure(const std::vector<std::filesystem::path>& files, std::size_t bytes) {
  return thrown<RecordFileError>([&] { RecordFile(files, bytes); });
}

static_assert(!std::is_copy_constructible_v<RecordFile> && !std::is_copy_assignable_v<RecordFile>);
static_assert(std::is_nothrow_move_constructible_v<RecordFile>);
static_assert(std::is_base_of_v<std::runtime_error, RecordFileError>);

TEST_CASE("RecordFile numbers records through its files", "[record_file]") {
  const TemporaryDirectory directory;
  const auto a = directory.records("a.bin", 0, 3, 3073);
  const auto b = directory.records("b.bin", 3, 1, 3073);
  const auto c = directory.records("c.bin", 4, 200, 3073);
  const RecordFile records{{a, b, c}, 3073};
  CHECK(records.size() == 204);
  CHECK(records.record_bytes() == 3073);
  for (std::uint64_t i = 0; i < records.size(); ++i) {
    REQUIRE(records[i].size() == 3073);
    CHECK(is_record(records[i], i));
    CHECK(records.at(i).data() == records[i].data());
  }
}

TEST_CASE("RecordFile takes names as they come", "[record_file]") {
  const TemporaryDirectory directory;
  const std::string a = directory.records("a.bin", 7, 2, 5).string();
  CHECK(RecordFile{{a.c_str()}, 5}.size() == 2);
  CHECK(RecordFile{{a.c_str(), a.c_str()}, 5}.size() == 4);  // two names, not a range of characters
  const std::vector<std::filesystem::path> files{a, a, a};
  CHECK(RecordFile(files, 5).size() == 6);
  CHECK(RecordFile(files, 1).size() == 30);
  CHECK(RecordFile(files, 10).size() == 3);
}

TEST_CASE("RecordFile::at rejects records that are not there", "[record_file]") {
  const TemporaryDirectory directory;
  const RecordFile records{{directory.records("a.bin", 0, 3, 8)}, 8};
  CHECK_THAT(thrown<std::out_of_range>([&] { static_cast<void>(records.at(3)); }),
             Mentions("record 3 of 3"));
}

TEST_CASE("RecordFile names the file that it cannot use, and why", "[record_file]") {
  const TemporaryDirectory directory;
  const auto good = directory.records("good.bin", 0, 2, 10);

  SECTION("missing") {
    CHECK_THAT(failure({good, directory / "missing.bin"}, 10),
               Mentions("missing.bin: cannot open") && Mentions("No such file"));
  }
  SECTION("truncated") {
    const auto cut = directory.records("cut.bin", 0, 1, 25);
    CHECK_THAT(failure({good, cut}, 10),
               Mentions("cut.bin: 25 bytes, in records of 10 bytes: 5 bytes are left over"));
  }
  SECTION("shorter than one record") {
    CHECK_THAT(failure({good}, 21),
               Mentions("good.bin: 20 bytes, in records of 21 bytes: 20 bytes"));
  }
  SECTION("empty") {
    const auto empty = directory.records("empty.bin", 0, 0, 10);
    CHECK_THAT(failure({empty, good}, 10), Mentions("empty.bin: 0 bytes") && Mentions("is empty"));
  }
  SECTION("a directory") {
    CHECK_THAT(failure({directory / ""}, 10), Mentions("not a regular file"));
  }
  SECTION("a pipe, which nobody writes") {
    const auto pipe = directory / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK_THAT(failure({pipe}, 10), Mentions("pipe: not a regular file"));
  }
  SECTION("unreadable") {
    REQUIRE(::chmod(good.c_str(), 0) == 0);
    if (::geteuid() != 0)  // Root may read everything.
      CHECK_THAT(failure({good}, 10), Mentions("good.bin: cannot open") && Mentions("Permission"));
  }
  SECTION("the error has the path") {
    try {
      RecordFile({directory / "missing.bin"}, 10);
      FAIL("nothing was thrown");
    } catch (const RecordFileError& error) {
      CHECK(error.file() == directory / "missing.bin");
    }
  }
}

TEST_CASE("RecordFile rejects no files and no bytes", "[record_file]") {
  CHECK_THAT(thrown<std::invalid_argument>([] { RecordFile({}, 10); }), Mentions("list of files"));
  CHECK_THAT(thrown<std::invalid_argument>([] { RecordFile({"a.bin"}, 0); }),
             Mentions("record_bytes is 0"));
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

TEST_CASE("RecordFile keeps no file descriptor, whether it succeeds or fails", "[record_file]") {
  const TemporaryDirectory directory;
  const auto good = directory.records("good.bin", 0, 2, 10);
  const std::size_t before = open_descriptors();
  const RecordFile records{{good, good}, 10};
  CHECK(open_descriptors() == before);
  failure({good, directory / ""}, 10);
  failure({good}, 7);
  CHECK(open_descriptors() == before);
  std::filesystem::remove(good);  // What is mapped stays.
  CHECK(is_record(records[3], 1));
}

/// How often `file` is mapped into this process.
std::size_t mappings(const std::filesystem::path& file) {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    if (line.find(file.string()) != std::string::npos) ++count;
  return count;
}

TEST_CASE("RecordFile may be moved; spans stay valid and the moved-from one is empty",
          "[record_file]") {
  const TemporaryDirectory directory;
  const auto a = directory.records("a.bin", 40, 2, 10000);
  const auto b = directory.records("b.bin", 1, 3, 5000);
  {
    RecordFile first{{a}, 10000};
    const std::span<const std::byte> record = first[1];
    RecordFile second{std::move(first)};
    CHECK(first.size() == 0);
    CHECK(second.size() == 2);
    CHECK(is_record(record, 41));

    RecordFile third{{b}, 5000};
    CHECK(mappings(b) == 1);
    third = std::move(second);
    CHECK(mappings(b) == 0);
    CHECK(mappings(a) == 1);
    CHECK(third.size() == 2);
    CHECK(third.record_bytes() == 10000);
    CHECK(third[1].data() == record.data());
    CHECK(is_record(record, 41));
  }
  CHECK(mappings(a) == 0);
}

TEST_CASE("RecordFile may be read by many threads, without allocating", "[record_file]") {
  const TemporaryDirectory directory;
  const auto a = directory.records("a.bin", 0, 300, 100);
  const auto b = directory.records("b.bin", 300, 300, 100);
  const RecordFile records{{a, b}, 100};
  std::vector<std::uint64_t> wrong(4), allocated(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const std::uint64_t before = test::allocations_of_this_thread();
      for (std::uint64_t i = 0; i < records.size(); ++i)
        wrong[t] += is_record(records[i], i) ? 0u : 1u;
      allocated[t] = test::allocations_of_this_thread() - before;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<std::uint64_t>(4, 0));
  CHECK(allocated == std::vector<std::uint64_t>(4, 0));
}

TEST_CASE("files are opened and closed on many threads at once", "[record_file]") {
  const TemporaryDirectory directory;
  const auto path = directory.records("a.bin", 0, 30, 100);
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < 30; ++i) {
        const RecordFile records{{path}, 100};
        wrong += is_record(records[i], i) ? 0u : 1u;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

/// How many pages of `file` the page cache holds.
std::size_t resident_pages(const RecordFile& records) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t pages = (records.size() * records.record_bytes() + page - 1) / page;
  std::vector<unsigned char> resident(pages);
  REQUIRE(::mincore(const_cast<std::byte*>(records[0].data()), pages * page, resident.data()) == 0);
  std::size_t count = 0;
  for (const unsigned char flags : resident) count += flags & 1u;
  return count;
}

TEST_CASE("RecordFile::prefetch reads what is asked for, and changes nothing", "[record_file]") {
  const TemporaryDirectory directory;
  const auto path = directory.records("a.bin", 0, 64, 16384);
  const int file = ::open(path.c_str(), O_RDONLY);
  ::fdatasync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);  // out of the page cache, where there is a disk
  ::close(file);

  const RecordFile records{{path, directory.records("b.bin", 64, 2, 16384)}, 16384};
  const RecordFile alone{{path}, 16384};
  const std::size_t cold = resident_pages(alone);
  const std::vector<std::uint64_t> wanted{3, 40, 41, 42, 65, 64, 0, 63, 63};
  records.prefetch(wanted);
  records.prefetch({});
  if (cold == 0) CHECK(test::eventually([&] { return resident_pages(alone) >= 6 * 4; }));
  for (const std::uint64_t i : wanted) CHECK(is_record(records[i], i));
}

TEST_CASE("RecordFile and Sampler fit together as a program writes them", "[record_file]") {
  const TemporaryDirectory directory;
  const RecordFile records{{directory.records("a.bin", 0, 100, 10)}, 10};
  const Sampler sampler{{.samples = records.size(), .batch_size = 8, .shuffle = true, .seed = 7}};
  std::vector<std::uint64_t> samples;
  sampler.samples(0, 3, samples);
  for (const std::uint64_t sample : samples) CHECK(is_record(records[sample], sample));
}

}  // namespace
}  // namespace penstock
