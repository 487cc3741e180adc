// SPDX-License-Identifier: Apache-2.0

// TfRecordFile over files that are written here byte by byte. tables_test.py has files of others.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <penstock/tf_record_file.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/memory_files.hpp"
#include "support/temporary_directory.hpp"
#include "support/tf_records.hpp"
#include "support/thrown.hpp"

namespace penstock::tf_record_file_test {
namespace {

using namespace std::string_literals;
using test::as_text;
using test::Asked;
using test::MemoryFile;
using test::Mentions;
using test::read_file;
using test::TemporaryDirectory;
using test::tf_content;
using test::tf_record;
using test::tf_records;
using test::thrown;
using test::write_file;

/// Two files of 300 and of 20 records.
struct Files {
  Files() {
    write_file(a, tf_records(0, 300));
    write_file(b, tf_records(300, 20));
  }
  const TemporaryDirectory directory;
  const std::filesystem::path a = directory / "a.tfrecord", b = directory / "b.tfrecord";
};

void check_records(const TfRecordFile& records) {
  REQUIRE(records.size() == 320);
  std::vector<std::byte> scratch;
  std::size_t wrong = 0;
  for (std::uint64_t i = 0; i < records.size(); ++i) {
    wrong += as_text(records.read(i, scratch)) != tf_content(i) ? 1 : 0;
    wrong += records.bytes(i) != tf_content(i).size() ? 1 : 0;
  }
  CHECK(wrong == 0);
}

TEST_CASE("TfRecordFile numbers records through its files", "[tf_record_file]") {
  const Files files;
  const TfRecordFile records({files.a, files.b});
  check_records(records);
  CHECK(records.name(299) == files.a.string() + ", record 299");
  CHECK(records.name(300) == files.b.string() + ", record 0");
  CHECK_THAT(thrown<std::out_of_range>([&] { records.bytes(320); }),
             Mentions("TfRecordFile: there is no record 320, but 320, numbered from 0"));
  CHECK_THAT(
      thrown<std::invalid_argument>([] { TfRecordFile(std::vector<std::filesystem::path>{}); }),
      Mentions("the list of files is empty"));
  records.will_need(std::vector<std::uint64_t>{5, 6, 319, 320});
}

TEST_CASE("TfRecordFile reads without allocating", "[tf_record_file]") {
  const Files files;
  const TfRecordFile records({files.a, files.b});
  std::vector<std::byte> scratch(1000);
  records.read(0, scratch);
  const std::uint64_t before = test::allocations_of_this_thread();
  for (std::uint64_t i = 0; i < records.size(); ++i) records.read(i, scratch);
  CHECK(test::allocations_of_this_thread() == before);
}

TEST_CASE("TfRecordFile: its index files tell where the records are", "[tf_record_file]") {
  const Files files;
  TfRecordFile({files.a, files.b}).save_indexes();
  const auto index = TfRecordFile::index_path(files.b);
  CHECK(index == files.directory / "b.tfrecord.idx");
  CHECK(read_file(TfRecordFile::index_path(files.a)).starts_with("0 16\n16 53\n69 164\n"));
  check_records(TfRecordFile({files.a, files.b}));

  // It is used: with it, damage to a length is found when the record is read.
  std::string bytes = read_file(files.b);
  bytes[8] = static_cast<char>(bytes[8] ^ 1);
  write_file(files.b, bytes);
  const TfRecordFile records({files.a, files.b});
  std::vector<std::byte> scratch;
  CHECK_THAT(thrown<StoreError>([&] { records.read(300, scratch); }),
             Mentions("b.tfrecord: record 0, at byte 0 (of all files: 300) is lost: its length is "
                      "another"));
  CHECK(as_text(records.read(301, scratch)) == tf_content(301));
  CHECK_THAT(thrown<StoreError>([&] {
               TfRecordFile({files.a, files.b}, {.use_indexes = false});
             }),
             Mentions("b.tfrecord: it is no TFRecord file, or damaged"));
}

TEST_CASE("TfRecordFile: an index that does not fit is an error that names the line",
          "[tf_record_file]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.tfrecord";
  write_file(path, tf_record("abc") + tf_record("de"));
  const auto failure = [&](std::string_view index) {
    write_file(TfRecordFile::index_path(path), index);
    return thrown<StoreError>([&] { TfRecordFile({path}); });
  };
  CHECK(failure("0 19\n19 18\n") == "(nothing was thrown)");
  CHECK(failure("0 19\r\n\n19 18") == "(nothing was thrown)");
  CHECK_THAT(failure("0 19\n"),
             Mentions("a.tfrecord.idx: line 1: the records end at byte 19 of 37"));
  CHECK_THAT(failure(""), Mentions("the records end at byte 0 of 37"));
  CHECK_THAT(
      failure("0 19\n20 17\n"),
      Mentions("line 2: a record of 17 bytes from byte 20 on is not what follows at byte 19"));
  CHECK_THAT(failure("0 19\n19 19\n"), Mentions("line 2: a record of 19 bytes"));
  CHECK_THAT(failure("0 15\n"), Mentions("line 1: a record of 15 bytes"));
  for (const char* line : {"0", "0 x", "-1 19", "0 19 3", "0  19", "99999999999999999999 19"})
    CHECK_THAT(failure(line), Mentions("line 1: it is not \"offset size\" of a record"));
  CHECK_THAT(failure("0 x"), Mentions("set TfRecordOptions::use_indexes to false"));
}

TEST_CASE("TfRecordFile: indexes in a folder of their own", "[tf_record_file]") {
  const TemporaryDirectory directory;
  const std::string bytes = tf_records(0, 10);
  const File file(std::make_shared<MemoryFile>("mem://bucket/a.tfrecord", bytes));
  CHECK_THAT(thrown<StoreError>([&] { TfRecordFile(std::vector{file}).save_indexes(); }),
             Mentions("mem://bucket/a.tfrecord: the file is not of this machine: set "
                      "TfRecordOptions::index_folder"));
  const TfRecordOptions options{.index_folder = directory / ""};
  TfRecordFile(std::vector{file}, options).save_indexes();
  const auto memory = std::make_shared<MemoryFile>("mem://bucket/a.tfrecord", bytes);
  const TfRecordFile records(std::vector{File(memory)}, options);
  CHECK(records.size() == 10);
  CHECK(memory->reads == 0);
  const File other(std::make_shared<MemoryFile>("mem://other/a.tfrecord", bytes));
  CHECK_THAT(thrown<StoreError>([&] {
               TfRecordFile(std::vector{file, other}, options).save_indexes();
             }),
             Mentions("it would be the index of both mem://bucket/a.tfrecord and mem://other/"));
}

TEST_CASE(
    "TfRecordFile: a file elsewhere is read in pieces, and of large records the lengths alone",
    "[tf_record_file]") {
  const auto memory = std::make_shared<MemoryFile>("mem://a", tf_records(0, 300));
  const TfRecordFile records(std::vector{File(memory)});
  CHECK(memory->reads <= memory->bytes.size() / (60 << 10) + 2);
  records.will_need(std::vector<std::uint64_t>{1});
  CHECK(memory->ranges == Asked{{16, 53}});

  std::string large;
  for (int i = 0; i < 10; ++i) large += tf_record(std::string(100'000, 'x'));
  const auto other = std::make_shared<MemoryFile>("mem://b", large);
  CHECK(TfRecordFile(std::vector{File(other)}).size() == 10);
  CHECK(other->reads == 10);
}

TEST_CASE("TfRecordFile names the record and the byte where a file is cut or damaged",
          "[tf_record_file]") {
  const std::string good = tf_record("abc") + tf_record("de") + tf_record("");
  const auto failure = [&](const std::string& bytes) {
    return thrown<StoreError>([&] {
      const TfRecordFile records(std::vector{File(std::make_shared<MemoryFile>("mem://a", bytes))});
      std::vector<std::byte> scratch;
      for (std::uint64_t i = 0; i < records.size(); ++i) records.read(i, scratch);
    });
  };
  CHECK(failure(good) == "(nothing was thrown)");
  CHECK_THAT(failure(""), Mentions("TfRecordFile: mem://a: the file is empty"));
  for (std::size_t bytes = 1; bytes < good.size(); ++bytes) {
    if (bytes == 19 || bytes == 37) continue;
    const std::string place = bytes < 19   ? "record 0, at byte 0"
                              : bytes < 37 ? "record 1, at byte 19"
                                           : "record 2, at byte 37";
    CHECK_THAT(failure(good.substr(0, bytes)), Mentions(place) && Mentions("cut"));
  }
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    CAPTURE(at);
    CHECK(failure(bytes) != "(nothing was thrown)");
  }
  std::string bytes = good;
  bytes[20] = 'x';  // of the second length
  CHECK_THAT(failure(bytes),
             Mentions("record 1, at byte 19, is damaged: the checksum of its length is another"));
  bytes = good;
  bytes[12] = 'x';
  CHECK_THAT(failure(bytes),
             Mentions("record 0, at byte 0 (of all files: 0) is lost: its bytes have "
                      "another checksum"));
  const TfRecordFile careless(std::vector{File(std::make_shared<MemoryFile>("mem://a", bytes))},
                              {.verify = false});
  std::vector<std::byte> scratch;
  CHECK(as_text(careless.read(0, scratch)) == "xbc");
  CHECK_THAT(failure("\x1F\x8B\x08\0 this is a file of gzip"s),
             Mentions("it is no TFRecord file, or damaged") && Mentions("compressed with gzip"));
  const std::string length = "\xff\xff\xff\xff\xff\xff\xff\xff";
  CHECK_THAT(failure(length + test::masked_checksum(length) + "abcd"),
             Mentions("is cut: it has 18446744073709551615 bytes, and the file 16"));
}

TEST_CASE("TfRecordFile: a file that is cut later is an error of its record", "[tf_record_file]") {
  const Files files;
  const TfRecordFile records({files.a, files.b});
  std::filesystem::resize_file(files.b, 10);
  std::vector<std::byte> scratch;
  CHECK_THAT(thrown<StoreError>([&] { records.read(300, scratch); }),
             Mentions("b.tfrecord: record 0") && Mentions("the file has 10 bytes, and had "));
  CHECK(as_text(records.read(299, scratch)) == tf_content(299));
}

}  // namespace
}  // namespace penstock::tf_record_file_test
