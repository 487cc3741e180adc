// SPDX-License-Identifier: Apache-2.0

// The indexes that TarShards reads in place of the headers of its tars, and writes.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <penstock/tar_shards.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/tar_shard.hpp"
#include "support/tar_writer.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using test::content;
using test::Mentions;
using test::names;
using test::numbered;
using test::read_file;
using test::Shard;
using test::shard_failure;
using test::TarWriter;
using test::TemporaryDirectory;
using test::thrown;
using test::write_file;

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
  write_file(directory / "b.idx", "v1.2 1\r\njpg 1536 1307 dir/30.jpg\r\n\n");  // is what it says
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
  CHECK_THAT(index_failure(""), Mentions("a.idx: line 0: the index must begin with \"v1.2\" or "
                                         "\"v1.1\", and begins with \"\". Remove the index"));
  CHECK_THAT(index_failure("v1.0 1\njpg 512 3\n"), Mentions("begins with \"v1.0\""));
  CHECK_THAT(index_failure("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
             Mentions("a.idx: line 1: it is no index: it is a Git-LFS pointer"));
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

TEST_CASE("an index may be older than its tar, as copies make it", "[tar_shards]") {
  const Shard shard(numbered(0, 2));
  shard.open().save_indexes();
  const auto make_older = [&] {
    fs::last_write_time(
        shard.path, fs::last_write_time(shard.directory / "a.idx") + std::chrono::milliseconds(1));
  };
  make_older();
  const TarShards shards = shard.open();
  REQUIRE(shards.size() == 2);
  CHECK(content(shards, 1) == content(TarShards({shard.path}, {.use_indexes = false}), 1));
  SECTION("not if the tar has more samples now") {
    numbered(0, 3).save(shard.path);
    make_older();
    CHECK_THAT(shard_failure(shard.path),
               Mentions("a.idx: the index is older than its tar, and does not have member "
                        "dir/2.cls, whose bytes begin at byte ") &&
                   Mentions("Touch the index") && Mentions("Remove the index"));
    fs::last_write_time(shard.directory / "a.idx", fs::last_write_time(shard.path));
    CHECK(shard.open().size() == 2);  // An index says which samples there are.
  }
  SECTION("nor if the tar is another one") {
    numbered(1, 2).save(shard.path);
    make_older();
    CHECK_THAT(shard_failure(shard.path), Mentions("a.idx: ") && Mentions("Remove the index"));
  }
  SECTION("and must be a file") {
    fs::remove(shard.directory / "a.idx");
    fs::create_directory(shard.directory / "a.idx");
    CHECK_THAT(shard_failure(shard.path), Mentions("a.idx: not a regular file"));
  }
}

TEST_CASE("a sparse member that an index lists is refused", "[tar_shards]") {
  const Shard shard(TarWriter().add_pax(TarWriter::pax_record("GNU.sparse.major", "1") +
                                            TarWriter::pax_record("GNU.sparse.name", "b.jpg"),
                                        TarWriter::header("GNUSparseFile.0/b.jpg", 5), "bytes"));
  write_file(shard.directory / "a.idx", "v1.2 1\njpg 1536 5 b.jpg\n");
  CHECK_THAT(shard_failure(shard.path),
             Mentions("a.idx: member b.jpg, 5 bytes, is not at byte 1536 of the tar"));
}

TEST_CASE("an index that points to other bytes is an error, which says to remove it",
          "[tar_shards]") {
  const Shard shard(TarWriter().add("a.jpg", "abc").add("b.jpg", "def").add("c.jpg", "ghij"));
  const auto failure_with = [&](std::string_view line) {
    write_file(shard.directory / "a.idx", "v1.2 1\n" + std::string(line) + "\n");
    return shard_failure(shard.path);
  };
  const auto wrong = Mentions(
      "of the tar: it is the index of another tar, or the tar has changed. "
      "Remove the index");
  CHECK_THAT(failure_with("jpg 1024 3 a.jpg"), wrong);   // no header
  CHECK_THAT(failure_with("jpg 1536 3 a.jpg"), wrong);   // another member
  CHECK_THAT(failure_with("jpg 512 4 a.jpg"), wrong);    // another size
  CHECK_THAT(failure_with("jpg 512 3 x/a.jpg"), wrong);  // another name
  CHECK_THAT(failure_with("jpg 512 3 \\303.jpg"), wrong);
  CHECK_THAT(failure_with("jpg 512 3 \\141.jpg"), Mentions("nothing was thrown"));  // is an a
}

TEST_CASE("what an index says about a member is compared when that is read", "[tar_shards]") {
  constexpr int kSamples = 200;
  TarWriter tar;
  for (int i = 0; i < kSamples; ++i) tar.add(std::to_string(i) + ".jpg", "bytes");
  const Shard shard(tar);
  shard.open().save_indexes();
  std::string index = read_file(shard.directory / "a.idx");
  int wrong = 0;
  for (int i = 0; i < kSamples; ++i) {
    const std::string line = std::to_string(i * 1024 + 512) + " 5 " + std::to_string(i) + ".jpg\n";
    std::string changed = index;
    changed[changed.find(" " + line) + line.find(" 5 ") + 2] = '4';
    write_file(shard.directory / "a.idx", changed);
    try {
      const TarShards shards = shard.open();
      CHECK_THAT(thrown<StoreError>([&] { content(shards, static_cast<std::uint64_t>(i)); }),
                 Mentions("is lost: its header is not before its bytes"));
    } catch (const StoreError& error) {
      CHECK_THAT(error.what(), Mentions("is not at byte"));
      ++wrong;
    }
  }
  CHECK(wrong == 64);
}

TEST_CASE("an index is not blamed where its tar is none", "[tar_shards]") {
  const Shard shard(TarWriter().add("a.jpg", "abc"));
  shard.open().save_indexes();
  const auto failure_of = [&](std::string_view bytes) {
    write_file(shard.path, bytes);
    return shard_failure(shard.path);
  };
  CHECK_THAT(failure_of("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
             Mentions("a.tar: the file is no tar: it is a Git-LFS pointer"));
  CHECK_THAT(failure_of("\x1F\x8B\x08" + std::string(4000, 'z')), Mentions("is compressed"));
  const std::string good = TarWriter().add("a.jpg", "abc").bytes();
  CHECK_THAT(failure_of(good + TarWriter().add("b.jpg", "abc").bytes()),
             Mentions("a.tar: the tar ends at byte 1024, and there is more behind it"));
  CHECK_THAT(failure_of(good.substr(0, 1024)), Mentions("a.tar: the tar has no end"));
}

TEST_CASE("an index does not list links, and is read beside them", "[tar_shards]") {
  const Shard shard(TarWriter().add("a.jpg", "", '2').add("b.jpg", "abc").add("c.jpg", "", '1'));
  write_file(shard.directory / "a.idx", "v1.2 1\njpg 1024 3 b.jpg\n");
  CHECK(names(shard.open()) == std::vector<std::string>{"a.tar/b.jpg"});
}

TEST_CASE("names and sizes of a global header come back from an index", "[tar_shards]") {
  const Shard shard(
      TarWriter().add("g", TarWriter::pax_record("path", "ab.jpg"), 'g').add("one.jpg", "bytes"));
  CHECK(names(shard.open()) == std::vector<std::string>{"a.tar/ab.jpg"});
  shard.open().save_indexes();
  CHECK(read_file(shard.directory / "a.idx") == "v1.2 1\njpg 1536 5 ab.jpg\n");
  CHECK(content(shard.open(), 0) == "bytes");
  write_file(shard.directory / "a.idx", "v1.1 1\njpg 1536 5\n");
  CHECK(names(shard.open()) == std::vector<std::string>{"a.tar/ab.jpg"});
  CHECK(content(shard.open(), 0) == "bytes");
}

TEST_CASE("an index may begin with a byte order mark", "[tar_shards]") {
  const Shard shard(TarWriter().add("a.jpg", "abc"));
  write_file(shard.directory / "a.idx", "\xEF\xBB\xBFv1.2 1\r\njpg 512 3 a.jpg\r\n");
  CHECK(content(shard.open(), 0) == "abc");
}

/// Whatever two members of `shard` an index confuses, and whatever size it has for one, it is an
/// error.
void require_right_places(const Shard& shard, std::uint64_t stride) {
  shard.open().save_indexes();
  const fs::path index = shard.directory / "a.idx";
  const std::string right = read_file(index);
  const auto failure_with = [&](std::uint64_t sample, std::uint64_t offset, std::uint64_t size) {
    const TarShards shards = shard.open();
    const std::string name = shards.name(sample).substr(std::string("a.tar/").size());
    write_file(index, "v1.2 1\njpg " + std::to_string(offset) + " " + std::to_string(size) + " " +
                          name + "\n");
    const std::string failure = thrown<StoreError>([&] { content(shard.open(), 0); });
    write_file(index, right);
    return failure;
  };
  const std::uint64_t first = stride - 512;  // a stride: notes, a header and a block of bytes
  const auto wrong = Mentions(
      "of the tar: it is the index of another tar, or the tar has changed. "
      "Remove the index");
  for (std::uint64_t sample = 0; sample < 2; ++sample) {
    CAPTURE(sample);
    CHECK_THAT(failure_with(sample, first + stride * sample, 5), Mentions("nothing was thrown"));
    CHECK_THAT(failure_with(sample, first + stride * (1 - sample), 5), wrong);
    CHECK_THAT(failure_with(sample, first + stride * sample, 4), wrong);
    CHECK_THAT(failure_with(sample, first + stride * sample, 6), wrong);
  }
}

TEST_CASE("an index cannot confuse members whose names are not plain", "[tar_shards]") {
  const std::string longer(300, 'n');
  SECTION("other letters") {
    require_right_places(
        Shard(TarWriter().add("\xC3\xA4.jpg", "first").add("\xC3\xB6.jpg", "other")), 1024);
  }
  SECTION("a backslash") {
    require_right_places(Shard(TarWriter().add("a\\1.jpg", "first").add("a\\2.jpg", "other")),
                         1024);
  }
  SECTION("long names of GNU tar") {
    require_right_places(
        Shard(TarWriter().add_gnu(longer + "1.jpg", "first").add_gnu(longer + "2.jpg", "other")),
        2048);
  }
  SECTION("names and sizes of pax") {
    TarWriter tar;
    for (const char* name : {"1.jpg", "2.jpg"})
      tar.add_pax(TarWriter::pax_record("path", longer + name) + TarWriter::pax_record("size", "5"),
                  TarWriter::header("same", 0), "bytes");
    require_right_places(Shard(tar), 2048);
  }
  SECTION("short names of pax") {
    TarWriter tar;
    for (const char* name : {"1.jpg", "2.jpg"})
      tar.add_pax(TarWriter::pax_record("path", name), TarWriter::header("same", 5), "bytes");
    require_right_places(Shard(tar), 2048);
  }
  SECTION("a prefix") {
    TarWriter tar;
    for (const char* name : {"1.jpg", "2.jpg"})
      tar.raw(TarWriter::header(name, 5, '0', std::string(120, 'p'))).content("bytes");
    require_right_places(Shard(tar), 1024);
  }
}

TEST_CASE("an index may have names as tar --list writes them", "[tar_shards]") {
  const Shard shard(TarWriter().add("\xC3\xA4.jpg", "umlaut").add("\\\t\x7F.jpg", "others"));
  write_file(shard.directory / "a.idx",
             "v1.2 2\njpg 512 6 \\303\\244.jpg\njpg 1536 6 \\\\\\t\\177.jpg\n");
  const TarShards shards = shard.open();
  CHECK(content(shards, 0) == "umlaut");
  CHECK(content(shards, 1) == "others");
}

TEST_CASE("names in large headers of pax come back from an index", "[tar_shards]") {
  const std::string longer(300, 'n');
  const Shard shard(TarWriter()
                        .add("0.jpg", std::string(9000, '0'))
                        .add_pax(TarWriter::pax_record("path", longer + ".jpg") +
                                     TarWriter::pax_record("comment", std::string(20'000, 'c')),
                                 TarWriter::header(longer, 5), "bytes"));
  shard.open().save_indexes();
  CHECK(content(shard.open(), 1) == "bytes");
}

TEST_CASE("two shards cannot have one index", "[tar_shards]") {
  const TemporaryDirectory directory;
  numbered(0, 2).save(directory / "s.000");
  numbered(2, 2).save(directory / "s.001");
  const TarShards shards({directory / "s.000", directory / "s.001"});
  CHECK_THAT(thrown<StoreError>([&] { shards.save_indexes(); }),
             Mentions("s.idx: it would be the index of both") && Mentions("s.000 and") &&
                 Mentions("s.001: rename one of them"));
  CHECK_FALSE(fs::exists(directory / "s.idx"));
  const TarShards same({directory / "s.000", directory / "s.000"});
  same.save_indexes();
  CHECK(TarShards({directory / "s.000"}).size() == 2);
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
  constexpr std::size_t kSamples = 20'000, kNameBytes = 8;
  const TemporaryDirectory directory;
  {
    std::ofstream tar(directory / "a.tar", std::ios::binary);
    std::ofstream index(directory / "a.idx");
    index << "v1.2 " << kSamples << '\n';
    for (std::size_t i = 0; i < kSamples; ++i) {
      const std::string base = std::to_string(10'000'000 + i);
      tar << TarWriter::header(base + ".jpg", 0) << TarWriter::header(base + ".cls", 0);
      index << "jpg " << 1024 * i + 512 << " 0 " << base << ".jpg cls " << 1024 * i + 1024 << " 0 "
            << base << ".cls\n";
    }
    tar << std::string(1024, '\0');
  }
  const bool use_indexes = GENERATE(true, false);
  const std::int64_t before = test::bytes_of_this_thread();
  const TarShards shards({directory / "a.tar"}, {.use_indexes = use_indexes});
  const std::int64_t bytes = test::bytes_of_this_thread() - before;
  CHECK(shards.size() == kSamples);
  CHECK(bytes <= static_cast<std::int64_t>(kSamples * (40 + kNameBytes) + 4096));
}

}  // namespace
}  // namespace penstock
