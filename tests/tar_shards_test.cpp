// SPDX-License-Identifier: Apache-2.0

#include <sys/stat.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <penstock/tar_shards.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/tar_writer.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using test::as_text;
using test::Mentions;
using test::read_file;
using test::TarWriter;
using test::TemporaryDirectory;
using test::thrown;
using test::write_file;

std::string content(const TarShards& shards, std::uint64_t index) {
  std::vector<std::byte> scratch;
  return as_text(shards.read(index, scratch));
}
std::string content(const TarShards& shards, std::uint64_t index, std::string_view extension) {
  std::vector<std::byte> scratch;
  return as_text(shards.read(index, extension, scratch));
}

std::vector<std::string> names(const TarShards& shards) {
  std::vector<std::string> all;
  for (std::uint64_t i = 0; i < shards.size(); ++i) all.push_back(shards.name(i));
  return all;
}

/// What the constructor throws for one shard.
std::string shard_failure(const fs::path& shard, TarShardsOptions options = {}) {
  return thrown<StoreError>([&] { TarShards({shard}, options); });
}

/// A directory with one shard.
struct Shard {
  explicit Shard(const TarWriter& tar) { tar.save(path); }
  TarShards open() const { return TarShards({path}); }
  const TemporaryDirectory directory;
  const fs::path path = directory / "a.tar";
};

/// `samples` of them: NUMBER.cls, a number, and NUMBER.jpg.
TarWriter numbered(int first, int samples) {
  TarWriter tar;
  for (int i = first; i < first + samples; ++i) {
    const std::string base = "dir/" + std::to_string(i);
    tar.add(base + ".cls", std::to_string(i % 10) + "\n");
    tar.add(base + ".jpg", std::string(static_cast<std::size_t>(100 * i % 1700 + 1), 'j') + base);
  }
  return tar;
}

TEST_CASE("TarShards numbers samples through its files, and reads their members", "[tar_shards]") {
  const TemporaryDirectory directory;
  numbered(0, 30).save(directory / "a.tar");
  numbered(30, 1).save(directory / "b.tar");
  numbered(31, 20).save(directory / "c.tar");
  const TarShards shards({directory / "a.tar", directory / "b.tar", directory / "c.tar"});
  REQUIRE(shards.size() == 51);
  CHECK(shards.name(0) == "a.tar/dir/0.jpg");
  CHECK(shards.name(29) == "a.tar/dir/29.jpg");
  CHECK(shards.name(30) == "b.tar/dir/30.jpg");
  CHECK(shards.name(31) == "c.tar/dir/31.jpg");
  for (std::uint64_t i = 0; i < shards.size(); ++i) {
    const std::string base = "dir/" + std::to_string(i);
    CHECK(content(shards, i) == std::string(100 * i % 1700 + 1, 'j') + base);
    CHECK(content(shards, i, ".cls") == std::to_string(i % 10) + "\n");
    CHECK(shards.label(i) == static_cast<std::int32_t>(i % 10));
  }
}

TEST_CASE("members with one base name that follow each other are a sample", "[tar_shards]") {
  const Shard shard(TarWriter()
                        .add("x/a.seg.png", "segments")
                        .add("x/a.JPG", "jpeg")
                        .add("x/a.txt", "text")
                        .add("y/a.jpg", "another directory")
                        .add("y.z/b.c/d.txt", "dots in directories")
                        .add("x/a.jpg", "again, later"));
  const TarShards shards = shard.open();
  CHECK(names(shards) == std::vector<std::string>{"a.tar/x/a.JPG", "a.tar/y/a.jpg",
                                                  "a.tar/y.z/b.c/d.txt", "a.tar/x/a.jpg"});
  CHECK(content(shards, 0) == "jpeg");
  CHECK(content(shards, 0, ".seg.png") == "segments");
  CHECK(content(shards, 0, "seg.PNG") == "segments");
  CHECK(content(shards, 0, ".jpg") == "jpeg");
  CHECK(content(shards, 2) == "dots in directories");
  CHECK(content(shards, 3) == "again, later");
}

TEST_CASE("a sample does not go on in the next shard", "[tar_shards]") {
  const TemporaryDirectory directory;
  TarWriter().add("a.jpg", "first").save(directory / "a.tar");
  TarWriter().add("a.jpg", "second").save(directory / "b.tar");
  const TarShards shards({directory / "a.tar", directory / "b.tar"});
  REQUIRE(shards.size() == 2);
  CHECK(content(shards, 1) == "second");
}

TEST_CASE("what belongs to no sample is skipped", "[tar_shards]") {
  const Shard shard(TarWriter()
                        .add("x.y/", "", '5')
                        .add(".hidden", "a")
                        .add("x/.hidden.jpg", "b")
                        .add("README", "c")
                        .add("ends.", "d")
                        .add("pipe.jpg", "", '6')
                        .add("device.jpg", "", '3')
                        .add("global", test::TarWriter::pax_record("path", "no.jpg"), 'g')
                        .add("link", "", '2')
                        .add("a.jpg", "image"));
  CHECK(names(shard.open()) == std::vector<std::string>{"a.tar/a.jpg"});
}

TEST_CASE("TarShards reads each of the formats", "[tar_shards]") {
  const std::string directories = std::string(70, 'd') + "/" + std::string(80, 'e');
  const std::string name = directories + "/sample.jpg";
  TarWriter tar;
  SECTION("ustar: a prefix") {
    tar.raw(TarWriter::header("sample.jpg", 5, '0', directories)).content("bytes");
  }
  SECTION("GNU: a long name, and one of a link behind it") {
    tar.add("././@LongLink", "nowhere", 'K').add_gnu(name, "bytes");
  }
  SECTION("pax: a path") {
    tar.add_pax(TarWriter::pax_record("mtime", "1.5") + TarWriter::pax_record("path", name),
                TarWriter::header("cut", 5), "bytes");
  }
  SECTION("pax: a size") {
    tar.add_pax(TarWriter::pax_record("path", name) + TarWriter::pax_record("size", "5"),
                TarWriter::header("cut", 0), "bytes");
  }
  SECTION("pax, and then a GNU name") {
    tar.add("PaxHeaders/x", TarWriter::pax_record("size", "5"), 'x')
        .add("././@LongLink", name + '\0', 'L')
        .raw(TarWriter::header("cut", 0))
        .content("bytes");
  }
  tar.add("next.jpg", "next");
  const Shard shard(tar);
  const TarShards shards = shard.open();
  CHECK(names(shards) == std::vector<std::string>{"a.tar/" + name, "a.tar/next.jpg"});
  CHECK(content(shards, 0) == "bytes");
  CHECK(content(shards, 1) == "next");
}

TEST_CASE("TarShards reads numbers and checksums as others write them", "[tar_shards]") {
  std::string spaces = TarWriter::header("a.jpg", 0);
  std::snprintf(&spaces[124], 12, "%11o", 9u);  // spaces before it, none behind it
  spaces[135] = '\0';
  std::string without_end = TarWriter::header("b.jpg", 0);
  std::string("000000000011").copy(&without_end[124], 12);
  const Shard shard(TarWriter()
                        .raw(TarWriter::with_checksum(spaces))
                        .content("nine byte")
                        .raw(TarWriter::with_checksum(without_end))
                        .content("nine byte")
                        .raw(TarWriter::header_with_binary_size("c.jpg", 9))
                        .content("nine byte")
                        .raw(TarWriter::with_checksum(TarWriter::header("\xFF\xFE.jpg", 9), true))
                        .content("nine byte")
                        .add("old.jpg", "nine byte", '\0')
                        .add("contiguous.jpg", "nine byte", '7'));
  const TarShards shards = shard.open();
  REQUIRE(shards.size() == 6);
  for (std::uint64_t i = 0; i < 6; ++i) CHECK(content(shards, i) == "nine byte");
  CHECK(shards.name(3) == "a.tar/\xFF\xFE.jpg");
}

TEST_CASE("TarShards reads into scratch memory without allocating", "[tar_shards]") {
  const Shard shard(numbered(0, 40));
  const TarShards shards = shard.open();
  std::vector<std::byte> scratch(4096);
  const std::byte* const memory = scratch.data();
  shards.read(0, scratch);  // The first read of a process finds out how much memory there is.
  const std::uint64_t before = test::allocations_of_this_thread();
  std::int64_t sum = 0;
  for (std::uint64_t i = 0; i < shards.size(); ++i) {
    sum += static_cast<std::int64_t>(shards.read(i, scratch).size());
    sum += shards.label(i);
    sum += static_cast<std::int64_t>(shards.read(i, ".cls", scratch).size());
  }
  shards.will_need(std::vector<std::uint64_t>{});
  const std::uint64_t allocated = test::allocations_of_this_thread() - before;
  CHECK(sum > 40);
  CHECK(allocated == 0);
  CHECK(scratch.data() == memory);
}

TEST_CASE("TarShards may be read by many threads", "[tar_shards]") {
  const Shard shard(numbered(0, 100));
  const TarShards shards = shard.open();
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<std::byte> scratch;
      for (std::uint64_t i = 0; i < shards.size(); ++i) {
        wrong[t] += as_text(shards.read(i, scratch)).ends_with("jdir/" + std::to_string(i)) ? 0 : 1;
        wrong[t] += shards.label(i) == static_cast<std::int32_t>(i % 10) ? 0 : 1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("a label is the number in the member .cls", "[tar_shards]") {
  const Shard shard(TarWriter()
                        .add("a.jpg", "x")
                        .add("a.cls", " -12\r\n")
                        .add("b.cls", "dog")
                        .add("c.cls", "")
                        .add("d.cls", "99999999999")
                        .add("e.cls", std::string(100, '1'))
                        .add("f.jpg", "x"));
  const TarShards shards = shard.open();
  const auto failure_of = [&](std::uint64_t i) {
    return thrown<StoreError>([&] { shards.label(i); });
  };
  CHECK(shards.label(0) == -12);
  CHECK_THAT(failure_of(1),
             Mentions("a.tar: member b.cls (of sample 1)") && Mentions("\"dog\" is no number"));
  CHECK_THAT(failure_of(2), Mentions("\"\" is no number"));
  CHECK_THAT(failure_of(3), Mentions("\"99999999999\" is no number"));
  CHECK_THAT(failure_of(4), Mentions("member e.cls") && Mentions("no number"));
  CHECK_THAT(failure_of(5), Mentions("a.tar: sample 5, f, has no member .cls"));
}

TEST_CASE("an empty main member is an error, another one is not", "[tar_shards]") {
  const Shard shard(TarWriter().add("a.jpg", "").add("a.txt", ""));
  const TarShards shards = shard.open();
  CHECK_THAT(thrown<StoreError>([&] { content(shards, 0); }),
             Mentions("a.tar: member a.jpg (of sample 0) is lost: it is empty"));
  CHECK(content(shards, 0, ".txt").empty());
}

TEST_CASE("TarShards has no samples but its own", "[tar_shards]") {
  const Shard shard(numbered(0, 3));
  const TarShards shards = shard.open();
  std::vector<std::byte> scratch;
  for (const std::uint64_t i : {std::uint64_t{3}, std::numeric_limits<std::uint64_t>::max()}) {
    CHECK_THROWS_AS(shards.read(i, scratch), std::out_of_range);
    CHECK_THROWS_AS(shards.read(i, ".cls", scratch), std::out_of_range);
    CHECK_THROWS_AS(shards.label(i), std::out_of_range);
    CHECK_THAT(thrown<std::out_of_range>([&] { shards.name(i); }),
               Mentions("no sample " + std::to_string(i) + ", but 3"));
  }
  shards.will_need(std::vector<std::uint64_t>{3, 0, 2, ~0ull});
  CHECK_THROWS_AS(TarShards(std::vector<fs::path>{}), std::invalid_argument);
}

// ---- Indexes ------------------------------------------------------------------------------------

TEST_CASE("an index has the bytes that wds2idx writes", "[tar_shards]") {
  const Shard shard(TarWriter()
                        .add("d/", "", '5')
                        .add("d/0.jpg", std::string(600, 'x'))
                        .add("d/0.cls", "7")
                        .add("d/1.seg.png", "y"));
  shard.open().save_indexes();
  CHECK(TarShards::index_path(shard.path) == shard.directory / "a.idx");
  CHECK(read_file(shard.directory / "a.idx") ==
        "v1.2 2\njpg 1024 600 d/0.jpg cls 2560 1 d/0.cls\nseg.png 3584 1 d/1.seg.png\n");
}

TEST_CASE("an index is used instead of the headers", "[tar_shards]") {
  const TemporaryDirectory directory;
  numbered(0, 30).save(directory / "a.tar");
  numbered(30, 5).save(directory / "b.tar");
  const std::vector<fs::path> paths{directory / "a.tar", directory / "b.tar"};
  const TarShards scanned(paths);
  scanned.save_indexes();
  const TarShards indexed(paths);
  CHECK(names(indexed) == names(scanned));
  for (std::uint64_t i = 0; i < indexed.size(); ++i) {
    CHECK(content(indexed, i) == content(scanned, i));
    CHECK(indexed.label(i) == scanned.label(i));
  }
  write_file(directory / "b.idx", "v1.2 1\r\njpg 1536 3031 dir/30.jpg\r\n\n");  // is what it says
  CHECK(TarShards(paths).size() == 31);
  CHECK(TarShards(paths, {.use_indexes = false}).size() == 35);
}

/// What a shard with one member, a.jpg of 3 bytes at 512, and with this index throws.
std::string index_failure(std::string_view index) {
  const Shard shard(TarWriter().add("a.jpg", "abc"));
  write_file(shard.directory / "a.idx", index);
  CHECK(content(TarShards({shard.path}, {.use_indexes = false}), 0) == "abc");
  return thrown<StoreError>([&] { shard.open(); });
}

TEST_CASE("an index that does not fit is an error that names it", "[tar_shards]") {
  CHECK_THAT(index_failure(""), Mentions("a.idx: line 0: the index must begin with \"v1.2\""));
  CHECK_THAT(index_failure("v1.1 1\njpg 512 3\n"), Mentions("begins with \"v1.1\""));
  CHECK_THAT(index_failure("v1.2\n"), Mentions("line 1: there is no number of samples"));
  CHECK_THAT(index_failure("v1.2 x\n"), Mentions("no number of samples"));
  CHECK_THAT(index_failure("v1.2 2\njpg 512 3 a.jpg\n"), Mentions("2 samples, and has 1"));
  CHECK_THAT(index_failure("v1.2 0\njpg 512 3 a.jpg\n"), Mentions("0 samples, and has 1"));
  CHECK_THAT(index_failure("v1.2 0\n"), Mentions("a.tar: there is no sample in it"));
  CHECK_THAT(index_failure("v1.2 1\njpg 512 3\n"), Mentions("line 2: a sample is groups"));
  CHECK_THAT(index_failure("v1.2 1\njpg 512 3 a b.jpg\n"), Mentions("line 2: a sample is groups"));
  CHECK_THAT(index_failure("v1.2 1\njpg 512 3 a.jpg \n \n"),
             Mentions("line 3: a sample is groups"));
  CHECK_THAT(index_failure("v1.2 1\njpg -512 3 a.jpg\n"), Mentions("line 2: a sample is groups"));
  CHECK_THAT(index_failure("v1.2 1\njpg 513 3 a.jpg\n"),
             Mentions("a.jpg cannot begin at byte 513"));
  CHECK_THAT(index_failure("v1.2 1\njpg 0 3 a.jpg\n"), Mentions("a.jpg cannot begin at byte 0"));
  CHECK_THAT(index_failure("v1.2 1\njpg 4096 3 a.jpg\n"),
             Mentions("a.idx: line 2: member a.jpg, 3 bytes from byte 4096 on, does not fit into "
                      "the tar's 2048"));
  CHECK_THAT(index_failure("v1.2 1\njpg 512 9999 a.jpg\n"), Mentions("does not fit into"));
  CHECK_THAT(index_failure("v1.2 1\njpg 512 18446744073709551615 a.jpg\n"),
             Mentions("does not fit into"));
  CHECK_THAT(index_failure("v1.2 1\njpg 512 18446744073709551616 a.jpg\n"), Mentions("groups of"));
  CHECK_THAT(index_failure("v1.2 1\njpg 512 3 a.jpg cls 512 3 b.cls\n"),
             Mentions("members a and b.cls are of two samples"));
  CHECK_THAT(index_failure("v1.2 1\njpg 512 3 a.jp\n"),
             Mentions("line 2: member a.jp has not the extension jpg"));
  CHECK_THAT(index_failure("v1.2 1\njpg 512 3 a.jpg JPG 512 3 a.JPG\n"),
             Mentions("line 2: member a.JPG: the sample has another member with this extension"));
}

TEST_CASE("an index that is older than its tar is an error", "[tar_shards]") {
  const Shard shard(numbered(0, 2));
  shard.open().save_indexes();
  fs::last_write_time(
      shard.path, fs::last_write_time(shard.directory / "a.idx") + std::chrono::milliseconds(1));
  CHECK_THAT(shard_failure(shard.path), Mentions("a.idx: the index is older than its tar"));
  CHECK(TarShards({shard.path}, {.use_indexes = false}).size() == 2);
  fs::remove(shard.directory / "a.idx");
  fs::create_directory(shard.directory / "a.idx");
  fs::last_write_time(shard.path, fs::last_write_time(shard.directory / "a.idx"));
  CHECK_THAT(shard_failure(shard.path), Mentions("a.idx: not a regular file"));
}

TEST_CASE("of an index that points to other bytes, reading is an error", "[tar_shards]") {
  const Shard shard(TarWriter().add("a.jpg", "abc").add("b.jpg", "def").add("c.jpg", "ghij"));
  const auto failure_with = [&](std::string_view line) {
    write_file(shard.directory / "a.idx", "v1.2 1\n" + std::string(line) + "\n");
    const TarShards shards = shard.open();
    return thrown<StoreError>([&] { content(shards, 0); });
  };
  const auto wrong = Mentions("is lost: its header is not before its bytes");
  CHECK_THAT(failure_with("jpg 1024 3 a.jpg"), wrong);   // no header
  CHECK_THAT(failure_with("jpg 1536 3 a.jpg"), wrong);   // another member
  CHECK_THAT(failure_with("jpg 512 4 a.jpg"), wrong);    // another size
  CHECK_THAT(failure_with("jpg 512 3 x/a.jpg"), wrong);  // another name
  CHECK_THAT(failure_with("jpg 512 3 \\303.jpg"),
             Mentions("nothing was thrown"));  // not to be compared
}

TEST_CASE("names that pax gives to members of short names come back from an index",
          "[tar_shards]") {
  TarWriter tar;
  for (const char* name : {"a.jpg", "b.jpg"})
    tar.add_pax(TarWriter::pax_record("path", name) + TarWriter::pax_record("size", "5"),
                TarWriter::header("other", 0), "bytes");
  const Shard shard(tar.add("c.jpg", "plain"));
  shard.open().save_indexes();
  const TarShards shards = shard.open();
  CHECK(content(shards, 0) == "bytes");
  CHECK(content(shards, 1) == "bytes");
  CHECK(content(shards, 2) == "plain");
}

TEST_CASE("what an index lists and belongs to no sample is skipped", "[tar_shards]") {
  const Shard shard(TarWriter().add("README", "no sample").add("a.jpg", "abc"));
  write_file(shard.directory / "a.idx", "v1.2 2\nREADME 512 9 README\njpg 1536 3 a.jpg\n");
  const TarShards shards = shard.open();
  REQUIRE(shards.size() == 1);
  CHECK(content(shards, 0) == "abc");
}

TEST_CASE("a name with a space does not fit into an index", "[tar_shards]") {
  const Shard shard(TarWriter().add("a.jpg", "a").add("b c.jpg", "bc"));
  const TarShards shards = shard.open();
  CHECK(content(shards, 1) == "bc");
  CHECK_THAT(thrown<StoreError>([&] { shards.save_indexes(); }),
             Mentions("a.tar: member b c.jpg: a name with a space"));
  CHECK(std::distance(fs::directory_iterator(shard.directory / ""), {}) == 1);
}

TEST_CASE("long names and other characters come back from an index", "[tar_shards]") {
  const std::string longer(300, 'n');
  const Shard shard(TarWriter()
                        .add_gnu(longer + ".jpg", "long")
                        .add("\xC3\xA4.jpg", "umlaut")
                        .raw(TarWriter::header("sample.jpg", 6, '0', "prefix"))
                        .content("prefix"));
  shard.open().save_indexes();
  const TarShards shards = shard.open();
  CHECK(shards.name(0) == "a.tar/" + longer + ".jpg");
  CHECK(content(shards, 0) == "long");
  CHECK(content(shards, 1) == "umlaut");
  CHECK(shards.name(2) == "a.tar/prefix/sample.jpg");
  CHECK(content(shards, 2) == "prefix");
}

TEST_CASE("a sample of two members takes 40 bytes and its base name at most", "[tar_shards]") {
  constexpr std::size_t kSamples = 50'000, kNameBytes = 8;
  const Shard shard(TarWriter().add("x.jpg", std::string(4000, 'x')));
  {
    std::ofstream index(shard.directory / "a.idx");
    index << "v1.2 " << kSamples << '\n';
    for (std::size_t i = 0; i < kSamples; ++i)
      index << "jpg 512 4000 " << 10'000'000 + i << ".jpg cls 1024 1 " << 10'000'000 + i
            << ".cls\n";
  }
  const std::int64_t before = test::bytes_of_this_thread();
  const TarShards shards = shard.open();
  const std::int64_t bytes = test::bytes_of_this_thread() - before;
  CHECK(shards.size() == kSamples);
  CHECK(bytes <= static_cast<std::int64_t>(kSamples * (40 + kNameBytes) + 4096));
}

// ---- What is wrong ------------------------------------------------------------------------------

TEST_CASE("a tar that is wrong is an error that names file and member", "[tar_shards]") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "a.tar";
  const auto failure_of = [&](std::string_view bytes) {
    write_file(path, bytes);
    return shard_failure(path);
  };
  const std::string good = numbered(0, 3).bytes();
  CHECK(failure_of(good) == "(nothing was thrown)");

  SECTION("no tar at all") {
    CHECK_THAT(shard_failure(directory / "none.tar"),
               Mentions("none.tar: cannot open: No such file"));
    CHECK_THAT(shard_failure(directory / ""), Mentions("not a regular file"));
    CHECK_THAT(failure_of(std::string(2000, 'x')), Mentions("a.tar: at byte 0 is no header"));
    CHECK_THAT(failure_of(""), Mentions("the file is cut: it ends at byte 0"));
    CHECK_THAT(failure_of(std::string(1024, '\0')), Mentions("there is no sample in it"));
    CHECK_THAT(failure_of(TarWriter().add("README", "x").bytes()), Mentions("there is no sample"));
    CHECK_THAT(failure_of("\x1F\x8B\x08" + std::string(1000, 'z')), Mentions("is compressed"));
    CHECK_THAT(failure_of("\x28\xB5\x2F\xFD" + std::string(1000, 'z')), Mentions("is compressed"));
  }
  SECTION("cut anywhere") {
    for (std::size_t bytes = 0; bytes < good.size() - 1024 + 512; ++bytes) {
      INFO(bytes);
      const std::string why = failure_of(good.substr(0, bytes));
      if (why.find("the file is cut") == std::string::npos) FAIL_CHECK(why);
    }
    CHECK_THAT(failure_of(good.substr(0, 1200)), Mentions("the file is cut: it ends at byte 1200"));
    CHECK_THAT(failure_of(good.substr(0, 514)),
               Mentions("member dir/0.cls") || Mentions("ends at byte 514"));
    CHECK_THAT(failure_of(good.substr(0, 513)),
               Mentions("member dir/0.cls, 2 bytes from byte 512 on, does not fit into the file's "
                        "513: the file is cut"));
  }
  SECTION("a header that is damaged") {
    for (const std::size_t at : {0u, 124u, 148u, 156u, 257u, 511u}) {
      std::string bytes = good;
      bytes[1024 + at] ^= 1;
      CHECK_THAT(failure_of(bytes), Mentions("at byte 1024 is no header of a member"));
    }
  }
  SECTION("sizes") {
    CHECK_THAT(failure_of(TarWriter::header_with_binary_size("a.jpg", ~0ull) + good),
               Mentions("member a.jpg, 18446744073709551615 bytes from byte 512 on, does not fit"));
    std::string negative = TarWriter::header("a.jpg", 0);
    negative[124] = '\xFF';
    CHECK_THAT(failure_of(TarWriter::with_checksum(negative) + good),
               Mentions("the header at byte 0 has no size"));
    std::string letters = TarWriter::header("a.jpg", 0);
    letters[126] = 'x';
    CHECK_THAT(failure_of(TarWriter::with_checksum(letters) + good), Mentions("has no size"));
    CHECK_THAT(failure_of(TarWriter::header("long", std::uint64_t{1} << 30, 'L') + good),
               Mentions("(a long name), 1073741824 bytes") && Mentions("the file is cut"));
    CHECK_THAT(failure_of(TarWriter().add("long", std::string(2 << 20, 'n'), 'L').bytes()),
               Mentions("at byte 0: a name or header of 2097152 bytes"));
  }
  SECTION("pax") {
    const auto pax = [&](std::string_view records) {
      return failure_of(TarWriter().add_pax(records, TarWriter::header("a.jpg", 1), "x").bytes());
    };
    for (const std::string_view records :
         {"5 a=b\n", "7 a=b\n", "6 a b\n", "x\n", "6 a=bc", "99999999999999999999 a=b\n", "3 \n",
          "10 size=x\n", "11 size=-1\n", "6"})
      CHECK_THAT(pax(records), Mentions("at byte 0: a header of pax that is damaged"));
    CHECK_THAT(pax(TarWriter::pax_record("path", std::string("a\0b.jpg", 7))),
               Mentions("a name with a character 0"));
    CHECK_THAT(pax(TarWriter::pax_record("path", "s.jpg") +
                   TarWriter::pax_record("GNU.sparse.major", "1")),
               Mentions("member s.jpg is sparse"));
    CHECK_THAT(pax(TarWriter::pax_record("size", "9999")), Mentions("member a.jpg, 9999 bytes"));
  }
  SECTION("members whose bytes lie elsewhere") {
    CHECK_THAT(failure_of(TarWriter().add("a.jpg", "", '1').bytes()),
               Mentions("member a.jpg is a link") && Mentions("--dereference"));
    CHECK_THAT(failure_of(TarWriter().add("a.jpg", "", '2').bytes()), Mentions("is a link"));
    CHECK_THAT(failure_of(TarWriter().add("a.jpg", "", 'S').bytes()), Mentions("is sparse"));
    CHECK_THAT(failure_of(TarWriter().add("a.jpg", "", 'M').bytes()), Mentions("type 'M'"));
  }
  SECTION("two members with one extension") {
    CHECK_THAT(failure_of(TarWriter().add("a.jpg", "x").add("a.JPG", "y").bytes()),
               Mentions("a.tar: member a.JPG: the sample has another member with this extension"));
    CHECK_THAT(failure_of(TarWriter().add("a.JPG", "x").add("a.jPG", "y").bytes()),
               Mentions("member a.jPG"));
  }
}

TEST_CASE("a name is shown with the bytes that are no text", "[tar_shards]") {
  const Shard shard(TarWriter().add("\xFF\n.jpg", ""));
  const TarShards shards = shard.open();
  CHECK_THAT(thrown<StoreError>([&] { content(shards, 0); }), Mentions("member \\xFF\\x0A.jpg"));
}

TEST_CASE("a member that is larger than memory is an error", "[tar_shards]") {
  const TemporaryDirectory directory;
  constexpr std::uint64_t kBytes = std::uint64_t{1} << 39;  // of a hole
  const fs::path path = directory / "a.tar";
  write_file(path, TarWriter::header_with_binary_size("a.jpg", kBytes));
  fs::resize_file(path, 512 + kBytes + 1024);
  const TarShards shards({path});
  CHECK_THAT(thrown<StoreError>([&] { content(shards, 0); }),
             Mentions("a.tar: member a.jpg (of sample 0) is lost") &&
                 Mentions("549755814400 bytes are more than half of the memory"));
}

TEST_CASE("of a shard that changes, what is left is right and the rest an error", "[tar_shards]") {
  const Shard shard(numbered(0, 20));
  const TarShards shards = shard.open();
  const std::string right = content(shards, 3), bytes = read_file(shard.path);
  SECTION("cut") {
    const std::size_t cut = bytes.size() / 2;
    fs::resize_file(shard.path, cut);
    CHECK(content(shards, 3) == right);
    try {
      content(shards, 19);
      FAIL("nothing was thrown");
    } catch (const StoreError& error) {
      CHECK_THAT(error.what(),
                 Mentions("a.tar: member dir/19.jpg (of sample 19) is lost: the file "
                          "has " +
                          std::to_string(cut) + " bytes, and had " + std::to_string(bytes.size())));
      CHECK(error.file() == shard.path);
      CHECK(error.sample() == 19u);
    }
    shards.will_need(std::vector<std::uint64_t>{3, 19});  // A hint has no errors.
  }
  SECTION("written anew in place") {
    write_file(shard.path, numbered(1, 20).bytes());
    CHECK_THAT(thrown<StoreError>([&] { content(shards, 3); }),
               Mentions("its header is not before its bytes"));
  }
  SECTION("replaced by another, or removed: as it was") {
    fs::remove(shard.path);
    numbered(5, 5).save(shard.path);
    CHECK(content(shards, 3) == right);
  }
}

}  // namespace
}  // namespace penstock
