// SPDX-License-Identifier: Apache-2.0

// The stores over Files and folders whose bytes are elsewhere: here in memory.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <penstock/file.hpp>
#include <penstock/file_folder.hpp>
#include <penstock/mapped_records.hpp>
#include <penstock/packed_file.hpp>
#include <penstock/record_file.hpp>
#include <penstock/tar_shards.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/memory_files.hpp"
#include "support/numbered_rows.hpp"
#include "support/packs.hpp"
#include "support/tar_writer.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using test::as_text;
using test::Asked;
using test::failure;
using test::in_memory;
using test::MemoryFile;
using test::MemoryFolder;
using test::Mentions;
using test::numbered_rows;
using test::read_file;
using test::rows_of;
using test::TarWriter;
using test::TemporaryDirectory;
using test::thrown;
using test::Time;
using test::write_file;
using test::write_pack;

using Indices = std::vector<std::uint64_t>;

constexpr Time kDue{std::chrono::seconds(7)};
constexpr Time kNoTime{};

// ---- PackedFile

struct Pack {
  explicit Pack(std::uint64_t records, bool names = true) {
    write_pack(directory / "a.pack", records, names);
    memory = in_memory("mem://a.pack", directory / "a.pack");
  }
  /// Where a record lies.
  FileRange place(std::uint64_t record) const {
    detail::PackEntry entry;
    const std::uint64_t index = test::header_of(memory->bytes).index;
    std::memcpy(&entry, memory->bytes.data() + index + record * sizeof(entry), sizeof(entry));
    return {entry.offset, entry.bytes};
  }
  const TemporaryDirectory directory;
  std::shared_ptr<MemoryFile> memory;
};

TEST_CASE("PackedFile reads a File: a record is one read, without an allocation", "[file]") {
  const Pack made(50);
  const PackedFile pack(File{made.memory});
  CHECK(pack.size() == 50);
  CHECK(pack.info().file_bytes == made.memory->bytes.size());
  CHECK(pack.name(3) == test::packed_name(3));
  CHECK(PackedFile(File(Pack(2, false).memory)).name(1) == "mem://a.pack, record 1");
  std::vector<std::byte> scratch(100);
  pack.read(0, scratch);  // Now it is known how much memory there is.
  made.memory->reads = 0;
  const std::uint64_t before = test::allocations_of_this_thread();
  for (std::uint64_t i = 0; i < pack.size(); ++i) pack.read(i, scratch);
  CHECK(test::allocations_of_this_thread() == before);
  CHECK(made.memory->reads == 50);
  for (std::uint64_t i = 0; i < pack.size(); ++i)
    CHECK(as_text(pack.read(i, scratch)) == test::packed_record(i));
}

TEST_CASE("PackedFile: what a File throws, and what is missing in it, is an error of the record",
          "[file]") {
  const Pack made(50);
  const PackedFile pack(File{made.memory});
  made.memory->broken = made.place(7).offset;
  CHECK(failure(pack, 7, "mem://a.pack") ==
        "PackedFile: mem://a.pack: record 7 (class/343.jpg) is lost: the server is gone");
  CHECK(failure(pack, 8, "mem://a.pack") == "(nothing was thrown)");
  const FileRange place = made.place(9);
  const std::uint64_t all = made.memory->bytes.size();
  made.memory->bytes.resize(place.offset + 5);
  CHECK_THAT(failure(pack, 9, "mem://a.pack"),
             Mentions("is lost: the file ends 5 bytes behind byte " + std::to_string(place.offset) +
                      ", and had " + std::to_string(all) + " bytes when it was opened"));
}

TEST_CASE("PackedFile: a File without its header or index is an error of the file", "[file]") {
  const Pack made(5);
  const std::uint64_t index = test::header_of(made.memory->bytes).index;
  for (const std::uint64_t byte : {std::uint64_t{0}, index}) {
    made.memory->broken = byte;
    try {
      PackedFile{File(made.memory)};
      FAIL("it was opened");
    } catch (const StoreError& error) {
      CHECK(std::string(error.what()) == "PackedFile: mem://a.pack: the server is gone");
      CHECK(error.file() == "mem://a.pack");
      CHECK_FALSE(error.sample().has_value());
    }
  }
}

TEST_CASE("PackedFile::will_need asks its File for ranges, on this machine neighbours together",
          "[file]") {
  const Pack made(2000);
  const PackedFile pack(File{made.memory});
  const auto end = [&](std::uint64_t i) { return made.place(i).offset + made.place(i).bytes; };
  const auto from = [&](std::uint64_t first, std::uint64_t last) {
    return std::pair(made.place(first).offset, end(last) - made.place(first).offset);
  };
  pack.will_need(Indices{1501, 13, 11, 12, 2000, ~0ull, 11, 21}, kDue);
  REQUIRE(made.place(21).offset - end(13) < 4096);  // so near that a page has both
  CHECK(made.memory->ranges ==
        Asked{from(11, 11), from(12, 12), from(13, 13), from(21, 21), from(1501, 1501)});
  CHECK(made.memory->calls == 1);
  made.memory->ranges.clear();
  made.memory->calls = 0;
  made.memory->number = 0;  // It is of this machine.
  pack.will_need(Indices{1501, 13, 11, 12, 2000, ~0ull, 11, 21}, kDue);
  CHECK(made.memory->ranges == Asked{from(11, 21), from(1501, 1501)});
  CHECK(made.memory->calls == 1);
  CHECK(made.memory->due == kDue);
  pack.will_need(Indices{3});
  CHECK(made.memory->due == kNoTime);
  made.memory->calls = 0;
  pack.will_need({}, kDue);
  pack.will_need(Indices{0, 2000}, kDue);  // the record without bytes, and one that there is not
  CHECK(made.memory->calls == 0);
}

TEST_CASE("PackedFile::will_need tells each read for which it is too early", "[file]") {
  const Pack made(2000);
  const PackedFile pack(File{made.memory});
  const auto alone = [&](std::uint64_t i) {
    return std::pair(std::uint64_t{made.place(i).offset}, std::uint64_t{made.place(i).bytes});
  };
  pack.will_need(Indices{12, 11, 13, 11}, Time::max());
  CHECK(made.memory->ranges == Asked{alone(12), alone(11), alone(13), alone(11)});
  CHECK(made.memory->due == Time::max());
}

// ---- RecordFile

TEST_CASE("RecordFile numbers records through Files of any kind", "[file]") {
  const TemporaryDirectory directory;
  const auto memory = in_memory("mem://b.bin", numbered_rows(directory / "b.bin", 10, 20, 16));
  const auto path = numbered_rows(directory / "a.bin", 0, 10, 16);
  const RecordFile records(std::vector{File::open(path), File(memory)}, 16);
  REQUIRE(records.size() == 30);
  std::vector<std::byte> scratch(16);
  for (std::uint64_t i = 0; i < 30; ++i) CHECK(rows_of(records.read(i, scratch), 16) == Indices{i});
  CHECK(records.name(3) == path.string() + ", record 3");
  CHECK(records.name(12) == "mem://b.bin, record 2");
  memory->broken = 5 * 16;
  CHECK_THAT(failure(records, 15, "mem://b.bin"),
             Mentions("record 5 (of all files: 15) is lost: the server is gone"));
  memory->bytes.resize(7 * 16 + 3);
  CHECK_THAT(failure(records, 17, "mem://b.bin"),
             Mentions("the file ends 3 bytes behind byte 112"));
  const File whole(in_memory("mem://b.bin", directory / "b.bin"));
  CHECK_THAT(thrown<StoreError>([&] { RecordFile(std::vector{whole}, 7); }),
             Mentions("mem://b.bin: 320 bytes, in records of 7 bytes: 5 bytes are left over"));
  CHECK_THAT(thrown<std::invalid_argument>([] { RecordFile(std::vector<File>(), 7); }),
             Mentions("the list of files is empty"));
}

TEST_CASE(
    "RecordFile::read_many tells a File all ranges, and then reads what lies together at once",
    "[file]") {
  const TemporaryDirectory directory;
  const auto memory = in_memory("mem://a.bin", numbered_rows(directory / "a.bin", 0, 3000, 16));
  const RecordFile records(std::vector{File(memory)}, 16);
  std::vector<std::byte> target(8 * 16);
  const Indices wanted{5, 6, 7, 2999, 9, 10, 1000, 5};
  memory->reads = 0;
  const Time before = std::chrono::steady_clock::now();
  records.read_many(wanted, target);
  CHECK(rows_of(target, 16) == wanted);
  CHECK(memory->reads == 6);  // 5 twice, 6 to 7, 9 to 10, 1000, 2999
  Asked expected;
  for (const std::uint64_t i : {5, 6, 7, 9, 10, 1000, 2999}) expected.emplace_back(i * 16, 16);
  CHECK(memory->ranges == expected);
  CHECK(memory->calls == 1);
  CHECK(memory->due >= before);
  CHECK(memory->due <= std::chrono::steady_clock::now());
  memory->calls = 0;
  records.read_many(Indices{4}, std::span(target).first(16));
  CHECK(memory->calls == 0);  // There is nothing to do meanwhile.

  memory->broken = 9 * 16 + 3;
  try {
    records.read_many(wanted, target);
    FAIL("it was read");
  } catch (const StoreError& error) {
    CHECK(error.sample() == 9u);
    CHECK(error.file() == "mem://a.bin");
  }
}

TEST_CASE("RecordFile::read_many of a File allocates nothing", "[file]") {
  const TemporaryDirectory directory;
  const auto memory = in_memory("mem://a.bin", numbered_rows(directory / "a.bin", 0, 3000, 16));
  const RecordFile records(std::vector{File(memory)}, 16);
  memory->ranges.reserve(5000);
  Indices wanted(2500);
  for (std::uint64_t i = 0; i < wanted.size(); ++i) wanted[i] = i * 7 % 3000;
  std::vector<std::byte> target(wanted.size() * 16);
  const std::uint64_t before = test::allocations_of_this_thread();
  records.read_many(wanted, target);
  CHECK(test::allocations_of_this_thread() == before);
  CHECK(rows_of(target, 16) == wanted);
}

TEST_CASE("RecordFile::will_need asks each File once for many ranges", "[file]") {
  const TemporaryDirectory directory;
  const auto path = directory.records("a.bin", 0, 1000, 8192);
  const auto one = in_memory("mem://a.bin", path), two = in_memory("mem://b.bin", path);
  const RecordFile records(std::vector{File(one), File(two)}, 8192);
  Indices all;  // every second one, of one file and the other in turns
  for (std::uint64_t i = 0; i < 400; i += 2) all.insert(all.end(), {i, 1000 + i});
  records.will_need(all, kDue);
  Asked expected;
  for (std::uint64_t i = 0; i < 400; i += 2) expected.emplace_back(i * 8192, 8192);
  for (const auto& file : {one, two}) {
    CHECK(file->calls == 1);
    CHECK(file->ranges == expected);
    CHECK(file->due == kDue);
    file->ranges.clear();
  }
  records.will_need(Indices{999, 1000}, kDue);  // neighbours, but in two files
  CHECK(one->ranges == Asked{{999 * 8192, 8192}});
  CHECK(two->ranges == Asked{{0, 8192}});
  one->ranges.clear();
  one->calls = 0;
  all.clear();
  for (std::uint64_t i = 0; i < 1000; i += 2) all.push_back(i);
  records.will_need(all, kDue);
  CHECK(one->ranges.size() == 500);
  CHECK(one->calls == 2);  // 256 ranges at a time
  one->ranges.clear();
  all.assign(1500, 0);  // the first one again and again, 1,024 of them at a time
  records.will_need(all, kDue);
  CHECK(one->ranges == Asked{{0, 8192}});
}

TEST_CASE("MappedRecords maps Files of this machine only", "[file]") {
  const TemporaryDirectory directory;
  const auto path = numbered_rows(directory / "a.bin", 0, 10, 16);
  const MappedRecords rows(RecordFile(std::vector{File::open(path)}, 16));
  CHECK(rows_of(rows[7], 16) == Indices{7});
  const RecordFile elsewhere(std::vector{File::open(path), File(in_memory("mem://a.bin", path))},
                             16);
  try {
    MappedRecords{elsewhere};
    FAIL("it was mapped");
  } catch (const StoreError& error) {
    CHECK(error.file() == "mem://a.bin");
    CHECK_THAT(error.what(), Mentions("MappedRecords: mem://a.bin: only a file of this machine"));
  }
}

// ---- TarShards

/// Samples of two members, 0.jpg and 0.cls, and so on.
struct Tar {
  explicit Tar(int samples) {
    TarWriter tar;
    for (int i = 0; i < samples; ++i)
      tar.add(std::to_string(i) + ".jpg", jpeg(i)).add(std::to_string(i) + ".cls", "7");
    tar.save(directory / "a.tar");
    memory = in_memory("mem://bucket/a.tar", directory / "a.tar");
  }
  static std::string jpeg(int i) { return std::string(static_cast<std::size_t>(600 + i), 'j'); }
  const TemporaryDirectory directory;
  std::shared_ptr<MemoryFile> memory;
};

TEST_CASE("TarShards reads Files: a member is one read, without an allocation", "[file]") {
  const Tar made(20);
  const TarShards shards(std::vector{File(made.memory), File::open(made.directory / "a.tar")});
  REQUIRE(shards.size() == 40);
  CHECK(shards.name(3) == "a.tar/3.jpg");
  std::vector<std::byte> scratch(2000);
  shards.read(0, scratch);  // Now it is known how much memory there is.
  made.memory->reads = 0;
  const std::uint64_t before = test::allocations_of_this_thread();
  for (std::uint64_t i = 0; i < 20; ++i) shards.read(i, scratch);
  CHECK(test::allocations_of_this_thread() == before);
  CHECK(made.memory->reads == 20);
  for (std::uint64_t i = 0; i < 40; ++i) {
    CHECK(as_text(shards.read(i, scratch)) == Tar::jpeg(static_cast<int>(i % 20)));
    CHECK(shards.label(i) == 7);
  }
  CHECK_THAT(thrown<std::invalid_argument>([] { TarShards{std::vector<File>()}; }),
             Mentions("the list of files is empty"));
}

TEST_CASE("TarShards: what a File throws is an error of the file, or of the sample", "[file]") {
  const Tar made(20);
  const std::string name = "TarShards: mem://bucket/a.tar: ";
  const TarShards shards(std::vector{File(made.memory)});
  made.memory->broken = 3 * 5 * 512 + 600;  // A sample takes 5 blocks.
  CHECK(failure(shards, 3, "mem://bucket/a.tar") ==
        name + "member 3.jpg (of sample 3) is lost: the server is gone");
  CHECK(failure(shards, 2, "mem://bucket/a.tar") == "(nothing was thrown)");
  made.memory->broken = 0;
  try {
    TarShards{std::vector{File(made.memory)}};
    FAIL("it was opened");
  } catch (const StoreError& error) {
    CHECK(error.what() == name + "the server is gone");
    CHECK(error.file() == "mem://bucket/a.tar");
  }
}

TEST_CASE("TarShards::will_need asks for whole samples, on this machine neighbours together",
          "[file]") {
  const Tar made(300);
  const TarShards shards(std::vector{File(made.memory)});
  const auto begin = [&](std::uint64_t i) {
    return made.memory->bytes.find(
        test::TarWriter::header(std::to_string(i) + ".jpg", 600 + i).substr(0, 148));
  };
  const auto end = [&](std::uint64_t i) { return begin(i + 1) - 511; };  // "7" of the last block
  made.memory->number = 0;
  shards.will_need(Indices{200, 8, 7, 300}, kDue);
  CHECK(made.memory->ranges ==
        Asked{{begin(7), end(8) - begin(7)}, {begin(200), end(200) - begin(200)}});
  CHECK(made.memory->calls == 1);
  CHECK(made.memory->due == kDue);
}

TEST_CASE("TarShards: an index of Files is in a folder of this machine", "[file]") {
  const Tar made(2000);
  const std::vector files{File(made.memory)};
  const TarShards without(files);
  CHECK(made.memory->reads > 1000);
  CHECK(made.memory->calls == 0);
  CHECK_THAT(thrown<StoreError>([&] { without.save_indexes(); }),
             Mentions("mem://bucket/a.tar: the shard is not of this machine: set "
                      "TarShardsOptions::index_folder"));

  const TarShardsOptions options{.index_folder = made.directory / "."};
  TarShards(files, options).save_indexes();
  CHECK(read_file(made.directory / "a.idx").starts_with("v1.2 2000\njpg 512 600 0.jpg "));
  made.memory->reads = 0;
  const TarShards by_index(files, options);
  CHECK(by_index.size() == 2000);
  CHECK(made.memory->reads <= 128 + 3);
  CHECK(made.memory->calls == 1);  // of the headers that are compared
  CHECK(made.memory->ranges.size() == 64);
  CHECK(std::ranges::all_of(made.memory->ranges, [](auto range) { return range.second == 512; }));
  std::vector<std::byte> scratch;
  CHECK(as_text(by_index.read(1234, scratch)) == Tar::jpeg(1234));

  made.memory->broken = 0;  // What is compared by this byte is left out.
  CHECK(TarShards(files, options).size() == 2000);
  made.memory->broken = ~0ull;
  made.memory->bytes.replace(0, 1, "1");
  CHECK_THAT(thrown<StoreError>([&] { TarShards(files, options); }),
             Mentions("mem://bucket/a.tar"));
}

TEST_CASE("TarShards: an index of paths may be in a folder, too", "[file]") {
  const Tar made(3);
  const TarShardsOptions options{.index_folder = made.directory / "indexes"};
  std::filesystem::create_directory(options.index_folder);
  TarShards({made.directory / "a.tar"}, options).save_indexes();
  CHECK(std::filesystem::exists(made.directory / "indexes/a.idx"));
  CHECK_FALSE(std::filesystem::exists(made.directory / "a.idx"));
  CHECK(TarShards({made.directory / "a.tar"}, options).size() == 3);
  write_file(made.directory / "indexes/a.idx", "none");
  CHECK_THAT(thrown<StoreError>([&] { TarShards({made.directory / "a.tar"}, options); }),
             Mentions("indexes/a.idx: line 1: the index must begin with"));
  CHECK(TarShards({made.directory / "a.tar"}).size() == 3);
}

// ---- FileFolder

TEST_CASE("FileFolder reads the files of a list by a reader, without an allocation", "[file]") {
  const TemporaryDirectory directory;
  write_file(directory / "list",
             "#class\tcat\n#class\tdog\ncat/a.jpg\t0\n./dog/b.jpg\t1\n/c.jpg\n");
  const auto reader = std::make_shared<MemoryFolder>();
  reader->files = {{"cat/a.jpg", "aaa"}, {"dog/b.jpg", "bb"}, {"/c.jpg", "c"}};
  const FileFolder files = FileFolder::from_list(reader, directory / "list");
  REQUIRE(files.size() == 3);
  CHECK(files.classes() == std::vector<std::string>{"cat", "dog"});
  CHECK(files.label(1) == 1);
  CHECK(files.name(1) == "train/dog/b.jpg");
  std::vector<std::byte> scratch(10);
  const std::uint64_t before = test::allocations_of_this_thread();
  CHECK(files.read(0, scratch).size() == 3);
  CHECK(test::allocations_of_this_thread() == before);
  CHECK(as_text(files.read(0, scratch)) == "aaa");
  CHECK(as_text(files.read(1, scratch)) == "bb");
  CHECK(as_text(files.read(2, scratch)) == "c");  // The reader has no other root.
  files.save_list(directory / "again");
  const FileFolder again = FileFolder::from_list(reader, directory / "again");
  CHECK(again.classes() == files.classes());
  for (std::uint64_t i = 0; i < 3; ++i) CHECK(again.name(i) == files.name(i));
}

TEST_CASE("FileFolder: what a reader throws, and an empty file, is an error of the sample",
          "[file]") {
  const auto reader = std::make_shared<MemoryFolder>();
  reader->files = {{"empty.jpg", ""}};
  const std::vector<std::string> names{"cat/none.jpg", "empty.jpg"};
  const FileFolder files = FileFolder::from_files(reader, names, {4, 5});
  CHECK(files.label(1) == 5);
  CHECK(failure(files, 0, "mem://bucket/train/cat/none.jpg") ==
        "FileFolder: mem://bucket/train/cat/none.jpg: sample 0 is lost: there is no such object");
  CHECK_THAT(failure(files, 1, "mem://bucket/train/empty.jpg"), Mentions("the file is empty"));
  std::vector<std::byte> scratch;
  CHECK(FileFolder::from_files(reader, names, {}, {.allow_empty = true}).read(1, scratch).empty());
  const auto refused = [&](const auto& call) { return thrown<std::invalid_argument>(call); };
  CHECK_THAT(refused([&] { FileFolder::from_files(reader, {"a/"}); }),
             Mentions("\"a/\" is no path of a file"));
  const TemporaryDirectory directory;
  for (const std::string name : {"../a.jpg", "cat/../../a.jpg", "./../a.jpg", "cat/..",
                                 "http://host/a.jpg", "s3://bucket/a.jpg"}) {
    INFO(name);
    CHECK_THAT(refused([&] {
                 FileFolder::from_files(reader, {"cat/a.jpg", name});
               }),
               Mentions('"' + name + "\" is no path of a file within the folder"));
    write_file(directory / "list", "cat/a.jpg\n" + name + "\t1\n");
    CHECK_THAT(
        thrown<StoreError>([&] { FileFolder::from_list(reader, directory / "list"); }),
        Mentions("list: line 2, \"" + name) && Mentions("must be the path of a file within the"));
    CHECK(FileFolder::from_list(directory / "list").size() == 2);  // Of this machine it may be.
  }
  const std::vector<std::string> allowed{"..a.jpg", "cat/...", "cat/http://a.jpg", "/a://b",
                                         "://a"};
  CHECK(FileFolder::from_files(reader, allowed).size() == allowed.size());
  CHECK_THAT(refused([&] { FileFolder::from_files(nullptr, names); }), Mentions("no reader"));
  CHECK_THAT(refused([&] { FileFolder::from_list(nullptr, "list"); }), Mentions("no reader"));
}

TEST_CASE("FileFolder::will_need tells a reader many names at a time", "[file]") {
  const auto reader = std::make_shared<MemoryFolder>();
  std::vector<std::string> names;
  for (int i = 0; i < 600; ++i) names.push_back("class/" + std::to_string(i) + ".jpg");
  names.push_back(std::string(20'000, 'x'));  // longer than any system takes
  const FileFolder files = FileFolder::from_files(reader, names);
  files.will_need(Indices{5, 3, 601, 600, ~0ull, 3}, kDue);
  CHECK(reader->wanted == std::vector<std::string>{"class/5.jpg", "class/3.jpg", "class/3.jpg"});
  CHECK(reader->calls == 1);
  CHECK(reader->due == kDue);
  reader->wanted.clear();
  Indices all(600);
  for (std::uint64_t i = 0; i < 600; ++i) all[i] = i;
  files.will_need(all);
  names.pop_back();
  CHECK(reader->wanted == names);
  CHECK(reader->calls == 1 + 3);  // 256 names at a time
  CHECK(reader->due == kNoTime);
  files.will_need({}, kDue);
  CHECK(reader->calls == 4);

  reader->wanted.clear();
  reader->calls = 0;
  const std::vector<std::string> two(10, std::string(4000, 'y'));  // 4 of them at a time
  FileFolder::from_files(reader, two).will_need(Indices{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, kDue);
  CHECK(reader->wanted == two);
  CHECK(reader->calls == 3);
  CHECK_THAT(failure(files, 600, ("mem://bucket/train/" + std::string(20'000, 'x')).c_str()),
             Mentions("File name too long"));
}

}  // namespace
}  // namespace penstock
