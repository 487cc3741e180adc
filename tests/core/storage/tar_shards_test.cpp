// SPDX-License-Identifier: Apache-2.0

// TarShards by the headers of its tars. By their indexes: tar_shards_index_test.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <penstock/tar_shards.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
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
using test::as_text;
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
                        .add("global", test::TarWriter::pax_record("comment", "no.jpg"), 'g')
                        .add("._a.jpg", "of macOS")
                        .add("x/._a.jpg", "of macOS")
                        .add("__MACOSX/x/a.jpg", "of macOS")
                        .add("x/.ipynb_checkpoints/a-checkpoint.jpg", "of Jupyter")
                        .add(".ipynb_checkpoints/a.jpg", "of Jupyter")
                        .add("link", "", '2')
                        .add("a.jpg", "image"));
  CHECK(names(shard.open()) == std::vector<std::string>{"a.tar/a.jpg"});
  CHECK(shard.open().ignored() == 5);
  write_file(shard.directory / "a.idx",
             "v1.2 2\njpg 10240 10 x/.ipynb_checkpoints/a-checkpoint.jpg\n"
             "jpg 12800 5 a.jpg\n");
  CHECK(names(shard.open()) == std::vector<std::string>{"a.tar/a.jpg"});
  CHECK(shard.open().ignored() == 1);
}

TEST_CASE("has() and read() take the same extensions", "[tar_shards]") {
  const Shard shard(TarWriter().add("n..json", "j").add("n..jpg", "jj").add("m.jpg", "m"));
  const TarShards shards = shard.open();
  REQUIRE(shards.size() == 2);
  for (const char* extension : {"..json", "..JSON", "..jpg", ".json", "json", "...json", ".", ""}) {
    CAPTURE(extension);
    const std::string expected = shards.has(0, extension) ? "(nothing was thrown)" : "no member";
    CHECK_THAT(thrown<StoreError>([&] { content(shards, 0, extension); }), Mentions(expected));
  }
  CHECK(content(shards, 0, "..json") == "j");
  CHECK(content(shards, 0, "..jpg") == "jj");
  CHECK_FALSE(shards.has(0, ".json"));
  CHECK_FALSE(shards.has(0, "...json"));
  CHECK(shards.has(1, ".jpg"));
  CHECK(shards.has(1, "jpg"));
  CHECK_FALSE(shards.has(1, "..jpg"));
  CHECK_THAT(thrown<StoreError>([&] { content(shards, 1, "..jpg"); }),
             Mentions("sample 1, m, has no member ..jpg"));
  CHECK_THAT(thrown<StoreError>([&] { content(shards, 1, "cls"); }), Mentions("no member .cls"));
}

TEST_CASE("a global header of pax counts until another one", "[tar_shards]") {
  const auto global = [](std::string_view key, std::string_view value) {
    return TarWriter::pax_record(key, value);
  };
  const Shard shard(
      TarWriter()
          .add("g", global("path", "x/ab.jpg"), 'g')
          .add("one.jpg", "first")
          .add("two.cls", "", '5')
          .add_pax(TarWriter::pax_record("path", "own.jpg"), TarWriter::header("cut", 5), "other")
          .add_pax(TarWriter::pax_record("path", ""), TarWriter::header("header.jpg", 5), "third")
          .add_gnu("long.jpg", "fourth")
          .add("g", global("comment", "of no use"), 'g')
          .add("five.jpg", "fifth")
          .add("g", global("path", "") + global("size", "6"), 'g')
          .raw(TarWriter::header("six.jpg", 1))
          .content("sixth!")
          .add_pax(TarWriter::pax_record("size", "7"), TarWriter::header("seven.jpg", 1),
                   "seventh"));
  const TarShards shards = shard.open();
  CHECK(names(shards) == std::vector<std::string>{"a.tar/x/ab.jpg", "a.tar/own.jpg",
                                                  "a.tar/header.jpg", "a.tar/long.jpg",
                                                  "a.tar/x/ab.jpg", "a.tar/six.jpg",
                                                  "a.tar/seven.jpg"});
  const char* const expected[] = {"first", "other",  "third",  "fourth",
                                  "fifth", "sixth!", "seventh"};
  for (std::uint64_t i = 0; i < 7; ++i) CHECK(content(shards, i) == expected[i]);
}

TEST_CASE("a member of no bytes is a sample where the options say so", "[tar_shards]") {
  const Shard shard(TarWriter().add("a.jpg", "").add("a.cls", "1").add("b.jpg", "b"));
  const TarShards strict = shard.open(), shards({shard.path}, {.allow_empty = true});
  CHECK_THAT(thrown<StoreError>([&] { content(strict, 0); }),
             Mentions("a.tar: member a.jpg (of sample 0) is lost: it is empty") &&
                 Mentions("set TarShardsOptions::allow_empty"));
  CHECK(content(strict, 1) == "b");
  CHECK(content(shards, 0).empty());
  CHECK(shards.label(0) == 1);
  CHECK(content(shards, 1) == "b");
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
    tar.add_pax(TarWriter::pax_record("mtime", "1.5") + TarWriter::pax_record("", "") +
                    TarWriter::pax_record("path", name),
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

TEST_CASE("TarShards tells which members a sample has", "[tar_shards]") {
  const Shard shard(
      TarWriter().add("a.jpg", "a").add("a.CLS", "").add("a.AZ", "").add("b.seg.png", "b"));
  const TarShards shards = shard.open();
  CHECK(shards.has(0, ".cls"));
  CHECK(shards.has(0, "JPG"));
  CHECK(shards.has(0, "az"));
  CHECK_FALSE(shards.has(0, ".seg.png"));
  CHECK(shards.has(1, "seg.png"));
  CHECK_FALSE(shards.has(1, ".cls"));
  CHECK_THROWS_AS(shards.has(2, ".cls"), std::out_of_range);
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
    CHECK_THAT(failure_of(std::string(2000, 'x')),
               Mentions("a.tar: at byte 0 is no header") &&
                   Mentions("or no tar. It begins with \"" + std::string(32, 'x') + "\""));
    CHECK_THAT(failure_of(""), Mentions("the file is empty"));
    CHECK_THAT(failure_of("404: Not Found\n"),
               Mentions("or no tar: it has 15 bytes") && Mentions("\"404: Not Found\\x0A\""));
    CHECK_THAT(failure_of(std::string(2048, '\0') + good), Mentions("the file begins with zeros"));
    CHECK_THAT(failure_of(std::string(1024, '\0')), Mentions("there is no sample in it"));
    CHECK_THAT(failure_of(TarWriter().add("README", "x").bytes()), Mentions("there is no sample"));
  }
  SECTION("what the bytes are, of a long and of a short file") {
    const std::string rest(GENERATE(20u, 3000u), 'z');
    const auto compressed = [](const std::string& remedy) {
      return Mentions("a.tar: the tar is compressed: decompress it (" + remedy + ")");
    };
    CHECK_THAT(failure_of("\x1F\x8B\x08" + rest), compressed("gunzip"));
    CHECK_THAT(failure_of("\x1F\x9D" + rest), compressed("uncompress"));
    CHECK_THAT(failure_of("\x28\xB5\x2F\xFD" + rest), compressed("unzstd"));
    CHECK_THAT(failure_of(std::string("\xFD\x37zXZ\0", 6) + rest), compressed("unxz"));
    CHECK_THAT(failure_of("BZh91AY&SY" + rest), compressed("bunzip2"));
    CHECK_THAT(failure_of("\x04\x22\x4D\x18" + rest), compressed("unlz4"));
    CHECK_THAT(failure_of("LZIP\x01" + rest), compressed("lzip -d"));
    const auto other = [](const std::string& what) {
      return Mentions("a.tar: the file is no tar: it is " + what);
    };
    CHECK_THAT(failure_of("PK\x03\x04" + rest), other("a zip archive: unpack it"));
    CHECK_THAT(failure_of("7z\xBC\xAF\x27\x1C" + rest), other("a 7z archive"));
    CHECK_THAT(failure_of("Rar!\x1A\x07" + rest), other("a rar archive"));
    CHECK_THAT(failure_of("PNSTPACK" + rest), other("a pack of penstock: open it with PackedFile"));
    CHECK_THAT(
        failure_of("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n" + rest),
        other("a Git-LFS pointer in place of the file (it begins with \"version https://") &&
            Mentions("): fetch the file (git lfs pull)"));
    CHECK_THAT(failure_of("/annex/objects/SHA256E-s9--0.tar" + rest), other("a git-annex pointer"));
    for (const std::string page :
         {"<html><body>404 Not Found</body></html>", "\n\n <!DOCTYPE html><p>", "<!doctype HTML>",
          "\xEF\xBB\xBF<HTML>", "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>"})
      CHECK_THAT(failure_of(page + rest),
                 other("a page in HTML or XML") && Mentions("(it begins with \""));
  }
  SECTION("cut anywhere") {
    std::vector<std::size_t> member_ends;
    for (std::size_t at = 0; at < good.size() - 1024; member_ends.push_back(at))
      at += 512 + (std::stoul(good.substr(at + 124, 11), nullptr, 8) + 511) / 512 * 512;
    for (std::size_t bytes = 1; bytes < good.size() - 1024 + 512; ++bytes) {
      INFO(bytes);
      const std::string why = failure_of(good.substr(0, bytes));
      const bool is_end = std::count(member_ends.begin(), member_ends.end(), bytes) > 0;
      const bool is_short = bytes < 512;
      if (why.find(is_end     ? "the tar has no end: behind its last member, at byte "
                   : is_short ? "the file is cut, or no tar"
                              : "the file is cut") == std::string::npos)
        FAIL_CHECK(why);
    }
    CHECK_THAT(failure_of(good.substr(0, 1200)), Mentions("the file is cut: it ends at byte 1200"));
    CHECK_THAT(
        failure_of(TarWriter()
                       .add("PaxHeaders/x", TarWriter::pax_record("mtime", "1.5"), 'x')
                       .bytes()
                       .substr(0, 1024)),
        Mentions("the file is cut: it ends at byte 1024, behind a header that says something "
                 "about the next member"));
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
      CHECK_THAT(failure_of(bytes),
                 Mentions("at byte 1024 is no header of a member") && !Mentions("It begins"));
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
    // As GNU tar writes them: versions 0.0 and 1.0 of its sparse format.
    CHECK_THAT(pax(TarWriter::pax_record("GNU.sparse.size", "1048576") +
                   TarWriter::pax_record("GNU.sparse.numblocks", "0")),
               Mentions("member a.jpg is sparse: make the tar without --sparse"));
    CHECK_THAT(pax(TarWriter::pax_record("GNU.sparse.major", "1") +
                   TarWriter::pax_record("GNU.sparse.name", "x/b.jpg")),
               Mentions("member x/b.jpg is sparse"));
    const std::string member_of_no_sample =
        TarWriter()
            .add_pax(TarWriter::pax_record("GNU.sparse.name", "LOG"), TarWriter::header("a.jpg", 1),
                     "x")
            .add("b.jpg", "b")
            .bytes();
    CHECK(failure_of(member_of_no_sample) == "(nothing was thrown)");
    CHECK_THAT(failure_of(TarWriter().add("g", "6 a=bc", 'g').bytes()),
               Mentions("a header of pax that is damaged"));
  }
  SECTION("more behind the end") {
    CHECK_THAT(failure_of(good + good),
               Mentions("a.tar: the tar ends at byte " + std::to_string(good.size() - 1024) +
                        ", and there is more behind it: members from byte " +
                        std::to_string(good.size()) + " on, as cat of two tars leaves them") &&
                   Mentions("tar --concatenate"));
    CHECK_THAT(failure_of(good + std::string(102'400, '\0') + good), Mentions("members from byte"));
    CHECK_THAT(failure_of(good.substr(0, good.size() - 512) + good), Mentions("members from byte"));
    CHECK_THAT(failure_of(good + "x"),
               Mentions("other bytes from byte " + std::to_string(good.size()) + " on") &&
                   Mentions("truncate --size=" + std::to_string(good.size())));
    CHECK(failure_of(good + std::string(1'000'000, '\0')) == "(nothing was thrown)");
    CHECK(failure_of(good.substr(0, good.size() - 512)) == "(nothing was thrown)");  // one of zeros
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

TEST_CASE("a tar without its end is one where the options say so", "[tar_shards]") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "a.tar";
  const std::string good = numbered(0, 3).bytes();
  const auto open = [&](std::string_view bytes) {
    write_file(path, bytes);
    return shard_failure(path, {.allow_missing_end = true});
  };
  CHECK_THAT(
      shard_failure((write_file(path, good.substr(0, good.size() - 1024)), path)),
      Mentions("a.tar: the tar has no end") && Mentions("set TarShardsOptions::allow_missing_end"));
  CHECK(open(good) == "(nothing was thrown)");
  CHECK(open(good.substr(0, good.size() - 1024)) == "(nothing was thrown)");
  const TarShards shards({path}, {.allow_missing_end = true});
  REQUIRE(shards.size() == 3);
  CHECK(content(shards, 2) == std::string(201, 'j') + "dir/2");
  // The bytes are whole, but not the last block.
  CHECK(open(good.substr(0, good.size() - 1024 - 512 + 206)) == "(nothing was thrown)");
  CHECK(content(TarShards({path}, {.allow_missing_end = true}), 2) == content(shards, 2));
  CHECK_THAT(open(good.substr(0, good.size() - 1024 - 512 + 205)), Mentions("the file is cut"));
  CHECK_THAT(open(good.substr(0, good.size() - 1024 - 512)), Mentions("the file is cut"));
  CHECK_THAT(open(good.substr(0, good.size() - 1024 - 600)), Mentions("the file is cut"));
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
