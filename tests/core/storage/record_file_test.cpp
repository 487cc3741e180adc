// SPDX-License-Identifier: Apache-2.0

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <penstock/detail/observe/thread_usage.hpp>
#include <penstock/record_file.hpp>
#include <penstock/sampler.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/numbered_rows.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using test::is_record;
using test::Mentions;
using test::numbered_rows;
using test::rows_of;
using test::TemporaryDirectory;
using test::thrown;

std::string failure(const std::vector<std::filesystem::path>& files, std::size_t bytes) {
  return thrown<StoreError>([&] { RecordFile(files, bytes); });
}

static_assert(std::is_nothrow_copy_constructible_v<RecordFile>);
static_assert(std::is_nothrow_move_constructible_v<RecordFile>);
static_assert(std::is_base_of_v<std::runtime_error, StoreError>);

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

TEST_CASE("RecordFile reads into scratch memory, straight into a batch, or memory of its own",
          "[record_file]") {
  const TemporaryDirectory directory;
  const RecordFile records{{directory.records("a.bin", 0, 3, 8)}, 8};
  std::vector<std::byte> scratch(100);
  const std::span<const std::byte> read = records.read(1, scratch);
  CHECK(read.data() == scratch.data());
  CHECK(read.size() == 8);
  CHECK(is_record(read, 1));

  std::vector<std::byte> batch(3 * 8);
  for (std::uint64_t i = 0; i < 3; ++i)
    records.read_into(2 - i, std::span(batch).subspan(8 * i, 8));
  for (std::uint64_t i = 0; i < 3; ++i) CHECK(is_record(std::span(batch).subspan(8 * i, 8), 2 - i));

  auto own = records[0], other = records[1];
  CHECK(is_record(own, 0));
  own = std::move(other);
  CHECK(is_record(own, 1));
}

TEST_CASE("RecordFile rejects records that are not there, and targets of another size",
          "[record_file]") {
  const TemporaryDirectory directory;
  const RecordFile records{{directory.records("a.bin", 0, 3, 8)}, 8};
  const auto complaint = Mentions("there is no record 3, but 3, numbered from 0");
  std::vector<std::byte> memory(8);
  const std::span<std::byte> target = memory;
  CHECK_THAT(thrown<std::out_of_range>([&] { static_cast<void>(records[records.size()]); }),
             complaint);
  CHECK_THAT(thrown<std::out_of_range>([&] { records.read(3, memory); }), complaint);
  CHECK_THAT(thrown<std::out_of_range>([&] { records.read_into(3, target); }), complaint);
  CHECK_THAT(thrown<std::out_of_range>([&] { records.name(3); }), complaint);
  CHECK_THAT(thrown<std::invalid_argument>([&] { records.read_into(2, target.first(7)); }),
             Mentions("a target of 7 bytes for a record of 8"));
}

TEST_CASE("RecordFile names records by their file and their number in it", "[record_file]") {
  const TemporaryDirectory directory;
  const auto a = directory.records("a.bin", 0, 2, 10);
  const auto b = directory.records("b.bin", 2, 2, 10);
  const RecordFile records{{a, b}, 10};
  CHECK(records.name(1) == a.string() + ", record 1");
  CHECK(records.name(3) == b.string() + ", record 1");
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
  SECTION("another kind of file") {
    const auto failure_of = [&](std::string_view bytes) {
      std::ofstream(directory / "other.bin", std::ios::binary) << bytes;
      return failure({directory / "other.bin"}, 10);
    };
    CHECK_THAT(
        failure_of("\x1F\x8B\x08 some gzip"),
        Mentions("3 bytes are left over. It is compressed with gzip: decompress it (gunzip)"));
    CHECK_THAT(failure_of("<html>404</html>."), Mentions("left over. It is a page in HTML or XML"));
    CHECK(failure_of("\x1F\x8B\x08 whole.") == "(nothing was thrown)");  // may be a record
    const std::string pointer =
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
    CHECK_THAT(failure_of(pointer), Mentions("left over. It is a Git-LFS pointer"));
    CHECK_THAT(failure_of(pointer + std::string(10 - pointer.size() % 10, ' ')),
               Mentions("other.bin: there are no records in it. It is a Git-LFS pointer"));
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
    } catch (const StoreError& error) {
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

TEST_CASE("RecordFile keeps its files open, shares them with its copies, and closes them",
          "[record_file]") {
  const TemporaryDirectory directory;
  const auto good = directory.records("good.bin", 0, 2, 10);
  const std::size_t before = open_descriptors();
  failure({good, directory / ""}, 10);
  failure({good}, 7);
  CHECK(open_descriptors() == before);
  {
    std::optional<RecordFile> records(std::in_place, std::vector{good, good}, std::size_t{10});
    CHECK(open_descriptors() == before + 2);
    RecordFile copy = *records;
    CHECK(open_descriptors() == before + 2);
    const RecordFile moved = std::move(*records);
    CHECK(is_record((*records)[3], 1));  // NOLINT(bugprone-use-after-move): as it was
    records.reset();
    CHECK(is_record(copy[3], 1));
    copy = RecordFile{{good}, 5};
    CHECK(open_descriptors() == before + 3);
    CHECK(copy.size() == 4);
    CHECK(is_record(moved[3], 1));
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("RecordFile's files are not open in a program that this one starts", "[record_file]") {
  const TemporaryDirectory directory;
  const RecordFile records{{directory.records("a.bin", 0, 2, 10)}, 10};
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // of the descriptor that lists
    const auto file = std::filesystem::read_symlink(entry.path(), gone);
    if (file.filename() != "a.bin") continue;
    const int flags = ::fcntl(std::stoi(entry.path().filename().string()), F_GETFD);
    CHECK((flags & FD_CLOEXEC) != 0);
    return;
  }
  FAIL("the file is not open");
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
      std::vector<std::byte> scratch(records.record_bytes());
      const std::uint64_t before = test::allocations_of_this_thread();
      for (std::uint64_t i = 0; i < records.size(); ++i)
        wrong[t] += is_record(records.read(i, scratch), i) ? 0u : 1u;
      allocated[t] = test::allocations_of_this_thread() - before;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<std::uint64_t>(4, 0));
  CHECK(allocated == std::vector<std::uint64_t>(4, 0));
}

/// Bytes of `file` that the page cache holds.
std::size_t cached_bytes(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const std::size_t bytes = std::filesystem::file_size(path);
  void* const map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  ::close(file);
  REQUIRE(map != MAP_FAILED);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident((bytes + page - 1) / page);
  REQUIRE(::mincore(map, bytes, resident.data()) == 0);
  ::munmap(map, bytes);
  std::size_t count = 0;
  for (const unsigned char flags : resident) count += flags & 1u;
  return count * page;
}

TEST_CASE("RecordFile::will_need reads what is asked for, and changes nothing", "[record_file]") {
  const TemporaryDirectory directory;
  const auto path = directory.records("a.bin", 0, 64, 16384);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ::fdatasync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);  // out of the page cache, where there is a disk
  ::close(file);

  const RecordFile records{{path, directory.records("b.bin", 64, 2, 16384)}, 16384};
  const bool cold = cached_bytes(path) == 0;
  const std::vector<std::uint64_t> wanted{3, 40, 41, 42, 65, 64, 0, 62, 63, 64, 63, 66, ~0ull};
  records.will_need(wanted);
  records.will_need({});
  if (cold) CHECK(test::eventually([&] { return cached_bytes(path) >= 7 * 16384; }));
  for (const std::uint64_t i : wanted)
    if (i < records.size()) CHECK(is_record(records[i], i));
}

// ---- Many records by one call -------------------------------------------------------------------

/// What read_many brings: the numbers of its rows.
std::vector<std::uint64_t> many(const RecordFile& records,
                                const std::vector<std::uint64_t>& indices) {
  std::vector<std::byte> target(indices.size() * records.record_bytes());
  records.read_many(indices, target);
  return rows_of(target, records.record_bytes());
}

TEST_CASE("RecordFile::read_many reads any records, in the order of their indices",
          "[record_file]") {
  const TemporaryDirectory directory;
  const std::size_t bytes = GENERATE(8u, 16u, 100u, 3000u, 4096u, 5000u);
  const auto a = numbered_rows(directory / "a.bin", 0, 700, bytes);
  const auto b = numbered_rows(directory / "b.bin", 700, 1, bytes);
  const auto c = numbered_rows(directory / "c.bin", 701, 900, bytes);
  const RecordFile records{{a, b, c}, bytes};
  CAPTURE(bytes);
  CHECK(many(records, {}).empty());
  for (const std::vector<std::uint64_t>& some : {std::vector<std::uint64_t>{5},
                                                 {5, 6, 7, 8},
                                                 {8, 7, 6},
                                                 {698, 699, 700, 701, 702},
                                                 {702, 698, 701, 700, 699},
                                                 {3, 3, 3, 4, 3},
                                                 {0, 1600, 0, 1600},
                                                 {9, 11, 13, 15, 400, 1599}})
    CHECK(many(records, some) == some);

  std::vector<std::uint64_t> all(records.size());
  for (std::uint64_t i = 0; i < all.size(); ++i) all[i] = i;
  CHECK(many(records, all) == all);
  std::ranges::reverse(all);
  CHECK(many(records, all) == all);
  const Sampler sampler{
      {.samples = records.size(), .batch_size = 1601, .shuffle = true, .seed = 3}};
  sampler.samples(0, 0, all);
  CHECK(many(records, all) == all);
  all.insert(all.end(), all.begin(),
             all.end());  // Each one twice, and more than are sorted at once.
  CHECK(many(records, all) == all);
}

TEST_CASE("RecordFile::read_many refuses what does not fit, before it reads", "[record_file]") {
  const TemporaryDirectory directory;
  const RecordFile records{{numbered_rows(directory / "a.bin", 0, 3, 8)}, 8};
  std::vector<std::byte> memory(100, std::byte{0xEE});
  const std::span<std::byte> target = memory;
  const std::vector<std::uint64_t> two{0, 1}, beyond{0, 3}, far{~0ull, 0};
  CHECK_THAT(thrown<std::invalid_argument>([&] { records.read_many(two, target.first(15)); }),
             Mentions("read_many: a target of 15 bytes for 2 records of 8"));
  CHECK_THAT(thrown<std::invalid_argument>([&] { records.read_many(two, target.first(24)); }),
             Mentions("a target of 24 bytes for 2 records of 8"));
  CHECK_THAT(thrown<std::out_of_range>([&] { records.read_many(beyond, target.first(16)); }),
             Mentions("there is no record 3, but 3, numbered from 0"));
  CHECK_THAT(thrown<std::out_of_range>([&] { records.read_many(far, target.first(16)); }),
             Mentions("there is no record 18446744073709551615"));
  CHECK(memory == std::vector<std::byte>(100, std::byte{0xEE}));
}

/// Calls of read and the like that `work` makes on this thread; nullopt: the system does not tell.
template <class Work>
std::optional<std::uint64_t> reads(const Work& work) {
  const auto count = [] { return detail::reads_of_thread(detail::this_thread_id()); };
  const auto before = count();
  const auto counting = count();  // Counting reads, too.
  work();
  const auto after = count();
  if (!after) return std::nullopt;
  return (after->calls - counting->calls) - (counting->calls - before->calls);
}

TEST_CASE("RecordFile::read_many makes one system call for records that lie together",
          "[record_file]") {
  const TemporaryDirectory directory;
  const auto a = numbered_rows(directory / "a.bin", 0, 2000, 16);
  const auto b = numbered_rows(directory / "b.bin", 2000, 2000, 16);
  const RecordFile records{{a, b}, 16};
  std::vector<std::uint64_t> run(512), rest(512);
  for (std::uint64_t i = 0; i < run.size(); ++i) {
    run[i] = 1000 + i;
    rest[i] = 3999 - i;
  }
  std::vector<std::byte> target(run.size() * 16);
  const auto once = reads([&] { records.read_many(run, target); });
  if (!once) return;  // The system does not tell.
  CHECK(once == 1);
  CHECK(reads([&] { records.read_many(rest, target); }) == 1);  // backwards
  const Sampler shuffle{{.samples = 512, .batch_size = 512, .shuffle = true, .seed = 1}};
  shuffle.samples(0, 0, run);
  CHECK(reads([&] { records.read_many(run, target); }) == 1);  // the same ones, shuffled
  const std::vector<std::uint64_t> few{0, 257, 515, 1999, 2000, 2000};
  const auto their = std::span(target).first(few.size() * 16);
  // A gap of 256 rows is read over, one of 257 is not. Each file has a call, and so has a
  // record that is asked for again.
  CHECK(reads([&] { records.read_many(few, their); }) == 5);
  CHECK(rows_of(their, 16) == few);
}

TEST_CASE("RecordFile::read_many may be called by many threads, and does not allocate",
          "[record_file]") {
  const TemporaryDirectory directory;
  const RecordFile records{{numbered_rows(directory / "a.bin", 0, 3000, 24)}, 24};
  std::vector<std::uint64_t> wrong(4), allocated(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const Sampler sampler{{.samples = 3000, .batch_size = 3000, .shuffle = true, .seed = t}};
      std::vector<std::uint64_t> samples;
      sampler.samples(0, 0, samples);
      std::vector<std::byte> target(samples.size() * 24);
      const std::uint64_t before = test::allocations_of_this_thread();
      records.read_many(samples, target);
      allocated[t] = test::allocations_of_this_thread() - before;
      wrong[t] = rows_of(target, 24) != samples ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<std::uint64_t>(4, 0));
  CHECK(allocated == std::vector<std::uint64_t>(4, 0));
}

TEST_CASE("of many records in a file that is cut, the lost one is named", "[record_file]") {
  const TemporaryDirectory directory;
  const auto a = numbered_rows(directory / "a.bin", 0, 100, 16);
  const auto b = numbered_rows(directory / "b.bin", 100, 100, 16);
  const RecordFile records{{a, b}, 16};
  std::filesystem::resize_file(b, 50 * 16 + 3);
  const std::vector<std::uint64_t> left{149, 100, 5, 148};
  CHECK(many(records, left) == left);
  for (const std::vector<std::uint64_t>& some :
       {std::vector<std::uint64_t>{150}, {149, 150}, {7, 152, 150, 149, 100}}) {
    try {
      many(records, some);
      FAIL("nothing was thrown");
    } catch (const StoreError& error) {
      CHECK_THAT(error.what(), Mentions("b.bin: record 50 (of all files: 150) is lost: the file "
                                        "has 803 bytes, and had 1600"));
      CHECK(error.sample() == 150);
    }
  }
}

// ---- Files that change --------------------------------------------------------------------------

std::string failure_of(const RecordFile& records, std::uint64_t index) {
  std::vector<std::byte> scratch;
  try {
    return is_record(records.read(index, scratch), index) ? "" : "wrong bytes";
  } catch (const StoreError& error) {
    return error.sample() == index ? error.what() : "an error about another record";
  }
}

TEST_CASE("of a file that is cut, what is left is right and the rest an error with file and record",
          "[record_file]") {
  const std::size_t record_bytes = GENERATE(1u, 100u, 3073u, 4096u, 10'000u);
  const std::size_t count = 40'000 / record_bytes, bytes = count * record_bytes;
  for (const std::size_t cut : {std::size_t{0}, std::size_t{1}, record_bytes - 1, record_bytes,
                                record_bytes + 1, bytes / 2, bytes - record_bytes, bytes - 1}) {
    const TemporaryDirectory directory;
    const auto first = directory.records("first.bin", 0, 2, record_bytes);
    const auto path = directory.records("second.bin", 2, count, record_bytes);
    const RecordFile records{{first, path}, record_bytes};
    std::filesystem::resize_file(path, cut);
    std::size_t wrong = 0;
    for (std::uint64_t i = 0; i < count; i += 1 + count / 1000)
      wrong += failure_of(records, i + 2).empty() != ((i + 1) * record_bytes <= cut) ? 1 : 0;
    CAPTURE(record_bytes, cut);
    CHECK(wrong == 0);
    CHECK_THAT(failure_of(records, count + 1),
               Mentions("second.bin: record " + std::to_string(count - 1) + " (of all files: " +
                        std::to_string(count + 1) + ") is lost: the file has " +
                        std::to_string(cut) + " bytes, and had " + std::to_string(bytes)));
    CHECK(failure_of(records, 1).empty());
    records.will_need(std::vector<std::uint64_t>{1, 2, count + 1});  // A hint has no errors.
  }
}

TEST_CASE("a file that grows, or is replaced or removed, keeps its records", "[record_file]") {
  const TemporaryDirectory directory;
  const auto path = directory.records("a.bin", 0, 10, 3000);
  const RecordFile records{{path}, 3000};
  SECTION("grown") {
    std::ofstream(path, std::ios::binary | std::ios::app) << std::string(6000, 'x');
    CHECK(records.size() == 10);
  }
  SECTION("replaced by another of its name, which is shorter") {
    std::filesystem::rename(directory.records("b.bin", 7, 2, 3000), path);
  }
  SECTION("removed") {
    std::filesystem::remove(path);
  }
  for (std::uint64_t i = 0; i < 10; ++i) CHECK(failure_of(records, i).empty());
}

TEST_CASE("a read that the system refuses is an error with file and record", "[record_file]") {
  const TemporaryDirectory directory;
  const RecordFile records{{directory.records("a.bin", 0, 3, 8)}, 8};
  const std::span<std::byte> nowhere(static_cast<std::byte*>(nullptr), 8);
  CHECK_THAT(thrown<StoreError>([&] { records.read_into(2, nowhere); }),
             Mentions("a.bin: record 2") && Mentions("cannot read: Bad address"));
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
