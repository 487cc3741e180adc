// SPDX-License-Identifier: Apache-2.0

// MdsShards over shards that are written here byte by byte. tables_test.py has those of others.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <penstock/mds_shards.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/mds_files.hpp"
#include "support/memory_files.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock::mds_shards_test {
namespace {

using namespace std::string_literals;
using test::as_text;
using test::Asked;
using test::MemoryFile;
using test::Mentions;
using test::TemporaryDirectory;
using test::thrown;
using test::write_file;
using namespace test::mds;

using Bytes = std::map<std::string, std::string>;

/// Two shards of 20 and of 5 samples.
struct Made {
  Bytes bytes{{"a.mds", shard(0, 20)}, {"b.mds", shard(20, 5)}};
  std::string index = index_of(entry("a.mds", bytes["a.mds"].size(), 20) + ", " +
                               entry("b.mds", bytes["b.mds"].size(), 5));
};

MdsShards in_memory(const std::string& index, const Bytes& bytes) {
  return {index, [&](const std::string& name) {
            if (!bytes.contains(name)) throw StoreError("Memory", name, "there is none");
            return File(std::make_shared<MemoryFile>("mem://" + name, bytes.at(name)));
          }};
}

void check_samples(const MdsShards& shards) {
  REQUIRE(shards.size() == 25);
  std::vector<std::byte> scratch;
  for (std::uint64_t i = 0; i < 25; ++i) {
    CAPTURE(i);
    const auto bytes = shards.read(i, scratch);
    CHECK(as_text(bytes) == sample(static_cast<std::uint32_t>(i)));
    CHECK(as_text(shards.field(bytes, shards.column("image"))) == std::string(3 * i, 'i'));
    CHECK(as_text(shards.field(bytes, shards.column("number"))) == number_of(i));
    CHECK(as_text(shards.field(bytes, shards.column("text"))) == std::string(i, 't'));
  }
}

TEST_CASE("MdsShards has the fields of the samples of a folder", "[mds_shards]") {
  const Made made;
  const TemporaryDirectory directory;
  for (const auto& [name, bytes] : made.bytes) write_file(directory / name.c_str(), bytes);
  write_file(directory / "index.json", made.index);
  const MdsShards shards(directory / "");
  check_samples(shards);
  CHECK(shards.name(21) == (directory / "b.mds").string() + ", sample 1");
  REQUIRE(shards.columns().size() == 3);
  CHECK(shards.columns()[1].name == "number");
  CHECK(shards.columns()[1].encoding == "int");
  CHECK(shards.columns()[1].bytes == 8);
  CHECK(shards.columns()[2].bytes == 0);
  CHECK_THAT(thrown<std::out_of_range>([&] { shards.name(25); }),
             Mentions("MdsShards: there is no sample 25, but 25, numbered from 0"));
  CHECK_THAT(thrown<std::invalid_argument>([&] { shards.column("label"); }),
             Mentions("MdsShards: there is no column label, but image, number, text"));
  std::vector<std::byte> scratch;
  CHECK_THAT(thrown<std::out_of_range>([&] { shards.field(shards.read(0, scratch), 3); }),
             Mentions("column 3 of 3"));

  std::filesystem::resize_file(directory / "b.mds", 50);
  CHECK_THAT(
      thrown<StoreError>([&] { shards.read(24, scratch); }),
      Mentions("b.mds: sample 4, at byte ") && Mentions("(of all shards: 24) is lost: the file "
                                                        "has 50 bytes"));
  CHECK_THAT(
      thrown<StoreError>([&] { MdsShards(directory / ""); }),
      Mentions("MdsShards: ") && Mentions("b.mds: the file has 50 bytes, and index.json says"));
  std::filesystem::remove(directory / "b.mds");
  CHECK_THAT(thrown<StoreError>([&] { MdsShards(directory / ""); }),
             Mentions("b.mds: cannot open"));
}

TEST_CASE("MdsShards reads Files, a sample by one read without an allocation", "[mds_shards]") {
  const Made made;
  check_samples(in_memory(made.index, made.bytes));
  std::map<std::string, std::shared_ptr<MemoryFile>> files;
  const MdsShards shards(made.index, [&](const std::string& name) {
    files[name] = std::make_shared<MemoryFile>("mem://" + name, made.bytes.at(name));
    return File(files[name]);
  });
  std::vector<std::byte> scratch(1000);
  shards.read(0, scratch);
  files["a.mds"]->reads = 0;
  const std::uint64_t before = test::allocations_of_this_thread();
  for (std::uint64_t i = 0; i < 20; ++i) shards.read(i, scratch);
  CHECK(test::allocations_of_this_thread() == before);
  CHECK(files["a.mds"]->reads == 20);
  shards.will_need(std::vector<std::uint64_t>{20, 25});
  CHECK(files["b.mds"]->ranges == Asked{{4 * 7 + 14, sample(20).size()}});
  CHECK_THAT(thrown<std::invalid_argument>([&] { MdsShards(made.index, nullptr); }),
             Mentions("no function that opens shards"));
}

TEST_CASE("MdsShards: a compressed shard is refused, if the raw one is not there", "[mds_shards]") {
  const Made made;
  const std::string index =
      index_of(entry("a.mds", made.bytes.at("a.mds").size(), 20, "\"zstd:7\""));
  CHECK(in_memory(index, made.bytes).size() == 20);
  CHECK_THAT(thrown<StoreError>([&] { in_memory(index, {}); }),
             Mentions("a.mds: it is compressed (zstd:7), and its raw shard is not there"));
}

TEST_CASE("MdsShards says what is wrong with index.json", "[mds_shards]") {
  const Made made;
  const std::string one = entry("a.mds", made.bytes.at("a.mds").size(), 20);
  const auto failure = [&](const std::string& index) {
    return thrown<StoreError>([&] { in_memory(index, made.bytes); });
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = one;
    changed.replace(changed.find(from), from.size(), to);
    return failure(index_of(changed));
  };
  CHECK(failure(index_of(one)) == "(nothing was thrown)");
  CHECK_THAT(failure("{"), Mentions("MdsShards: index.json: byte 1: "));
  CHECK_THAT(failure(index_of(one) + "}"), Mentions("there is more behind its end"));
  CHECK_THAT(failure(index_of("")), Mentions("it has no shards"));
  CHECK_THAT(failure(R"({"shards": []})"), Mentions("it has version 0 of the format"));
  CHECK_THAT(with("\"mds\"", "\"csv\""), Mentions("shard a.mds has format \"csv\", version 2"));
  CHECK_THAT(with("\"version\": 2", "\"version\": 1"), Mentions("version 1, of which"));
  CHECK_THAT(with("\"number\", ", ""), Mentions("the lists of the columns have different lengths"));
  CHECK_THAT(with("null, 8", "null, 8, 8"), Mentions("have different lengths"));
  CHECK_THAT(with("null, 8", "null, 0"), Mentions("a column has 0 bytes"));
  CHECK_THAT(with("null, 8", "null, 4294967296"), Mentions("or more than 2^32"));
  CHECK_THAT(with("\"column_sizes\"", "\"sizes\""),
             Mentions("has not the names, the encodings and"));
  CHECK_THAT(with("\"basename\"", "\"name\""), Mentions("no raw_data with a basename"));
  CHECK_THAT(with("a.mds", "../a.mds"), Mentions("shard ../a.mds is not in the folder"));
  std::string other = one;
  other.replace(other.find("\"number\""), 8, "\"width\"");
  CHECK_THAT(failure(index_of(one + "," + other)),
             Mentions("a.mds has other columns than the first"));
}

TEST_CASE("MdsShards refuses an index that does not fit into memory", "[mds_shards]") {
  const TemporaryDirectory directory;
  write_file(directory / "index.json", "{");
  std::filesystem::resize_file(directory / "index.json", std::uint64_t{1} << 39);  // by a hole
  CHECK_THAT(thrown<StoreError>([&] { MdsShards{directory / ""}; }),
             Mentions("index.json: its 549755813888 bytes are more than half of the memory"));
}

TEST_CASE("MdsShards says what is wrong with a shard, or a sample", "[mds_shards]") {
  const std::string good = shard(0, 3);
  const auto failure = [&](const std::string& bytes, int samples = 3) {
    return thrown<StoreError>([&] {
      const MdsShards shards =
          in_memory(index_of(entry("a.mds", bytes.size(), samples)), {{"a.mds", bytes}});
      std::vector<std::byte> scratch;
      for (std::uint64_t i = 0; i < shards.size(); ++i) shards.read(i, scratch);
    });
  };
  const auto with = [&](std::size_t at, std::uint32_t number) {
    std::string changed = good;
    changed.replace(at, 4, bytes_of(number));
    return failure(changed);
  };
  CHECK(failure(good) == "(nothing was thrown)");
  CHECK_THAT(failure(good, 4), Mentions("a.mds: the file has 3 samples, and index.json says 4"));
  CHECK_THAT(failure(good, 0), Mentions("bytes, and index.json says 0 samples"));
  CHECK_THAT(failure(good, 1'000'000), Mentions("and index.json says 1000000 samples"));
  CHECK_THAT(failure(good.substr(0, 18)), Mentions("the places of 3 samples take 20 bytes"));
  CHECK_THAT(with(4, 19), Mentions("sample 0 begins at byte 19, before the end"));
  CHECK_THAT(with(8, 30), Mentions("sample 1 begins at byte 30, before the end"));
  CHECK_THAT(with(16, 10'000), Mentions("the last sample ends at byte 10000"));
  CHECK_THAT(failure(good + "x"), Mentions("the last sample ends at byte "));
  CHECK_THAT(with(34, 1),
             Mentions("a.mds: sample 0, at byte 34 (of all shards: 0) is lost: its fields "
                      "take 17 bytes, and it has 16"));
  CHECK_THAT(with(34, ~0u), Mentions("its fields take 4294967311 bytes, and it has 16"));
  CHECK_THAT(failure(shard_of({sample(0), "short", sample(2)})),
             Mentions("sample 1") && Mentions("its fields take 8 bytes, and it has 5"));
}

}  // namespace
}  // namespace penstock::mds_shards_test
