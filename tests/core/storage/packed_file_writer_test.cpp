// SPDX-License-Identifier: Apache-2.0

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <penstock/packed_file.hpp>
#include <penstock/packed_file_writer.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/packs.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using test::append_records;
using test::content;
using test::header_of;
using test::Mentions;
using test::packed_name;
using test::packed_record;
using test::set_content;
using test::TemporaryDirectory;
using test::thrown;
using test::write_pack;

constexpr std::uint64_t kPartialRecords = 20;

/// The partial file of a pack of kPartialRecords records, all of which are in it.
std::string partial_content(const TemporaryDirectory& directory) {
  {
    PackedFileWriter writer(directory / "partial.pack", "a note");
    append_records(writer, kPartialRecords);
  }
  return content(directory / "partial.pack.partial");
}

TEST_CASE("PackedFileWriter: the file appears at the end, and replaces another",
          "[packed_file_writer]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.pack";
  set_content(path, "old");
  {
    PackedFileWriter writer(path);
    append_records(writer, 3);
    CHECK(writer.size() == 3);
    CHECK(writer.record_bytes() == packed_record(1).size() + packed_record(2).size());
    CHECK(writer.name(2) == packed_name(2));
    CHECK(writer.label(2) == 1);
    CHECK_THROWS_AS(writer.name(3), std::out_of_range);
    CHECK(content(path) == "old");
    PackedFileWriter moved = std::move(writer);
    moved.finish();
    CHECK_THAT(thrown<std::logic_error>([&] { moved.append({}); }), Mentions("is finished"));
    CHECK_THROWS_AS(moved.finish(), std::logic_error);
  }
  CHECK(PackedFile(path).size() == 3);
  CHECK(!std::filesystem::exists(path.string() + ".partial"));
}

TEST_CASE("PackedFileWriter continues a partial file that was cut anywhere, to the same bytes",
          "[packed_file_writer]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.pack", partial = directory / "a.pack.partial";
  write_pack(path, kPartialRecords);
  const std::string whole = content(path);
  const std::string all = partial_content(directory);
  REQUIRE(whole.substr(64, all.size() - 64) == all.substr(64));
  std::uint64_t before = 0;
  for (std::size_t size = 0; size <= all.size(); ++size) {
    set_content(partial, std::string_view(all).substr(0, size));
    PackedFileWriter writer(path, "a note");
    if (writer.size() != before && writer.size() != before + 1) FAIL_CHECK(size << " bytes");
    before = writer.size();
    for (std::uint64_t i = 0; i < writer.size(); ++i)
      if (writer.name(i) != packed_name(i)) FAIL_CHECK(size << " bytes, record " << i);
    if (size % 97 != 0 && size + 9 < all.size()) continue;  // finish() waits for the disk.
    append_records(writer, kPartialRecords);
    writer.finish();
    if (content(path) != whole) FAIL_CHECK(size << " bytes: another file");
  }
  CHECK(before == kPartialRecords);
}

TEST_CASE("PackedFileWriter continues behind the shortest frame, and the longest",
          "[packed_file_writer]") {
  const TemporaryDirectory directory;
  const std::string name(GENERATE(std::size_t{0}, std::size_t{65536}), 'x');
  { PackedFileWriter(directory / "a.pack").append({}, 0, name); }
  CHECK(PackedFileWriter(directory / "a.pack").size() == 1);
}

/// The bytes of a partial file that mean something: not the padding.
std::vector<bool> meaningful_bytes() {
  std::vector<bool> meaningful(72, true);
  const auto add = [&](std::size_t bytes) {
    meaningful.resize(meaningful.size() + bytes, true);
    meaningful.resize(detail::padded(meaningful.size()), false);
  };
  for (std::uint64_t i = 0; i < kPartialRecords; ++i) {
    add(40 + packed_name(i).size());
    add(packed_record(i).size());
  }
  return meaningful;
}

TEST_CASE("PackedFileWriter drops what is damaged, and continues before it",
          "[packed_file_writer]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.pack", partial = directory / "a.pack.partial";
  const std::string all = partial_content(directory);
  const std::vector<bool> meaningful = meaningful_bytes();
  REQUIRE(meaningful.size() == all.size());
  for (std::size_t i = 72; i < all.size(); ++i) {
    std::string bad = all;
    bad[i] = static_cast<char>(bad[i] ^ 0x11);
    set_content(partial, bad);
    {
      PackedFileWriter writer(path, "a note");
      append_records(writer, kPartialRecords);
    }
    std::string now = content(partial);
    if (!meaningful[i]) now[i] = all[i];
    if (now != all) FAIL_CHECK("byte " << i);
  }
}

TEST_CASE("PackedFileWriter takes records in their order only, and nothing behind a gap",
          "[packed_file_writer]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.pack", partial = directory / "a.pack.partial";
  const std::string all = partial_content(directory);
  std::size_t begin = 0, end = 0;  // of record 5
  for (std::uint64_t i = 0, place = 72; i < kPartialRecords; ++i) {
    if (i == 5) begin = place;
    place += detail::padded(40 + packed_name(i).size()) + detail::padded(packed_record(i).size());
    if (i == 5) end = place;
  }
  SECTION("a record is missing") {
    set_content(partial, all.substr(0, begin) + all.substr(end));
  }
  SECTION("a record is damaged") {
    std::string bad = all;
    bad[end - 30] = '!';
    set_content(partial, bad);
  }
  PackedFileWriter writer(path, "a note");
  CHECK(writer.size() == 5);
  append_records(writer, 6);
  writer.finish();  // Nothing is left of what was behind it.
  CHECK(PackedFile(path).size() == 6);
}

TEST_CASE("PackedFileWriter continues where finish() was interrupted", "[packed_file_writer]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.pack", partial = directory / "a.pack.partial";
  write_pack(path, kPartialRecords);
  const std::string whole = content(path);
  set_content(partial, whole);  // All was done but to rename it.
  PackedFileWriter writer(path, "a note");
  CHECK(writer.size() == kPartialRecords);
  CHECK(header_of(content(partial)).index == 0);
  append_records(writer, kPartialRecords + 1);
  writer.finish();
  CHECK(PackedFile(path).size() == kPartialRecords + 1);
}

TEST_CASE("PackedFileWriter continues after its process was killed", "[packed_file_writer]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.pack";
  const std::vector<std::byte> large(700'000, std::byte{3});
  const pid_t child = ::fork();
  if (child == 0) {
    PackedFileWriter writer(path);
    for (int i = 0; i < 10; ++i) writer.append(large, i);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  PackedFileWriter writer(path);
  CHECK(writer.size() >= 8);  // The last ones were in its memory.
  CHECK(writer.size() < 10);
  while (writer.size() < 10) writer.append(large, static_cast<std::int32_t>(writer.size()));
  writer.finish();
  const PackedFile pack(path);
  std::vector<std::byte> scratch;
  for (std::uint64_t i = 0; i < 10; ++i) {
    CHECK(pack.read(i, scratch).size() == large.size());
    CHECK(pack.label(i) == static_cast<std::int32_t>(i));
  }
}

std::string writer_refusal(const std::filesystem::path& path, std::string_view note = "a note") {
  return thrown<StoreError>([&] { PackedFileWriter(path, note); });
}

TEST_CASE("PackedFileWriter refuses a partial file that is not its own, and leaves it",
          "[packed_file_writer]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.pack", partial = directory / "a.pack.partial";
  const std::string good = partial_content(directory);
  const auto check = [&](const std::string& bytes, const char* why) {
    set_content(partial, bytes);
    CHECK_THAT(writer_refusal(path), Mentions("a.pack.partial: this file") && Mentions(why) &&
                                         Mentions("remove it to begin again"));
    CHECK(content(partial) == bytes);
  };
  check("something of the user's", "is there, and is no partial pack");
  check(std::string(1000, 'x'), "is there, and is no partial pack");
  std::string other = good;
  other[64] = 'A';
  check(other, "was made in another way");
  other = good;
  other[20] = 'A';
  check(other, "has a damaged header");
  detail::PackHeader newer = header_of(good);
  newer.version = 2;
  other = good;
  test::seal(other, newer);
  check(other, "has version 2");
  set_content(partial, good);
  CHECK_THAT(writer_refusal(path, "other"), Mentions("was made in another way"));
  CHECK_THAT(writer_refusal(path, "a note, and more"), Mentions("was made in another way"));
  CHECK_THAT(writer_refusal(path, ""), Mentions("was made in another way"));
}

TEST_CASE("PackedFileWriter: one at a time", "[packed_file_writer]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.pack";
  std::optional<PackedFileWriter> first(path);
  CHECK_THAT(thrown<StoreError>([&] { PackedFileWriter{path}; }),
             Mentions("a.pack.partial: another program writes it"));
  append_records(*first, 1);
  first.reset();
  CHECK(PackedFileWriter(path).size() == 1);
}

TEST_CASE("PackedFileWriter says what it cannot write", "[packed_file_writer]") {
  const TemporaryDirectory directory;
  CHECK_THAT(writer_refusal(directory / "no/a.pack"), Mentions("a.pack.partial: cannot open it"));
  std::filesystem::create_directory(directory / "b.pack.partial");
  CHECK_THAT(writer_refusal(directory / "b.pack"),
             Mentions("cannot open it for writing: Is a directory"));
  REQUIRE(::mkfifo((directory / "e.pack.partial").c_str(), 0600) == 0);
  CHECK_THAT(writer_refusal(directory / "e.pack"), Mentions("not a regular file"));
  std::filesystem::create_symlink("elsewhere", directory / "c.pack.partial");
  CHECK_THAT(writer_refusal(directory / "c.pack"), Mentions("cannot open it for writing"));
  PackedFileWriter writer(directory / "a.pack");
  CHECK_THAT(thrown<std::invalid_argument>([&] { writer.append({}, 0, std::string(65537, 'x')); }),
             Mentions("a name of 65537 bytes"));
  CHECK_THAT(thrown<std::invalid_argument>(
                 [&] { PackedFileWriter(directory / "d.pack", std::string((16 << 20) + 1, 'x')); }),
             Mentions("a note of 16777217 bytes"));
  writer.append({}, 0, std::string(65536, 'x'));
  writer.finish();
  CHECK(PackedFile(directory / "a.pack").name(0) == std::string(65536, 'x'));
}

/// Descriptor 0 is free while it lives, as in a program that was started without standard input.
class NoStandardInput {
 public:
  NoStandardInput() : kept_(::fcntl(0, F_DUPFD_CLOEXEC, 3)) { ::close(0); }
  ~NoStandardInput() {
    if (kept_ < 0) return;
    ::dup2(kept_, 0);
    ::close(kept_);
  }
  NoStandardInput(const NoStandardInput&) = delete;
  NoStandardInput& operator=(const NoStandardInput&) = delete;
  static bool is_free() { return ::fcntl(0, F_GETFD) < 0; }

 private:
  const int kept_;
};

TEST_CASE("PackedFileWriter works, and closes what it opens, where descriptor 0 is free",
          "[packed_file_writer]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.pack";
  SECTION("for the file") {
    const NoStandardInput none;
    write_pack(path, 3);
    CHECK(none.is_free());
  }
  SECTION("for the folder") {
    const int before = GENERATE(EIO, EACCES);  // of another call, earlier
    PackedFileWriter writer(path);
    append_records(writer, 3);
    const NoStandardInput none;
    errno = before;
    writer.finish();
    CHECK(none.is_free());
  }
  CHECK(PackedFile(path).size() == 3);
}

TEST_CASE("PackedFileWriter on a full disk: an error, and what fits is kept",
          "[packed_file_writer]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.pack";
  const std::vector<std::byte> record(300'000, std::byte{5});
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  {
    PackedFileWriter writer(path);
    rlimit limit = before;
    limit.rlim_cur = 2'000'000;
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK_THAT(thrown<StoreError>([&] {
                 for (int i = 0; i < 20; ++i) writer.append(record);
               }),
               Mentions("a.pack.partial: cannot write: File too large"));
    CHECK_THAT(thrown<StoreError>([&] { writer.append(record); }),
               Mentions("writing has failed before"));
    CHECK_THAT(thrown<StoreError>([&] { writer.finish(); }), Mentions("failed before"));
  }
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, old);
  PackedFileWriter writer(path);
  CHECK(writer.size() == 6);
  while (writer.size() < 20) writer.append(record);
  writer.finish();
  CHECK(PackedFile(path).size() == 20);
}

}  // namespace
}  // namespace penstock
