// SPDX-License-Identifier: Apache-2.0

// TarShards by the headers of its tars. By their indexes: tar_shards_index_test.cpp.

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

TEST_CASE("TarShards tells which members a sample has", "[tar_shards]") {
  const Shard shard(TarWriter().add("a.jpg", "a").add("a.CLS", "").add("b.seg.png", "b"));
  const TarShards shards = shard.open();
  CHECK(shards.has(0, ".cls"));
  CHECK(shards.has(0, "JPG"));
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
