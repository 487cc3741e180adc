// SPDX-License-Identifier: Apache-2.0

// Files that are cut short, grow, or are replaced while a RecordFile has them mapped. Under a
// running pipeline: damaged_file_pipeline_test.cpp. With signal handlers of the program's own:
// sigbus/.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <penstock/detail/storage/file_reads.hpp>
#include <penstock/record_file.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using test::is_record;
using test::Mentions;
using test::TemporaryDirectory;
using test::thrown;

const auto kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

void read(std::span<const std::byte> bytes) {
  const volatile std::byte* const data = bytes.data();
  for (std::size_t i = 0; i < bytes.size(); ++i) [[maybe_unused]] const std::byte byte = data[i];
}

/// How reading records[index] fails, made into a batch by itself; empty: it did not. Checks that
/// bytes which are no error are right.
std::string failure_of(const RecordFile& records, std::uint64_t index) {
  try {
    std::vector<std::byte> copy;
    detail::with_whole_files([&] {
      const auto record = records[index];
      copy.assign(record.begin(), record.end());
      return true;
    });
    CHECK(is_record(copy, index));
    return {};
  } catch (const RecordFileError& error) {
    CHECK(error.record() == index);
    return error.what();
  }
}

TEST_CASE("a file cut short: what is left is right, what is lost is an error with file and record",
          "[damaged_file]") {
  const std::size_t record_bytes = GENERATE(1u, 100u, 3073u, 4096u, 5000u, 20'000u);
  const std::size_t count = std::max<std::size_t>(4, 40'000 / record_bytes);
  const std::size_t bytes = count * record_bytes;
  for (std::size_t cut : {std::size_t{0}, std::size_t{1}, kPage - 1, kPage, kPage + 1, bytes / 2,
                          (bytes - 1) / kPage * kPage - 1, (bytes - 1) / kPage * kPage,
                          bytes - record_bytes, bytes - record_bytes / 2 - 1, bytes - 1}) {
    const TemporaryDirectory directory;
    const auto path = directory.records("a.bin", 0, count, record_bytes);
    const RecordFile records{{path}, record_bytes};
    if (cut % 2 == 0) read(records[count - 1]);  // Pages that were read before may go as well.
    fs::resize_file(path, cut);
    std::size_t wrong = 0;
    for (std::uint64_t i = 0; i < count; i += 1 + count / 1000) {
      const bool is_whole = (i + 1) * record_bytes <= cut;
      const std::string failure = failure_of(records, i);
      wrong += is_whole != failure.empty() ? 1 : 0;
    }
    CAPTURE(record_bytes, cut);
    CHECK(wrong == 0);
    CHECK_THAT(
        failure_of(records, count - 1),
        Mentions("a.bin: record " + std::to_string(count - 1)) &&
            Mentions("it has " + std::to_string(cut) + " bytes, and had " + std::to_string(bytes)));
  }
}

TEST_CASE("operator[] itself throws where a page of the record is lost", "[damaged_file]") {
  const TemporaryDirectory directory;
  const auto first = directory.records("first.bin", 0, 10, 3000);
  const auto second = directory.records("second.bin", 10, 10, 3000);
  const RecordFile records{{first, second}, 3000};
  fs::resize_file(second, kPage);
  for (std::uint64_t i = 0; i < 11; ++i) CHECK(is_record(records[i], i));
  for (std::uint64_t i = 11; i < 20; ++i)
    CHECK_THAT(thrown<RecordFileError>([&] { records[i]; }),
               Mentions("second.bin: record " + std::to_string(i) + ", " + std::to_string(i - 10) +
                        " of the file, is lost"));
  CHECK_THROWS_AS(records.at(15), RecordFileError);
  CHECK_THROWS_AS(records.at(20), std::out_of_range);
  records.prefetch(std::vector<std::uint64_t>{1, 11, 19});  // A hint has no errors.
  CHECK(is_record(records[10], 10));
}

TEST_CASE("a record that was handed out before reads as zeros when it is lost", "[damaged_file]") {
  const TemporaryDirectory directory;
  const auto path = directory.records("a.bin", 0, 10, kPage);
  const RecordFile records{{path}, kPage};
  const auto held = records[5];
  fs::resize_file(path, 5 * kPage);
  CHECK(std::all_of(held.begin(), held.end(), [](std::byte byte) { return byte == std::byte{0}; }));
  CHECK_THROWS_AS(records[5], RecordFileError);
  CHECK(is_record(records[4], 4));
}

TEST_CASE("what a damaged file leaves behind does not harm the next one", "[damaged_file]") {
  const TemporaryDirectory directory;
  for (int i = 0; i < 50; ++i) {
    const auto path = directory.records("a.bin", 0, 10, kPage);
    const RecordFile whole{{path}, kPage};
    const auto other = directory.records("b.bin", 0, 10, kPage);
    const RecordFile damaged{{other}, kPage};
    fs::resize_file(other, 0);
    CHECK_THROWS_AS(damaged[0], RecordFileError);
    for (std::uint64_t record = 0; record < 10; ++record) CHECK(is_record(whole[record], record));
  }
}

TEST_CASE("the watch over a file that went away is kept for the next one", "[damaged_file]") {
  const TemporaryDirectory directory;
  const auto path = directory.records("a.bin", 0, 10, 10);
  constexpr std::size_t kMany = 1000;  // More than other tests have open.
  std::vector<RecordFile> files;
  files.reserve(kMany + 1);
  const auto allocations_of_opening = [&] {
    const std::uint64_t before = test::allocations_of_this_thread();
    files.emplace_back(std::vector<fs::path>{path}, std::size_t{10});
    return test::allocations_of_this_thread() - before;
  };
  while (files.size() < kMany) allocations_of_opening();
  files.clear();
  std::vector<std::uint64_t> allocations;
  while (files.size() < kMany) allocations.push_back(allocations_of_opening());
  CHECK(allocations == std::vector<std::uint64_t>(kMany, allocations.front()));
  if (allocations.front() != 0)  // They are counted.
    CHECK(allocations_of_opening() == allocations.front() + 1);
}

TEST_CASE("a moved RecordFile knows what was lost", "[damaged_file]") {
  const TemporaryDirectory directory;
  const auto path = directory.records("a.bin", 0, 4, kPage);
  RecordFile first{{path}, kPage};
  fs::resize_file(path, kPage);
  CHECK_THROWS_AS(first[2], RecordFileError);
  const RecordFile second = std::move(first);
  CHECK_THROWS_AS(second[3], RecordFileError);
  CHECK(is_record(second[0], 0));
}

TEST_CASE("a file that grows, or is replaced or removed, keeps its records", "[damaged_file]") {
  const TemporaryDirectory directory;
  const auto path = directory.records("a.bin", 0, 10, 3000);
  const RecordFile records{{path}, 3000};
  CHECK_NOTHROW(records.check_unchanged());
  const auto complaint = [&] {
    return thrown<RecordFileError>([&] { records.check_unchanged(); });
  };
  SECTION("grown") {
    std::ofstream(path, std::ios::binary | std::ios::app) << std::string(6000, 'x');
    CHECK_THAT(complaint(), Mentions("a.bin: the file is not what it was") &&
                                Mentions("it has 36000 bytes, and had 30000"));
    CHECK(records.size() == 10);
  }
  SECTION("replaced by another of its name, which is shorter") {
    fs::rename(directory.records("b.bin", 7, 2, 3000), path);
    CHECK_THAT(complaint(), Mentions("it is another file"));
  }
  SECTION("removed") {
    fs::remove(path);
    CHECK_THAT(complaint(), Mentions("No such file"));
  }
  for (std::uint64_t i = 0; i < 10; ++i) CHECK(failure_of(records, i).empty());
}

TEST_CASE("a file without a name that is cut short: nothing lost is taken for good",
          "[damaged_file]") {
  const TemporaryDirectory directory;
  const auto path = directory.records("a.bin", 0, 500, 100);
  const RecordFile records{{path}, 100};
  const fs::path other_name = directory / "b.bin";
  fs::create_hard_link(path, other_name);
  fs::remove(path);
  fs::resize_file(other_name, 20'250);
  for (std::uint64_t i = 0; i < 500; ++i)
    if ((i + 1) * 100 > 20'250)
      CHECK_FALSE(failure_of(records, i).empty());
    else if ((i + 1) * 100 <= 20'250 / kPage * kPage)
      CHECK(failure_of(records, i).empty());
}

TEST_CASE("check_unchanged finds what was written in place, and what was cut off",
          "[damaged_file]") {
  const TemporaryDirectory directory;
  const auto good = directory.records("good.bin", 0, 10, 3000);
  const auto path = directory.records("a.bin", 10, 10, 3000);
  fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(1));
  const RecordFile records{{good, path}, 3000};
  CHECK_NOTHROW(records.check_unchanged());
  const auto complaint = [&] {
    return thrown<RecordFileError>([&] { records.check_unchanged(); });
  };
  SECTION("written in place") {
    std::fstream(path, std::ios::binary | std::ios::in | std::ios::out) << "x";
    CHECK_THAT(complaint(), Mentions("a.bin") && Mentions("it was written to"));
  }
  SECTION("cut off within its last page") {
    fs::resize_file(path, 29'999);
    CHECK_THAT(complaint(), Mentions("record 19, 9 of the file, is lost: it has 29999 bytes"));
  }
  SECTION("cut off, read, and written again") {
    fs::resize_file(path, 0);
    CHECK_THROWS_AS(records[15], RecordFileError);
    directory.records("a.bin", 10, 10, 3000);
    CHECK_THAT(complaint(), Mentions("is lost"));
  }
}

TEST_CASE("many threads come to a lost file at once", "[damaged_file]") {
  constexpr std::uint64_t kRecords = 200;
  const TemporaryDirectory directory;
  for (int round = 0; round < 5; ++round) {
    const auto path = directory.records("a.bin", 0, kRecords, kPage);
    const RecordFile records{{path}, kPage};
    fs::resize_file(path, kRecords / 2 * kPage);
    std::atomic<std::uint64_t> right{0}, errors{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        while (!go) std::this_thread::yield();
        for (std::uint64_t i = 0; i < kRecords; ++i) {
          const std::uint64_t index = (i * 7 + t * 31) % kRecords;
          try {
            right += is_record(records[index], index) && index < kRecords / 2 ? 1 : 0;
          } catch (const RecordFileError&) {
            errors += index >= kRecords / 2 ? 1 : 0;
          }
        }
      });
    go = true;
    for (std::thread& thread : threads) thread.join();
    CHECK(right == 8 * kRecords / 2);
    CHECK(errors == 8 * kRecords / 2);
  }
}

TEST_CASE("a batch is refused for what was lost after it was asked for", "[damaged_file]") {
  const TemporaryDirectory directory;
  const auto path = directory.records("a.bin", 0, 10, 1000);
  const RecordFile records{{path}, 1000};
  const auto cut_at = [&](std::size_t bytes) {
    return thrown<RecordFileError>([&] {
      detail::with_whole_files([&] {
        const auto record = records[3];
        fs::resize_file(path, bytes);
        read(record);
        return true;
      });
    });
  };
  SECTION("in the middle of a page: there is no signal") {
    CHECK_THAT(cut_at(3999), Mentions("record 3, 3 of the file, is lost: it has 3999 bytes"));
  }
  SECTION("all of it") {
    CHECK_THAT(cut_at(0), Mentions("record 3"));
  }
  SECTION("behind the record: the batch is good") {
    CHECK(cut_at(4000) == "(nothing was thrown)");
    CHECK_THAT(failure_of(records, 4), Mentions("record 4"));
  }
}

TEST_CASE("the loss of a page that another thread came to first is known as well",
          "[damaged_file]") {
  const TemporaryDirectory directory;
  const auto path = directory.records("a.bin", 0, 4 * kPage / 512, 512);
  const RecordFile records{{path}, 512};
  CHECK_THROWS_AS(
      detail::with_whole_files([&] {
        const auto record = records[kPage / 512];
        fs::resize_file(path, kPage);
        // The page becomes zeros: reading it makes no signal for this thread.
        std::thread([&] { CHECK_THROWS_AS(records[kPage / 512 + 1], RecordFileError); }).join();
        read(record);
        return true;
      }),
      RecordFileError);
}

TEST_CASE("a complaint about lost bytes gives way to the reason", "[damaged_file]") {
  const TemporaryDirectory directory;
  const auto path = directory.records("a.bin", 0, 10, kPage);
  const RecordFile records{{path}, kPage};
  const auto decode = [](std::span<const std::byte> record) {
    if (record[0] == std::byte{0}) throw std::domain_error("bad image");
    return true;
  };
  CHECK_THROWS_AS(detail::with_whole_files([&] {
                    const auto record = records[7];
                    fs::resize_file(path, 0);
                    return decode(record);
                  }),
                  RecordFileError);
  CHECK_THROWS_AS(detail::with_whole_files([&]() -> bool { throw std::domain_error("other"); }),
                  std::domain_error);
}

TEST_CASE("a batch answers for all that it has read, in any order", "[damaged_file]") {
  const TemporaryDirectory directory;
  const auto path = directory.records("a.bin", 0, 10, kPage);
  const RecordFile records{{path}, kPage};
  CHECK_THAT(thrown<RecordFileError>([&] {
               detail::with_whole_files([&] {
                 const auto late = records[7], early = records[2];
                 fs::resize_file(path, 5 * kPage);
                 read(late);
                 read(early);
                 return true;
               });
             }),
             Mentions("record 7"));
}

TEST_CASE("batches within batches each answer for their own reads", "[damaged_file]") {
  const TemporaryDirectory directory;
  const auto small = directory.records("small.bin", 0, 1, 10);
  std::vector<std::unique_ptr<RecordFile>> many;  // more than there is room for without growing
  for (int i = 0; i < 40; ++i)
    many.push_back(std::make_unique<RecordFile>(std::vector<fs::path>{small}, std::size_t{10}));
  const auto path = directory.records("a.bin", 0, 10, kPage);
  const RecordFile records{{path}, kPage};
  const auto inner_cuts_to = [&](std::size_t bytes) {
    detail::with_whole_files([&] {
      for (const auto& file : many) read((*file)[0]);
      const auto record = records[1];
      fs::resize_file(path, bytes);
      read(record);
      return true;
    });
  };
  SECTION("both have lost a record") {
    bool inner_threw = false;
    CHECK_THAT(thrown<RecordFileError>([&] {
                 detail::with_whole_files([&] {
                   read(records[2]);
                   try {
                     inner_cuts_to(0);
                   } catch (const RecordFileError& error) {
                     inner_threw = error.record() == 1;
                   }
                   return true;
                 });
               }),
               Mentions("record 2"));
    CHECK(inner_threw);
  }
  SECTION("the outer one alone has") {
    CHECK_THAT(thrown<RecordFileError>([&] {
                 detail::with_whole_files([&] {
                   read(records[2]);
                   inner_cuts_to(2 * kPage);
                   return true;
                 });
               }),
               Mentions("record 2"));
  }
  SECTION("the outer one has, of what it read after the inner one") {
    std::string error;
    const auto batch = [&] {
      read((*many[0])[0]);
      read(records[2]);
      inner_cuts_to(9 * kPage);
      const auto record = records[8];
      fs::resize_file(path, 4 * kPage);
      read(record);
      return true;
    };
    std::thread([&] {  // A new one has room for few files, so the inner batch makes it grow.
      error = thrown<RecordFileError>([&] { detail::with_whole_files(batch); });
    })
        .join();
    CHECK_THAT(error, Mentions("record 8"));
  }
}

TEST_CASE("a file that goes away within a batch is kept until the batch is made",
          "[damaged_file]") {
  const TemporaryDirectory directory;
  const auto path = directory.records("a.bin", 0, 10, kPage);
  CHECK_NOTHROW(detail::with_whole_files([&] {
    const RecordFile records{{path}, kPage};
    read(records[3]);
    return true;
  }));
  CHECK_THROWS_AS(detail::with_whole_files([&] {
                    const RecordFile records{{path}, kPage};
                    read(records[3]);
                    fs::resize_file(path, 0);
                    return true;
                  }),
                  RecordFileError);
}

TEST_CASE("watching over a batch's files allocates nothing after the first batch",
          "[damaged_file]") {
  const TemporaryDirectory directory;
  const RecordFile a{{directory.records("a.bin", 0, 100, 100)}, 100};
  const RecordFile b{{directory.records("b.bin", 0, 100, 100)}, 100};
  const auto batch = [&] {
    return detail::with_whole_files([&] {
      for (std::uint64_t i = 0; i < 100; ++i) read(i % 2 == 0 ? a[i] : b[i]);
      return true;
    });
  };
  batch();
  const std::uint64_t before = test::allocations_of_this_thread();
  for (int i = 0; i < 10; ++i) batch();
  CHECK(test::allocations_of_this_thread() == before);
}

}  // namespace
}  // namespace penstock
