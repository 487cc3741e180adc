// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <penstock/token_file.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/memory_files.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"
#include "support/token_files.hpp"

namespace penstock {
namespace {

using test::Asked;
using test::llmc_file;
using test::MadeTexts;
using test::megatron_index;
using test::MemoryFile;
using test::Mentions;
using test::packed;
using test::TemporaryDirectory;
using test::thrown;
using test::Time;
using test::write_file;

using Tokens = std::vector<std::int32_t>;

Tokens read(const TokenFile& file, std::uint64_t begin, std::uint64_t count) {
  Tokens tokens(count, -7);
  file.read_into(begin, tokens);
  return tokens;
}

Tokens all_of(const TokenFile& file) {
  return read(file, 0, file.tokens());
}

std::vector<TokenRange> documents_of(const TokenFile& file) {
  std::vector<TokenRange> documents;
  for (std::uint64_t d = 0; d < file.documents(); ++d) documents.push_back(file.document(d));
  return documents;
}

std::string bytes(const char* hex) {
  std::string bytes;
  for (; *hex != '\0'; ++hex) {
    if (*hex == ' ') continue;
    bytes += static_cast<char>(std::stoi(std::string(hex, 2), nullptr, 16));
    ++hex;
  }
  return bytes;
}

/// Megatron's files, from memory.
TokenFile megatron(const std::string& bin, const std::string& idx, TokenFileOptions options = {}) {
  return TokenFile::megatron(File(std::make_shared<MemoryFile>("a.bin", bin)),
                             File(std::make_shared<MemoryFile>("a.idx", idx)), options);
}

std::string refusal(const std::string& bin, const std::string& idx) {
  return thrown<StoreError>([&] { megatron(bin, idx); });
}

// ---- Megatron

// What IndexedDatasetBuilder of megatron-core 0.16.1 writes for the documents {1 2 3, 4}, {50256},
// {} and {7 8}, the first of two sequences: tokens of 16 bits.
constexpr const char* kBin = "0100 0200 0300 0400 50c4 0700 0800";
constexpr const char* kIdx =
    "4d4d494449445800 00 0100000000000000 08 0400000000000000 0500000000000000"
    "03000000 01000000 01000000 02000000"
    "0000000000000000 0600000000000000 0800000000000000 0a00000000000000"
    "0000000000000000 0200000000000000 0300000000000000 0300000000000000 0400000000000000";

TEST_CASE("TokenFile reads what megatron-core writes", "[token_file]") {
  const TemporaryDirectory directory;
  write_file(directory / "web.bin", bytes(kBin));
  write_file(directory / "web.idx", bytes(kIdx));
  const bool mapped = GENERATE(false, true);
  const auto web = TokenFile::megatron(directory / "web", {.vocabulary = 50257, .mapped = mapped});
  CHECK(web.type() == TokenType::uint16);
  CHECK(web.tokens() == 7);
  CHECK(documents_of(web) == std::vector<TokenRange>{{0, 4}, {4, 1}, {5, 0}, {5, 2}});
  CHECK(all_of(web) == Tokens{1, 2, 3, 4, 50256, 7, 8});
  CHECK(web.document_of(3) == 0);
  CHECK(web.document_of(4) == 1);
  CHECK(web.document_of(5) == 3);  // not the one that has no tokens
  CHECK(web.name(5) == (directory / "web.bin").string() + ", token 5");
}

template <class T>
void check_type(int code, TokenType type) {
  CAPTURE(code);
  const std::vector<T> tokens{0, 1, 2, 100, 127};
  const auto file = megatron(packed(tokens), megatron_index(code, sizeof(T), {2, 3}, {0, 1, 2}),
                             {.vocabulary = 128});
  CHECK(file.type() == type);
  CHECK(all_of(file) == Tokens{0, 1, 2, 100, 127});
}

TEST_CASE("TokenFile reads each of Megatron's types, and modes behind the index", "[token_file]") {
  check_type<std::uint8_t>(1, TokenType::uint8);
  check_type<std::int8_t>(2, TokenType::int8);
  check_type<std::int16_t>(3, TokenType::int16);
  check_type<std::int32_t>(4, TokenType::int32);
  check_type<std::int64_t>(5, TokenType::int64);
  check_type<std::uint16_t>(8, TokenType::uint16);
  const auto index = megatron_index(4, 4, {2, 1}, {0, 2}) + std::string("\1\1", 2);
  CHECK(megatron(packed<std::int32_t>({5, 6, 7}), index).documents() == 1);
}

TEST_CASE("TokenFile names the index that it cannot use, and why", "[token_file]") {
  const std::vector<std::int32_t> lengths{2, 3, 4};
  const std::vector<std::int64_t> entries{0, 1, 3};
  const std::string good = megatron_index(8, 2, lengths, entries), bin(18, '\1');
  REQUIRE(refusal(bin, good) == "(nothing was thrown)");
  const auto with = [&](std::size_t at, std::string_view other) {
    std::string index = good;
    index.replace(at, other.size(), other);
    return refusal(bin, index);
  };
  using std::string_view_literals::operator""sv;

  SECTION("another format") {
    CHECK_THAT(with(0, "PK\x03\x04"), Mentions("a.idx: this is no index of Megatron: it is a zip"));
    CHECK_THAT(refusal(bin, ""), Mentions("this is no index of Megatron: it is empty"));
    CHECK_THAT(with(9, "\2"), Mentions("the index has version 2, and version 1 is known"));
  }
  SECTION("values that are no tokens") {
    CHECK_THAT(with(17, "\6"), Mentions("the values have type 6 (floating point), which no"));
    CHECK_THAT(with(17, "\7"), Mentions("the values have type 7 (floating point), which no"));
    CHECK_THAT(with(17, "\x09"), Mentions("the values have type 9, which is unknown"));
    CHECK_THAT(with(17, "\0"sv), Mentions("the values have type 0, which is unknown"));
  }
  SECTION("cut") {
    for (std::size_t bytes = 9; bytes < good.size(); ++bytes)
      CHECK_THAT(refusal(bin, good.substr(0, bytes)), Mentions("a.idx: ") && Mentions("was cut"));
    CHECK_THAT(refusal(bin, good + "x"), Mentions("not those of an index of 3 sequences and 3"));
  }
  SECTION("counts that overflow") {
    CHECK_THAT(with(18, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"), Mentions("not those of an index"));
    CHECK_THAT(with(18, "\0\0\0\0\0\0\0\x40"sv), Mentions("not those of an index"));
    CHECK_THAT(with(26, "\0\0\0\0\0\0\0\x20"sv), Mentions("not those of an index"));
    CHECK_THAT(with(26, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"), Mentions("not those of an index"));
  }
  SECTION("sequences") {
    CHECK_THAT(with(34 + 4, "\xFF\xFF\xFF\xFF"), Mentions("sequence 1 has -1 tokens"));
    CHECK_THAT(with(34 + 4, "\2"), Mentions("sequence 2 begins at byte 10 of the tokens, and "
                                            "those before end at byte 8"));
    CHECK_THAT(with(34 + 12, "\1"), Mentions("sequence 0 begins at byte 1 of the tokens"));
  }
  SECTION("documents") {
    const std::size_t at = 34 + 3 * 12;
    CHECK_THAT(with(at, "\1"), Mentions("the documents do not begin at sequence 0"));
    CHECK_THAT(with(at + 8, "\4"), Mentions("document 1 begins at sequence 4, the one before at "
                                            "0, and there are 3"));
    CHECK_THAT(with(at + 8, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"),
               Mentions("document 1 begins at sequence -1"));
    CHECK_THAT(with(at + 16, "\2"), Mentions("the last document ends at sequence 2 of 3"));
    CHECK_THAT(refusal(bin, megatron_index(8, 2, lengths, {0, 2, 1, 3})),
               Mentions("document 2 begins at sequence 1, the one before at 2"));
    CHECK_THAT(refusal(bin, megatron_index(8, 2, lengths, {})), Mentions("do not begin"));
    CHECK_THAT(refusal(bin, megatron_index(8, 2, lengths, {0})),
               Mentions("the last document ends at sequence 0 of 3"));
  }
  SECTION("of another file") {
    CHECK_THAT(refusal(bin.substr(1), good),
               Mentions("a.idx: sequence 2 of 3 ends behind the end of its tokens, and a.bin has "
                        "17 bytes: it was cut, or is not the one"));
    CHECK_THAT(refusal(bin + "x", good),
               Mentions("the sequences end before the end of their tokens, and a.bin has 19"));
    CHECK_THAT(refusal("", good), Mentions("a.bin: the file is empty"));
    CHECK_THAT(refusal("", megatron_index(8, 2, {}, {0})), Mentions("a.bin: the file is empty"));
  }
  SECTION("missing") {
    const TemporaryDirectory directory;
    const auto open = [&] { TokenFile::megatron(directory / "web"); };
    CHECK_THAT(thrown<StoreError>(open), Mentions("web.bin: cannot open"));
    write_file(directory / "web.bin", bin);
    CHECK_THAT(thrown<StoreError>(open), Mentions("web.idx: cannot open"));
  }
}

// ---- llm.c and nanoGPT

TEST_CASE("TokenFile reads files of llm.c, whose documents go on from file to file",
          "[token_file]") {
  const TemporaryDirectory directory;
  const bool mapped = GENERATE(false, true), wide = GENERATE(false, true);
  const auto write = [&](const char* name, const std::vector<std::uint16_t>& tokens) {
    const std::vector<std::uint32_t> wider(tokens.begin(), tokens.end());
    write_file(directory / name,
               wide ? llmc_file(20240801, 7, wider) : llmc_file(20240520, 1, tokens));
    return directory / name;
  };
  const auto a = write("a.bin", {9, 1, 2, 9}), b = write("b.bin", {3}),
             c = write("c.bin", {4, 9, 9, 5});
  const auto begins = TokenFile::llm_c({a, b, c}, {.begin_of_document = 9, .mapped = mapped});
  CHECK(begins.type() == (wide ? TokenType::uint32 : TokenType::uint16));
  CHECK(all_of(begins) == Tokens{9, 1, 2, 9, 3, 4, 9, 9, 5});
  CHECK(documents_of(begins) == std::vector<TokenRange>{{0, 3}, {3, 3}, {6, 1}, {7, 2}});
  CHECK(begins.name(8) == c.string() + ", token 3");
  const auto ends = TokenFile::llm_c({a, b, c}, {.end_of_document = 9, .mapped = mapped});
  CHECK(documents_of(ends) == std::vector<TokenRange>{{0, 1}, {1, 3}, {4, 3}, {7, 1}, {8, 1}});
  const auto neither = TokenFile::llm_c({a, b, c}, {.mapped = mapped});
  CHECK(documents_of(neither) == std::vector<TokenRange>{{0, 4}, {4, 1}, {5, 4}});
}

TEST_CASE("TokenFile names the file of llm.c that it cannot use, and why", "[token_file]") {
  const auto refused = [](const std::string& bytes) {
    const std::vector<File> files{
        File(std::make_shared<MemoryFile>("a", llmc_file<std::uint16_t>(20240520, 1, {1, 2}))),
        File(std::make_shared<MemoryFile>("b", bytes))};
    return thrown<StoreError>([&] { TokenFile::llm_c(files); });
  };
  const auto good = llmc_file<std::uint16_t>(20240520, 1, {1, 2, 3});
  CHECK(refused(good) == "(nothing was thrown)");
  CHECK_THAT(refused(""),
             Mentions("TokenFile: b: this is no file of tokens of llm.c: it is empty"));
  CHECK_THAT(refused("<html>"), Mentions("no file of tokens of llm.c: it is a page in HTML"));
  CHECK_THAT(refused(llmc_file<std::uint16_t>(20240522, 1, {1})), Mentions("an evaluation file"));
  CHECK_THAT(refused(llmc_file<std::uint16_t>(20240520, 2, {1})),
             Mentions("the header has version 2, and version 1 is known"));
  CHECK_THAT(refused(llmc_file<std::uint32_t>(20240801, 7, {1})),
             Mentions("its tokens have 4 bytes, and those of the first file 2"));
  CHECK_THAT(
      refused(good.substr(0, good.size() - 1)),
      Mentions("the header says 3 tokens of 2 bytes, and the file has 1029 bytes, not 1030"));
  CHECK_THAT(refused(good + "x"), Mentions("the file has 1031 bytes, not 1030"));
  CHECK_THAT(refused(good.substr(0, 1000)), Mentions("the file has 1000 bytes"));
  CHECK_THAT(refused(good.substr(0, 9)), Mentions("the header says 0 tokens"));
  std::string negative = good;
  negative[11] = '\xFF';
  CHECK_THAT(refused(negative), Mentions("the header says -16777213 tokens"));
}

TEST_CASE("TokenFile names the raw file that it cannot use, and why", "[token_file]") {
  const auto refused = [](const std::string& bytes, TokenType type = TokenType::uint16) {
    const std::vector<File> files{File(std::make_shared<MemoryFile>("a", bytes))};
    return thrown<StoreError>([&] { TokenFile::raw(files, type); });
  };
  CHECK(refused("abcd") == "(nothing was thrown)");
  CHECK_THAT(refused(""), Mentions("TokenFile: a: the file is empty"));
  CHECK_THAT(refused("abcde", TokenType::uint32),
             Mentions("5 bytes, in tokens of 4 bytes: 1 bytes are left over"));
  CHECK_THAT(refused(llmc_file<std::uint16_t>(20240520, 1, {1})),
             Mentions("open it by TokenFile::llm_c"));
  CHECK_THAT(refused(megatron_index(8, 2, {1}, {0, 1})), Mentions("TokenFile::megatron"));
  CHECK_THAT(refused("version https://git-lfs.github.com/spec/v1\noid a\n1"),
             Mentions("It is a Git-LFS pointer"));
}

TEST_CASE("TokenFile refuses options that contradict each other", "[token_file]") {
  const auto refused = [](TokenFileOptions options, TokenType type = TokenType::uint16) {
    const std::vector<File> files{File(std::make_shared<MemoryFile>("a", "abcd"))};
    return thrown<std::invalid_argument>([&] { TokenFile::raw(files, type, options); });
  };
  CHECK_THAT(refused({.begin_of_document = 1, .end_of_document = 1}), Mentions("not both"));
  CHECK_THAT(refused({.vocabulary = -1}), Mentions("vocabulary is -1, must be at least 0"));
  CHECK_THAT(refused({.end_of_document = 100257}),
             Mentions("is 100257, which tokens of 2 bytes cannot be"));
  CHECK(refused({.end_of_document = 65535}) == "(nothing was thrown)");
  CHECK_THAT(thrown<std::invalid_argument>([] { TokenFile::raw({}, TokenType::uint16); }),
             Mentions("the list of files is empty"));
  CHECK_THAT(thrown<std::invalid_argument>([] { TokenFile::llm_c({}); }),
             Mentions("the list of files is empty"));
  CHECK_THAT(thrown<std::invalid_argument>(
                 [] { megatron(bytes(kBin), bytes(kIdx), {.end_of_document = 1}); }),
             Mentions("are for files without an index"));
}

// ---- Documents and tokens

TEST_CASE("TokenFile finds the documents of large files, whatever the threads and the files",
          "[token_file]") {
  const TemporaryDirectory directory;
  const MadeTexts texts(3, 3000, 60, 1.5);
  const std::string all = packed(texts.tokens);
  REQUIRE(texts.tokens.size() > 200'000);  // There are several blocks of a scan.
  std::vector<std::filesystem::path> files;
  const std::size_t cuts = GENERATE(1u, 3u);
  for (std::size_t i = 0, begin = 0; i < cuts; ++i) {
    const std::size_t end = i + 1 == cuts ? all.size() : (all.size() / cuts * (i + 1)) / 2 * 2;
    files.push_back(directory / ("part" + std::to_string(i)).c_str());
    write_file(files.back(), all.substr(begin, end - begin));
    begin = end;
  }
  const bool mapped = GENERATE(false, true);
  const auto file = TokenFile::raw(files, TokenType::uint16,
                                   {.end_of_document = MadeTexts::kEnd, .mapped = mapped});
  REQUIRE(file.documents() == 3000);
  REQUIRE(file.tokens() == texts.tokens.size());
  std::size_t wrong = 0;
  for (std::size_t d = 0; d < 3000; ++d) {
    const auto [begin, length] = file.document(d);
    wrong += begin != texts.begins[d] || begin + length != texts.begins[d + 1] ? 1 : 0;
    wrong += file.document_of(begin) != d || file.document_of(begin + length - 1) != d ? 1 : 0;
  }
  CHECK(wrong == 0);

  Tokens target(70'000);
  const std::uint64_t before = test::allocations_of_this_thread();
  for (const std::uint64_t begin :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{66'666}, file.tokens() - target.size()}) {
    file.read_into(begin, target);
    wrong += std::ranges::equal(target, std::span(texts.tokens).subspan(begin, target.size()), {},
                                {}, [](std::uint16_t token) { return std::int32_t{token}; })
                 ? 0
                 : 1;
  }
  CHECK(test::allocations_of_this_thread() == before);
  CHECK(wrong == 0);
}

TEST_CASE("TokenFile refuses tokens and documents that are not there", "[token_file]") {
  const auto file = megatron(bytes(kBin), bytes(kIdx));
  Tokens target(3);
  CHECK_THAT(thrown<std::out_of_range>([&] { file.document(4); }),
             Mentions("TokenFile: there is no document 4, but 4"));
  CHECK_THAT(thrown<std::out_of_range>([&] { file.document_of(7); }),
             Mentions("TokenFile: there is no token 7, but 7"));
  CHECK_THAT(thrown<std::out_of_range>([&] { file.name(7); }), Mentions("no token 7"));
  CHECK_THAT(thrown<std::out_of_range>([&] { file.read_into(5, target); }),
             Mentions("TokenFile::read_into: 3 tokens from token 5 on, but there are 7"));
  CHECK_THROWS_AS(file.read_into(~0ull, target), std::out_of_range);
  CHECK_THROWS_AS(read(file, 0, 8), std::out_of_range);
  file.read_into(7, {});
  file.read_into(4, target);
  CHECK(target == Tokens{50256, 7, 8});
}

template <class T>
std::string failure_of(const std::vector<T>& tokens, TokenType type, std::int32_t vocabulary,
                       std::uint64_t begin = 0) {
  const std::vector<File> files{
      File(std::make_shared<MemoryFile>("a", packed(std::vector<T>(50, T{1})))),
      File(std::make_shared<MemoryFile>("b", packed(tokens)))};
  const auto file = TokenFile::raw(files, type, {.end_of_document = 3, .vocabulary = vocabulary});
  try {
    read(file, begin, file.tokens() - begin);
  } catch (const StoreError& error) {
    CHECK(error.file() == "b");
    CHECK(error.sample() == 1);
    return error.what();
  }
  return "(nothing was thrown)";
}

TEST_CASE("TokenFile names the file and the place of a token that is wrong", "[token_file]") {
  for (const std::size_t place : {2u, 70u, 199u}) {
    CAPTURE(place);
    const std::string at = "TokenFile: b: token " + std::to_string(place) +
                           " (of document 1, position " + std::to_string(place - 2) + ") is ";
    const auto with = [&](auto value, auto other) {
      std::vector<decltype(value)> tokens(200, decltype(value){1});
      tokens[1] = 3;
      tokens[place] = value;
      if (place < 199) tokens[199] = other;  // The first one is named.
      return tokens;
    };
    const auto u16 = with(std::uint16_t{60000}, std::uint16_t{60001});
    CHECK(failure_of(u16, TokenType::uint16, 60000) ==
          at + "60000, outside of the vocabulary of 60000");
    CHECK(failure_of(u16, TokenType::uint16, 60002) == "(nothing was thrown)");
    CHECK(failure_of(u16, TokenType::uint16, 0) == "(nothing was thrown)");
    const auto u8 = with(std::uint8_t{200}, std::uint8_t{201});
    CHECK(failure_of(u8, TokenType::uint8, 200) == at + "200, outside of the vocabulary of 200");
    const auto i16 = with(std::int16_t{-1}, std::int16_t{-2});
    CHECK(failure_of(i16, TokenType::int16, 9) == at + "-1, outside of the vocabulary of 9");
    const auto i32 = with(std::int32_t{-2147483647 - 1}, std::int32_t{-1});
    CHECK(failure_of(i32, TokenType::int32, 2147483647) ==
          at + "-2147483648, outside of the vocabulary of 2147483647");
    CHECK(failure_of(i32, TokenType::int32, 0) == "(nothing was thrown)");
    const auto u32 = with(std::uint32_t{2147483648}, std::uint32_t{2147483649});
    CHECK(failure_of(u32, TokenType::uint32, 0) == at + "2147483648, no number of 32 bits");
    CHECK(failure_of(u32, TokenType::uint32, 7) ==
          at + "2147483648, outside of the vocabulary of 7");
    const auto i64 = with(std::int64_t{1} << 32, std::int64_t{-1} << 40);
    CHECK(failure_of(i64, TokenType::int64, 0) == at + "4294967296, no number of 32 bits");
    CHECK(failure_of(i64, TokenType::int64, 7) ==
          at + "4294967296, outside of the vocabulary of 7");
  }
}

TEST_CASE("TokenFile says which token of a file is lost that has become shorter", "[token_file]") {
  const TemporaryDirectory directory;
  const MadeTexts texts(3, 40, 100, 1);
  const auto path = texts.write(directory / "a.bin");
  const auto file = TokenFile::raw({path}, TokenType::uint16, {.end_of_document = 50256});
  std::filesystem::resize_file(path, 2 * texts.begins[20]);
  CHECK(read(file, 0, texts.begins[20]).size() == texts.begins[20]);
  const std::string error = thrown<StoreError>([&] { read(file, texts.begins[20], 1); });
  CHECK_THAT(error, Mentions("a.bin: token " + std::to_string(texts.begins[20]) +
                             " (of document 20, position 0) is lost: the file has"));
  const auto map = [&] { TokenFile::raw({path}, TokenType::uint16, {.mapped = true}); };
  CHECK(thrown<StoreError>(map) == "(nothing was thrown)");
}

TEST_CASE("TokenFile reads Files that are elsewhere, by one request for a range", "[token_file]") {
  std::vector<std::uint16_t> tokens(30'000);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(i);
  const auto memory = std::make_shared<MemoryFile>("a", llmc_file(20240520, 1, tokens));
  const std::vector<File> files{File(memory)};
  const auto file = TokenFile::llm_c(files);
  memory->reads = 0;
  CHECK(read(file, 100, 2)[1] == 101);
  CHECK(memory->reads == 1);
  CHECK(memory->ranges.empty());
  CHECK(read(file, 100, 20'000)[19'999] == 20'099);
  CHECK(memory->ranges == Asked{{1024 + 200, 40'000}});
  memory->ranges.clear();
  const Time due{std::chrono::seconds(7)};
  file.will_need(std::vector<TokenRange>{{29'000, 5000}, {3, 4}, {30'000, 1}, {~0ull, ~0ull}}, due);
  CHECK(memory->ranges == Asked{{1024 + 58'000, 2000}, {1024 + 6, 8}});
  CHECK(memory->due == due);
  memory->broken = 1024 + 2 * 77;
  CHECK(thrown<StoreError>([&] { read(file, 70, 10); }) ==
        "TokenFile: a: token 70 (of document 0, position 70) is lost: the server is gone");
  CHECK_THAT(thrown<StoreError>([&] { TokenFile::llm_c(files, {.end_of_document = 1}); }),
             Mentions("a: the server is gone"));
  CHECK_THAT(thrown<StoreError>([&] { TokenFile::llm_c(files, {.mapped = true}); }),
             Mentions("TokenFile: a: only a file of this machine can be mapped"));
}

TEST_CASE("TokenFile may be read by many threads", "[token_file]") {
  const TemporaryDirectory directory;
  const MadeTexts texts(5, 500, 50, 1);
  const auto file = TokenFile::raw({texts.write(directory / "a.bin")}, TokenType::uint16,
                                   {.end_of_document = 50256});
  std::vector<std::size_t> wrong(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      const TokenFile own = file;
      for (std::uint64_t d = 0; d < own.documents(); ++d) {
        const auto [begin, length] = own.document(d);
        const Tokens tokens = read(own, begin, length);
        for (std::size_t i = 0; i < tokens.size(); ++i)
          wrong[t] += tokens[i] != texts.tokens[begin + i] ? 1 : 0;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<std::size_t>(4, 0));
}

}  // namespace
}  // namespace penstock
