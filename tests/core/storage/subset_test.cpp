// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <penstock/detail/storage/subset_format.hpp>
#include <penstock/mixture.hpp>
#include <penstock/sampler.hpp>
#include <penstock/store.hpp>
#include <penstock/subset.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock::subset_test {
namespace {

using test::Mentions;
using test::read_file;
using test::TemporaryDirectory;
using test::thrown;
using test::write_file;

using Numbers = std::vector<std::uint64_t>;

Numbers numbers_of(const Subset& subset) {
  Numbers numbers;
  for (std::uint64_t i = 0; i < subset.size(); ++i) numbers.push_back(subset[i]);
  return numbers;
}

bool is_kept(std::uint64_t i) {
  return i % 7 == 3 || i % 1000 == 999;
}

TEST_CASE("Subset::where keeps the samples of the predicate, with any number of threads",
          "[subset]") {
  const std::uint64_t samples = GENERATE(0u, 1u, 3u, 4u, 5u, 100u, 10'007u);
  const int threads = GENERATE(1, 2, 3, 7);
  CAPTURE(samples, threads);
  Numbers expected;
  for (std::uint64_t i = 0; i < samples; ++i)
    if (is_kept(i)) expected.push_back(i);
  std::atomic<std::uint64_t> calls{0};
  const auto keep = [&](std::uint64_t i) {
    ++calls;
    return is_kept(i);
  };
  const Subset subset = Subset::where(samples, keep, threads);
  CHECK(calls == samples);
  CHECK(subset.dataset_size() == samples);
  CHECK(numbers_of(subset) == expected);
}

TEST_CASE("Subset::where throws what the predicate throws, of the first part that fails",
          "[subset]") {
  const int threads = GENERATE(1, 3);
  const auto keep = [](std::uint64_t i) -> bool {
    if (i == 40 || i == 950) throw std::runtime_error("sample " + std::to_string(i));
    return true;
  };
  CHECK(thrown<std::runtime_error>([&] { Subset::where(1000, keep, threads); }) == "sample 40");
  CHECK_THAT(thrown<std::invalid_argument>([] { Subset::where(10, nullptr); }),
             Mentions("there is no function"));
  CHECK_THAT(thrown<std::invalid_argument>([&] { Subset::where(10, keep, 0); }),
             Mentions("threads is 0, must be at least 1"));
}

TEST_CASE("Subset takes a list that ascends within the data set", "[subset]") {
  const Numbers list{2, 3, 9};
  const Subset subset(10, list);
  CHECK(numbers_of(subset) == list);
  CHECK_THAT(thrown<std::out_of_range>([&] { static_cast<void>(subset[3]); }),
             Mentions("Subset: there is no sample 3, but 3, numbered from 0"));
  CHECK_THAT(thrown<std::invalid_argument>([&] { Subset(9, list); }),
             Mentions("Subset: number 2 of the subset is sample 9 of 9"));
  CHECK_THAT(thrown<std::invalid_argument>([] {
               Subset(9, Numbers{4, 4});
             }),
             Mentions("do not ascend: 4 comes behind 4"));
  CHECK_THAT(thrown<std::invalid_argument>([] {
               Subset(9, Numbers{5, 4});
             }),
             Mentions("do not ascend: 4 comes behind 5"));
}

TEST_CASE("Subset is saved and loaded, with numbers of 4 and of 8 bytes", "[subset]") {
  constexpr std::uint64_t kFour = std::uint64_t{1} << 32;
  const auto samples = GENERATE_COPY(std::uint64_t{1000}, kFour, kFour + 1, ~std::uint64_t{0});
  const std::size_t bytes = samples == 1000 || samples == kFour ? 4 : 8;
  const TemporaryDirectory directory;
  const auto path = directory / "a.subset";
  for (const Numbers& list :
       {Numbers{}, Numbers{0}, Numbers{samples - 1}, Numbers{5, samples - 2}}) {
    Subset(samples, list).save(path);
    CHECK(read_file(path).size() == 40 + list.size() * bytes);
    const Subset loaded = Subset::load(path, samples);
    CHECK(numbers_of(loaded) == list);
    CHECK(loaded.dataset_size() == samples);
  }
}

TEST_CASE("Subset: a large one is saved whole", "[subset]") {
  const TemporaryDirectory directory;
  const Subset all = Subset::where(700'000, [](std::uint64_t i) { return i % 2 == 0; });
  all.save(directory / "a.subset");
  CHECK(numbers_of(Subset::load(directory / "a.subset", 700'000)) == numbers_of(all));
}

TEST_CASE("Subset::load names what is wrong with the file", "[subset]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.subset";
  Subset(1000, Numbers{1, 500, 999}).save(path);
  const std::string whole = read_file(path);
  const auto failure = [&](const std::string& bytes, std::uint64_t samples = 1000) {
    write_file(path, bytes);
    return thrown<StoreError>([&] { Subset::load(path, samples); });
  };
  const auto with = [&](std::size_t at, char byte, bool seal = false) {
    std::string bytes = whole;
    bytes[at] = byte;
    if (seal) {
      detail::SubsetHeader header;
      std::memcpy(&header, bytes.data(), sizeof(header));
      header.numbers_checksum = detail::crc32c(std::as_bytes(std::span(bytes)).subspan(40));
      header.checksum = detail::checksum_of(header);
      std::memcpy(bytes.data(), &header, sizeof(header));
    }
    return bytes;
  };
  CHECK(failure(whole) == "(nothing was thrown)");
  CHECK_THAT(failure(whole, 1001),
             Mentions("Subset: ") && Mentions("a.subset: it is a subset of a data set of 1000 "
                                              "samples, and this one has 1001: make it again"));
  CHECK_THAT(failure(""), Mentions("the file is no subset"));
  CHECK_THAT(failure("\x1F\x8B\x08 some gzip"), Mentions("compressed with gzip"));
  for (std::size_t bytes = 1; bytes < whole.size(); ++bytes)
    CHECK_THAT(failure(whole.substr(0, bytes)), Mentions("cut"));
  CHECK_THAT(failure(whole + "x"),
             Mentions("the file has 53 bytes, and should have 3 numbers of 4"));
  CHECK_THAT(failure(with(8, 2)), Mentions("version 2 of the format"));
  CHECK_THAT(failure(with(16, 1)), Mentions("the header is damaged"));
  CHECK_THAT(failure(with(40, 2)), Mentions("the numbers are damaged"));
  CHECK_THAT(failure(with(41, 2, true)),
             Mentions("do not ascend: 500 comes behind 513, though the checksums are right"));
  CHECK_THAT(failure(with(49, 5, true)), Mentions("number 2 of the subset is sample 1511 of 1000"));
  CHECK_THAT(thrown<StoreError>([&] { Subset::load(directory / "b.subset", 1); }),
             Mentions("b.subset: cannot open"));
  CHECK_THAT(thrown<StoreError>([&] { Subset(1, {}).save(directory / "none/a.subset"); }),
             Mentions("Subset: ") && Mentions("none/a.subset: cannot create a file here"));
}

TEST_CASE("Subset::load refuses what does not fit into memory", "[subset]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.subset";
  constexpr std::uint64_t kSamples = std::uint64_t{1} << 40, kNumbers = std::uint64_t{1} << 36;
  detail::SubsetHeader header;
  header.samples = kSamples;
  header.number_bytes = 8;
  header.size = kNumbers;
  header.checksum = detail::checksum_of(header);
  write_file(path, std::string(reinterpret_cast<const char*>(&header), sizeof(header)));
  std::filesystem::resize_file(path, sizeof(header) + 8 * kNumbers);  // by a hole
  CHECK_THAT(thrown<StoreError>([&] { Subset::load(path, kSamples); }),
             Mentions("its 549755813888 bytes are more than half of the memory"));
}

TEST_CASE("Subset: a sampler and a mixture over it see each of its samples once", "[subset]") {
  const Subset subset = Subset::where(1000, is_kept, 2);
  const Sampler sampler{{.samples = subset.size(), .batch_size = 7, .shuffle = true, .seed = 3}};
  Numbers batch, seen;
  for (std::uint64_t b = 0; b < sampler.batches(); ++b) {
    sampler.samples(0, b, batch);
    for (const std::uint64_t i : batch) seen.push_back(subset[i]);
  }
  std::ranges::sort(seen);
  CHECK(seen == numbers_of(subset));

  const Mixture mixture{
      {{.data = {.samples = subset.size(), .shuffle = true}}, {.data = {.samples = 50}}},
      {.samples = 2 * subset.size(), .batch_size = 10}};
  seen.clear();
  for (std::uint64_t b = 0; b < mixture.batches(); ++b) {
    mixture.samples(0, b, batch);
    for (const std::uint64_t i : batch)
      if (const auto place = mixture.place(i); place.set == 0) seen.push_back(subset[place.index]);
  }
  std::ranges::sort(seen);
  CHECK(seen == numbers_of(subset));
}

}  // namespace
}  // namespace penstock::subset_test
