// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <penstock/packed_file.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/packs.hpp"
#include "support/tar_writer.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using detail::PackEntry;
using detail::PackHeader;
using test::allocations_of_this_thread;
using test::content;
using test::header_of;
using test::Mentions;
using test::packed_name;
using test::packed_record;
using test::seal;
using test::set_content;
using test::TemporaryDirectory;
using test::thrown;
using test::write_pack;

std::string read(const PackedFile& pack, std::uint64_t index) {
  std::vector<std::byte> scratch;
  const auto bytes = pack.read(index, scratch);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Why the file is refused; empty if it is not.
std::string pack_refusal(const std::filesystem::path& path) {
  try {
    PackedFile{path};
  } catch (const StoreError& error) {
    CHECK(error.file() == path);
    return error.what();
  }
  return {};
}

TEST_CASE("PackedFile gives the records, labels and names that were written", "[packed_file]") {
  const bool names = GENERATE(true, false);
  const TemporaryDirectory directory;
  const auto path = directory / "a.pack";
  write_pack(path, 200, names);
  const PackedFile pack(path);
  REQUIRE(pack.size() == 200);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    CAPTURE(i);
    CHECK(read(pack, i) == packed_record(i));
    CHECK(pack.bytes(i) == packed_record(i).size());
    CHECK(pack.label(i) == static_cast<std::int32_t>(i % 7) - 1);
    CHECK(pack.name(i) ==
          (names ? packed_name(i) : path.string() + ", record " + std::to_string(i)));
    sum += pack.bytes(i);
  }
  const PackedFileInfo info = pack.info();
  CHECK(info.version == 1);
  CHECK(info.records == 200);
  CHECK(info.record_bytes == sum);
  CHECK(info.file_bytes == std::filesystem::file_size(path));
  CHECK(info.note == "a note");
  CHECK_THAT(thrown<std::out_of_range>([&] { read(pack, 200); }), Mentions("no record 200"));
  CHECK_THAT(thrown<std::out_of_range>([&] { static_cast<void>(pack.label(~0ull)); }),
             Mentions("but 200"));
  CHECK_THROWS_AS(pack.name(200), std::out_of_range);
  CHECK_THROWS_AS(pack.bytes(200), std::out_of_range);
}

TEST_CASE("PackedFile may have no records, or one of no bytes", "[packed_file]") {
  const TemporaryDirectory directory;
  write_pack(directory / "none.pack", 0, true, "");
  CHECK(PackedFile(directory / "none.pack").size() == 0);
  CHECK(PackedFile(directory / "none.pack").info().note.empty());
  write_pack(directory / "one.pack", 1);
  CHECK(read(PackedFile(directory / "one.pack"), 0).empty());
  {
    PackedFileWriter writer(directory / "some.pack");
    for (const std::string_view bytes : {"", "a", "", "", "b", ""})
      writer.append(std::as_bytes(std::span(bytes)), 1, "name");
    writer.finish();
  }
  const PackedFile some(directory / "some.pack");
  REQUIRE(some.size() == 6);
  some.will_need(std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5});
  std::string all;
  for (std::uint64_t i = 0; i < 6; ++i) {
    all += read(some, i) + "|";
    CHECK(some.name(i) == "name");
    CHECK(some.label(i) == 1);
  }
  CHECK(all == "|a|||b||");
}

TEST_CASE("PackedFile: some records may be without a name, and a note as long as may be",
          "[packed_file]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.pack";
  const std::string note(16 << 20, 'n');
  {
    PackedFileWriter writer(path, note);
    for (const char* const name : {"", "a", "", "", "b"}) writer.append({}, 0, name);
    writer.finish();
  }
  const PackedFile pack(path);
  CHECK(pack.info().note == note);
  CHECK(pack.name(1) == "a");
  CHECK(pack.name(2) == path.string() + ", record 2");
  CHECK(pack.name(4) == "b");
}

TEST_CASE("PackedFile may be read by many threads, without allocating", "[packed_file]") {
  const TemporaryDirectory directory;
  write_pack(directory / "a.pack", 300);
  const PackedFile pack(directory / "a.pack");
  const PackedFile copy = pack;
  std::vector<std::byte> first(100);
  pack.read(0, first);  // The first read of a process finds out how much memory there is.
  std::vector<std::uint64_t> wrong(4), allocated(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<std::byte> scratch(100);
      for (std::uint64_t i = 0; i < copy.size(); ++i) {
        const std::string expected = packed_record(i);
        const std::uint64_t before = allocations_of_this_thread();
        const auto bytes = copy.read(i, scratch);
        allocated[t] += allocations_of_this_thread() - before;
        wrong[t] += std::ranges::equal(bytes, std::as_bytes(std::span(expected))) ? 0u : 1u;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<std::uint64_t>(4, 0));
  CHECK(allocated == std::vector<std::uint64_t>(4, 0));
}

TEST_CASE("PackedFile::will_need takes any indices, and changes nothing", "[packed_file]") {
  const TemporaryDirectory directory;
  write_pack(directory / "a.pack", 50);
  const PackedFile pack(directory / "a.pack");
  const std::vector<std::uint64_t> wanted{3, 4, 5, 0, 49, 50, ~0ull, 48, 49, 10};
  pack.will_need(wanted);
  pack.will_need({});
  CHECK(read(pack, 4) == packed_record(4));
}

TEST_CASE("PackedFile is read when its file is renamed or removed", "[packed_file]") {
  const TemporaryDirectory directory;
  write_pack(directory / "a.pack", 20);
  const PackedFile pack(directory / "a.pack");
  std::filesystem::remove(directory / "a.pack");
  for (std::uint64_t i = 0; i < 20; ++i) CHECK(read(pack, i) == packed_record(i));
}

// ---- Damage ------------------------------------------------------------------------------------

/// Where the bytes of the records lie.
std::vector<std::pair<std::uint64_t, std::uint64_t>> places_of(const std::string& pack) {
  const PackHeader header = header_of(pack);
  std::vector<PackEntry> entries(header.records);
  std::memcpy(entries.data(), pack.data() + header.index, entries.size() * sizeof(PackEntry));
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
  for (const PackEntry& entry : entries)
    places.emplace_back(entry.offset, entry.offset + entry.bytes);
  return places;
}

TEST_CASE("PackedFile: whichever byte is changed is noticed, or was of no meaning",
          "[packed_file]") {
  const bool names = GENERATE(true, false);
  const TemporaryDirectory directory;
  const auto path = directory / "a.pack";
  write_pack(path, 12, names);
  const std::string good = content(path);
  const auto places = places_of(good);
  const PackHeader header = header_of(good);
  for (std::size_t i = 0; i < good.size(); ++i)
    for (const int flip : {1, 0x80, 0xff}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      set_content(path, bad);
      const bool of_index = i < sizeof(header) + header.note_bytes || i >= header.index;
      const std::string why = pack_refusal(path);
      if (why.empty() == of_index) FAIL_CHECK("byte " << i << ": " << why);
      if (of_index) continue;
      const PackedFile pack(path), careless(path, {.verify = false});
      for (std::uint64_t record = 0; record < 12; ++record) {
        const bool hit = places[record].first <= i && i < places[record].second;
        std::string error;
        try {
          if (read(pack, record) != packed_record(record)) FAIL_CHECK("wrong bytes, byte " << i);
        } catch (const StoreError& failure) {
          error = failure.what();
          CHECK(failure.sample() == record);
        }
        if (error.empty() == hit) FAIL_CHECK("record " << record << ", byte " << i << error);
        if (hit && names && error.find(packed_name(record)) == std::string::npos)
          FAIL_CHECK("without a name: " << error);
        if (hit) CHECK(read(careless, record) != packed_record(record));
      }
    }
}

TEST_CASE("PackedFile: a file that is cut anywhere is refused", "[packed_file]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.pack";
  write_pack(path, 12);
  const std::string good = content(path);
  for (std::size_t size = 0; size < good.size(); ++size) {
    set_content(path, std::string_view(good).substr(0, size));
    const std::string why = pack_refusal(path);
    if (why.find("it was cut") == std::string::npos) FAIL_CHECK(size << " bytes: " << why);
  }
  set_content(path, good + "x");
  CHECK_THAT(pack_refusal(path), Mentions("and should have " + std::to_string(good.size())));
}

TEST_CASE("PackedFile: a file that is cut or overwritten while it is open is an error",
          "[packed_file]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.pack";
  write_pack(path, 100);
  const PackedFile pack(path);
  const std::string good = content(path);
  const auto places = places_of(good);
  std::filesystem::resize_file(path, places[50].first);
  for (std::uint64_t i = 0; i < 50; ++i) CHECK(read(pack, i) == packed_record(i));
  CHECK_THAT(thrown<StoreError>([&] { read(pack, 51); }),
             Mentions("record 51 (class/132651.jpg) is lost: the file has") &&
                 Mentions("and had " + std::to_string(good.size())));
  set_content(path, std::string(good.size(), 'x'));  // in place
  CHECK_THAT(thrown<StoreError>([&] { read(pack, 51); }), Mentions("another checksum"));
}

TEST_CASE("PackedFile says what is wrong with a file", "[packed_file]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.pack";
  write_pack(path, 12);
  const std::string good = content(path);
  SECTION("missing") {
    CHECK_THAT(pack_refusal(directory / "no.pack"),
               Mentions("no.pack: cannot open") && Mentions("No such"));
  }
  SECTION("a directory") {
    CHECK_THAT(pack_refusal(directory / ""), Mentions("not a regular file"));
  }
  SECTION("foreign") {
    set_content(path, std::string(1000, 'x'));
    CHECK_THAT(pack_refusal(path),
               Mentions("the file is no pack") &&
                   Mentions("it begins with \"" + std::string(32, 'x') + "\"") &&
                   Mentions("penstock-pack"));
    const auto refusal_of = [&](std::string_view bytes) {
      set_content(path, bytes);
      return pack_refusal(path);
    };
    const std::string rest(GENERATE(20u, 3000u), 'z');
    CHECK_THAT(refusal_of("\x1F\x8B\x08" + rest),
               Mentions("is no pack") && Mentions("it is compressed with gzip: decompress it"));
    CHECK_THAT(refusal_of("PK\x03\x04" + rest), Mentions("it is a zip archive: unpack it"));
    CHECK_THAT(refusal_of("version https://git-lfs.github.com/spec/v1\n" + rest),
               Mentions("it is a Git-LFS pointer in place of the file"));
    CHECK_THAT(refusal_of("<html>" + rest), Mentions("it is a page in HTML or XML"));
    CHECK_THAT(refusal_of(test::TarWriter().add("a.jpg", rest).bytes()),
               Mentions("it is a tar: open it with TarShards"));
    CHECK_THAT(refusal_of("xyz"), Mentions("is no pack") && Mentions("it begins with \"xyz\""));
  }
  SECTION("a newer version") {
    PackHeader header = header_of(good);
    header.version = 2;
    std::string newer = good;
    seal(newer, header);
    set_content(path, newer);
    CHECK_THAT(pack_refusal(path),
               Mentions("version 2 of the format") && Mentions("use a newer one"));
  }
  SECTION("not finished") {
    std::filesystem::remove(path);
    {
      PackedFileWriter writer(path);
      test::append_records(writer, 5);
    }
    CHECK_THAT(pack_refusal(path.string() + ".partial"),
               Mentions("not finished") && Mentions("run the program"));
  }
}

/// Why `pack` is refused, changed by `spoil` and with the right checksums.
template <class Spoil>
std::string pack_refusal_of(const std::filesystem::path& path, std::string pack,
                            const Spoil& spoil) {
  PackHeader header = header_of(pack);
  auto* const entries = reinterpret_cast<PackEntry*>(pack.data() + header.index);
  spoil(header, entries, reinterpret_cast<std::uint64_t*>(entries + 12));
  seal(pack, header);
  set_content(path, pack);
  return pack_refusal(path);
}

TEST_CASE("PackedFile refuses an index that contradicts itself, with right checksums",
          "[packed_file]") {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const TemporaryDirectory directory;
  const auto path = directory / "a.pack";
  write_pack(path, 12);
  const std::string good = content(path);
  const auto check = [&](const char* what, const auto& spoil) {
    const std::string why = pack_refusal_of(path, good, spoil);
    if (why.find("the program that wrote the file was wrong") == std::string::npos)
      FAIL_CHECK(what << ": " << why);
  };
  CHECK(pack_refusal_of(path, good, [](PackHeader&, PackEntry*, std::uint64_t*) {}).empty());
  for (const std::uint64_t records : {std::uint64_t{0}, std::uint64_t{11}, std::uint64_t{13}, kMost,
                                      (std::uint64_t{1} << 59) + 12, kMost / 32, kMost / 32 + 1})
    check("records", [=](PackHeader& h, auto*, auto*) { h.records = records; });
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, kMost, kMost - 383})
    check("name bytes", [=](PackHeader& h, auto*, auto*) { h.name_bytes = bytes; });
  for (const std::uint64_t index : {std::uint64_t{1}, std::uint64_t{8}, std::uint64_t{64}, kMost,
                                    kMost - 7, std::uint64_t{1} << 20})
    check("index", [=](PackHeader& h, auto*, auto*) { h.index = index; });
  for (const std::uint32_t bytes : {1u << 20u, 0xffffffffu})
    check("note", [=](PackHeader& h, auto*, auto*) { h.note_bytes = bytes; });
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{8}, std::uint64_t{111},
                                     std::uint64_t{104}, kMost, kMost - 7})
    check("offset", [=](PackHeader&, PackEntry* e, auto*) { e[0].offset = offset; });
  for (const std::uint64_t bytes : {std::uint64_t{10'000}, kMost, kMost - 200})
    check("bytes", [=](PackHeader&, PackEntry* e, auto*) { e[11].bytes = bytes; });
  check("overlap", [](PackHeader&, PackEntry* e, auto*) { e[6].bytes += 100; });
  check("overlap of a frame", [](PackHeader&, PackEntry* e, auto*) { e[5].offset -= 8 * 7; });
  check("order", [](PackHeader&, PackEntry* e, auto*) { std::swap(e[5], e[6]); });
  check("names", [](PackHeader&, auto*, std::uint64_t* ends) { std::swap(ends[5], ends[6]); });
  check("last name", [](PackHeader&, auto*, std::uint64_t* ends) { --ends[11]; });
  check("name too long", [](PackHeader&, auto*, std::uint64_t* ends) { ++ends[11]; });
  CHECK_THAT(pack_refusal_of(path, good, [](PackHeader& h, auto*, auto*) { h.flags = 2; }),
             Mentions("unknown version or flag"));
  CHECK_THAT(pack_refusal_of(path, good, [](PackHeader& h, auto*, auto*) { h.version = 0; }),
             Mentions("unknown version or flag"));
}

TEST_CASE("PackedFile refuses an index that does not fit into memory", "[packed_file]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.pack";
  write_pack(path, 12);
  constexpr std::uint64_t kBytes = std::uint64_t{1} << 39;  // of the index, by a hole
  std::string pack = content(path);
  PackHeader header = header_of(pack);
  constexpr std::uint64_t kEach = sizeof(PackEntry) + sizeof(std::uint64_t);
  header.records = kBytes / kEach;
  header.name_bytes = kBytes - header.records * kEach;
  header.file_bytes = header.index + kBytes;
  seal(pack, header);
  set_content(path, pack);
  std::filesystem::resize_file(path, header.index + kBytes);
  CHECK_THAT(pack_refusal(path),
             Mentions("the index takes 549755813888 bytes, which are more than half"));
}

}  // namespace
}  // namespace penstock
