// SPDX-License-Identifier: Apache-2.0

// Indexes of older versions of wds2idx, which name no members, or ignore pax.

#include <cstdint>
#include <filesystem>
#include <penstock/tar_shards.hpp>
#include <string>
#include <string_view>

#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/tar_shard.hpp"
#include "support/tar_writer.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using test::content;
using test::Mentions;
using test::names;
using test::read_file;
using test::Shard;
using test::shard_failure;
using test::TarWriter;
using test::write_file;

TEST_CASE("an index of wds2idx v1.1 is read, with the names of the tar", "[tar_shards]") {
  const std::string longer(300, 'n');
  const Shard shard(TarWriter()
                        .add("README", "no sample")
                        .add("a.jpg", "abc")
                        .add("a.cls", "1")
                        .add_gnu(longer + ".jpg", "long")
                        .add_pax(TarWriter::pax_record("path", "b.jpg") +
                                     TarWriter::pax_record("size", "5") +
                                     TarWriter::pax_record("comment", std::string(20'000, 'c')),
                                 TarWriter::header("cut", 0), "bytes")
                        .add(".hidden.jpg", "no sample"));
  const fs::path index = shard.directory / "a.idx";
  const TarShards scanned = shard.open();
  scanned.save_indexes();
  std::string lines = "v1.1 5\nREADME 512 9\n";  // which wds2idx lists
  for (std::uint64_t i = 0; i < scanned.size(); ++i) {
    std::string line = read_file(index);
    for (std::uint64_t skip = 0; skip <= i; ++skip) line.erase(0, line.find('\n') + 1);
    line.resize(line.find('\n'));
    const std::string name = scanned.name(i).substr(6), base = name.substr(0, name.rfind('.'));
    for (std::size_t at = line.find(" " + base); at != std::string::npos;
         at = line.find(" " + base))
      line.erase(at, base.size() + 5);
    lines += line + "\n";
  }
  write_file(index, lines + "jpg " + std::to_string(fs::file_size(shard.path) - 1536) + " 9\n");
  const TarShards shards = shard.open();
  CHECK(names(shards) == names(scanned));
  for (std::uint64_t i = 0; i < scanned.size(); ++i)
    CHECK(content(shards, i) == content(scanned, i));
  CHECK(shards.label(0) == 1);

  const auto failure_with = [&](std::string_view line) {
    write_file(index, "v1.1 1\n" + std::string(line) + "\n");
    return shard_failure(shard.path);
  };
  CHECK_THAT(failure_with("jpg 1536 4"),
             Mentions("a.idx: line 2: member of extension jpg, 4 bytes from byte 1536 on, has no "
                      "header there") &&
                 Mentions("Remove the index"));
  CHECK_THAT(failure_with("jpg 2048 3"), Mentions("has no header there"));
  CHECK_THAT(failure_with("jpg 0 3"), Mentions("cannot begin at byte 0"));
  CHECK_THAT(failure_with("png 1536 3"), Mentions("member a.jpg has not the extension png"));
  CHECK_THAT(failure_with("jpg 1536"), Mentions("groups of \"extension offset size\""));
  CHECK_THAT(failure_with("jpg 1536 3 a.jpg"), Mentions("groups of \"extension offset size\""));
}

TEST_CASE("an index of wds2idx v1.1: the end of a member is no note of the next one",
          "[tar_shards]") {
  // As the end of a tar within the tar, which was cut behind a long name.
  const std::string note = TarWriter().add_gnu(std::string(300, 'n'), "").bytes().substr(0, 1024);
  const Shard shard(TarWriter().add("a.jpg", note).add("b.jpg", "abc"));
  const TarShards scanned = shard.open();
  write_file(shard.directory / "a.idx", "v1.1 2\njpg 512 1024\njpg 2048 3\n");
  const TarShards shards = shard.open();
  CHECK(names(shards) == names(scanned));
  CHECK(content(shards, 1) == "abc");
}

/// The index of `tar`, with names, where each place is what wds2idx takes for it that knows no
/// headers before a member's own: behind the first of them.
std::string index_of_first_headers(const TarWriter& tar, int samples) {
  std::string index = "v1.2 " + std::to_string(samples) + "\n";
  const std::string bytes = tar.bytes();
  bool is_first = true;
  std::size_t first = 0;
  for (std::size_t at = 0; bytes[at] != '\0';) {
    if (is_first) first = at;
    const std::size_t size = std::stoul(bytes.substr(at + 124, 11), nullptr, 8);
    is_first = bytes[at + 156] == '0';
    if (is_first) {
      const std::string name = bytes.substr(at, bytes.find('\0', at) - at);
      index +=
          "jpg " + std::to_string(first + 512) + " " + std::to_string(size) + " " + name + "\n";
    }
    at += 512 + (size + 511) / 512 * 512;
  }
  return index;
}

TEST_CASE("an index of old wds2idx over a tar with pax headers is refused when it is opened",
          "[tar_shards]") {
  constexpr int kSamples = 1000;
  const int first = GENERATE(0, 137, 998), of_pax = GENERATE(1, 2, 1000);
  TarWriter tar;
  for (int i = 0; i < kSamples; ++i) {
    const std::string name = std::to_string(i) + ".jpg";
    if (i >= first && i < first + of_pax)
      tar.add_pax(TarWriter::pax_record("mtime", "1.5"), TarWriter::header(name, 5), "bytes");
    else
      tar.add(name, "bytes");
  }
  const Shard shard(tar);
  write_file(shard.directory / "a.idx", index_of_first_headers(tar, kSamples));
  CHECK_THAT(shard_failure(shard.path),
             Mentions("a.idx: member ") && Mentions("where a header of pax or GNU tar lies") &&
                 Mentions("Remove the index") && Mentions("--ignore-index"));
  CHECK(TarShards({shard.path}, {.use_indexes = false}).size() == kSamples);
  fs::remove(shard.directory / "a.idx");
  shard.open().save_indexes();
  CHECK(shard.open().size() == kSamples);
}

}  // namespace
}  // namespace penstock
