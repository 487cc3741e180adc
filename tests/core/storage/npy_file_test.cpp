// SPDX-License-Identifier: Apache-2.0

// NpyFile over files that are written here byte by byte. tables_test.py compares it with NumPy.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <penstock/mapped_records.hpp>
#include <penstock/npy_file.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/memory_files.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock::npy_file_test {
namespace {

using namespace std::string_literals;
using test::as_text;
using test::Asked;
using test::MemoryFile;
using test::Mentions;
using test::TemporaryDirectory;
using test::thrown;
using test::write_file;

template <class Number>
std::string bytes_of(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}

std::string npy(std::string text, const std::string& numbers, int version = 1) {
  text += '\n';
  const std::string length = version == 1 ? bytes_of(static_cast<std::uint16_t>(text.size()))
                                          : bytes_of(static_cast<std::uint32_t>(text.size()));
  return "\x93NUMPY"s + static_cast<char>(version) + '\0' + length + text + numbers;
}

std::string dictionary(const std::string& descr, const std::string& shape,
                       const std::string& fortran = "False") {
  return "{'descr': " + descr + ", 'fortran_order': " + fortran + ", 'shape': " + shape + ", }  ";
}

/// Three rows of two numbers: 0 to 5.
std::string floats() {
  std::string numbers;
  for (int i = 0; i < 6; ++i) numbers += bytes_of(static_cast<float>(i));
  return numbers;
}

NpyFile in_memory(const std::string& bytes, std::string_view member = {}) {
  return NpyFile(File(std::make_shared<MemoryFile>("mem://a.npy", bytes)), member);
}

std::string failure(const std::string& bytes, std::string_view member = {}) {
  return thrown<StoreError>([&] { in_memory(bytes, member); });
}

TEST_CASE("NpyFile has the rows of the array, in every version of the format", "[npy_file]") {
  const int version = GENERATE(1, 2, 3);
  const TemporaryDirectory directory;
  const auto path = directory / "a.npy";
  write_file(path, npy(dictionary("'<f4'", "(3, 2)"), floats(), version));
  const NpyFile array(path);
  CHECK(array.size() == 3);
  CHECK(array.record_bytes() == 8);
  CHECK(array.dtype() == "float32");
  CHECK(array.item_bytes() == 4);
  CHECK(array.shape() == std::vector<std::uint64_t>{3, 2});
  CHECK(array.name(2) == path.string() + ", record 2");
  CHECK(as_text(array[1]) == bytes_of(2.0f) + bytes_of(3.0f));

  std::vector<float> rows(6);
  const std::vector<std::uint64_t> indices{2, 0, 2};
  array.read_many(indices, std::as_writable_bytes(std::span(rows)));
  CHECK(rows == std::vector<float>{4, 5, 0, 1, 4, 5});
  const MappedRecords mapped(array);
  CHECK(as_text(mapped[2]) == bytes_of(4.0f) + bytes_of(5.0f));
  array.will_need(indices);
}

TEST_CASE("NpyFile asks a file elsewhere for the bytes of its rows", "[npy_file]") {
  const std::string bytes = npy(dictionary("'<f4'", "(3, 2)"), floats());
  const auto memory = std::make_shared<MemoryFile>("mem://a.npy", bytes);
  const NpyFile array{File(memory)};
  const std::uint64_t begin = bytes.size() - 24;
  array.will_need(std::vector<std::uint64_t>{1});
  CHECK(memory->ranges == Asked{{begin + 8, 8}});
  memory->broken = begin + 16;
  CHECK(as_text(array[1]) == bytes_of(2.0f) + bytes_of(3.0f));
  CHECK_THAT(thrown<StoreError>([&] { static_cast<void>(array[2]); }),
             Mentions("mem://a.npy: record 2") && Mentions("the server is gone"));
}

TEST_CASE("NpyFile::require names what the array is, and what is asked for", "[npy_file]") {
  const NpyFile array = in_memory(npy(dictionary("'<f4'", "(3, 2)"), floats()));
  array.require<float>({2});
  CHECK_THAT(
      thrown<StoreError>([&] { array.require<double>({2}); }),
      Mentions("NpyFile: mem://a.npy: it is an array of float32 of shape (3, 2), and float64 "
               "of shape (3, 2) is asked for"));
  CHECK_THAT(thrown<StoreError>([&] { array.require<float>({}); }),
             Mentions("float32 of shape (3,) is asked for"));
  CHECK_THAT(thrown<StoreError>([&] {
               array.require<std::int32_t>({2, 1});
             }),
             Mentions("int32 of shape (3, 2, 1) is asked for"));
  const NpyFile flags = in_memory(npy(dictionary("'|b1'", "(2,)"), "\1\0"s));
  flags.require<bool>({});
  CHECK_THAT(thrown<StoreError>([&] { flags.require<std::uint8_t>({}); }),
             Mentions("an array of bool of shape (2,), and uint8"));
}

TEST_CASE("NpyFile knows every type of numbers", "[npy_file]") {
  const std::vector<std::pair<std::string, std::string>> types{
      {"'|b1'", "bool"},      {"'|i1'", "int8"},        {"'<i2'", "int16"},
      {"'<i4'", "int32"},     {"'<i8'", "int64"},       {"'|u1'", "uint8"},
      {"'<u2'", "uint16"},    {"'<u4'", "uint32"},      {"'<u8'", "uint64"},
      {"'<f2'", "float16"},   {"'<f4'", "float32"},     {"\"<f8\"", "float64"},
      {"'<f16'", "float128"}, {"'<c8'", "complex64"},   {"'<c16'", "complex128"},
      {"'=i4'", "int32"},     {"'<c32'", "complex256"}, {"'>u1'", "uint8"},
      {"'i4'", "int32"}};
  for (const auto& [descr, name] : types) {
    CAPTURE(descr);
    const std::size_t bytes =
        name == "bool" ? 1 : std::stoul(name.substr(name.find_first_of("123468"))) / 8;
    const NpyFile array = in_memory(npy(dictionary(descr, "(2, 3)"), std::string(6 * bytes, 'x')));
    CHECK(array.dtype() == name);
    CHECK(array.record_bytes() == 3 * bytes);
  }
}

TEST_CASE("NpyFile takes headers as NumPy and others write them", "[npy_file]") {
  const std::string numbers = floats();
  for (const char* text :
       {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)}",
        "{\"shape\":(3,2,),\"fortran_order\":False,\"descr\":\"<f4\"}",
        "  {'descr':\n'<f4' ,\t'shape': (3L, 2L), 'fortran_order': False , } \n ",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 6), }",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (6,), }"})
    CHECK(failure(npy(text, numbers)) == "(nothing was thrown)");
}

TEST_CASE("NpyFile says what is wrong, and where", "[npy_file]") {
  const std::string numbers = floats(), good = dictionary("'<f4'", "(3, 2)");
  const auto is_wrong = [&](const std::string& text) { return failure(npy(text, numbers)); };
  const std::string name = "NpyFile: mem://a.npy: ";
  CHECK_THAT(failure(""), Mentions(name + "it is no array"));
  CHECK_THAT(failure("\x1F\x8B\x08 gzip"),
             Mentions("it does not begin with \\x93NUMPY; it is compressed with gzip"));
  CHECK_THAT(failure(npy(good, numbers, 4)), Mentions("it has version 4 of the format"));
  CHECK_THAT(failure("\x93NUMPY\1\0\xff\xff......"s), Mentions("it is cut: 16 bytes are too few"));
  CHECK_THAT(failure("\x93NUMPY\1"s), Mentions("it is cut: 7 bytes are too few for its header"));
  CHECK_THAT(
      failure("\x93NUMPY\2\0"s + bytes_of(std::uint32_t{1 << 21}) + std::string(1 << 22, ' ')),
      Mentions("its header has 2097152 bytes, more than 2^20"));
  CHECK_THAT(failure(npy(good, numbers.substr(0, 20))),
             Mentions("its shape is (3, 2), of float32, which takes 24 bytes, and 20 are there: it "
                      "is cut"));
  CHECK_THAT(failure(npy(good, numbers + "x")), Mentions("which takes 24 bytes, and 25 are there"));
  CHECK_THAT(is_wrong(dictionary("'<f4'", "(3, 2)", "True")), Mentions("it is in Fortran order"));
  CHECK_THAT(is_wrong(dictionary("'>f4'", "(3, 2)")), Mentions("is \">f4\", big-endian"));
  CHECK_THAT(is_wrong(dictionary("'|O'", "(3,)")), Mentions("\"|O\", Python objects"));
  CHECK_THAT(is_wrong(dictionary("[('a', '<f4')]", "(3,)")), Mentions("has several fields"));
  for (const char* descr : {"'<U4'", "'|S4'", "'|V8'", "'<M8[ns]'", "'<f3'", "'<i16'", "'<c4'",
                            "''", "'<'", "'|b2'", "'<f-4'", "'<f99999999999999999999'"})
    CHECK_THAT(is_wrong(dictionary(descr, "(3,)")), Mentions("which is no number"));
  CHECK_THAT(is_wrong(dictionary("'<f4'", "()")), Mentions("its shape is (): it has no rows"));
  CHECK_THAT(is_wrong(dictionary("'<f4'", "(0, 3)")),
             Mentions("its shape is (0, 3): it has no rows"));
  CHECK_THAT(is_wrong(dictionary("'<f4'", "(3, 0)")), Mentions("rows of no numbers"));
  CHECK_THAT(is_wrong(dictionary("'<f4'", "(4294967296, 4294967296)")),
             Mentions("more than 2^64 elements"));
  const std::string wrong = "the header's text is wrong: ";
  CHECK_THAT(is_wrong("['descr']"), Mentions(wrong + "'{' is missing before \"['descr']"));
  CHECK_THAT(is_wrong("{'descr' '<f4'}"), Mentions(wrong + "':' is missing"));
  CHECK_THAT(is_wrong("{'descr': '<f4"), Mentions(wrong + "a string does not end"));
  CHECK_THAT(is_wrong("{'descr': '<f4'"), Mentions(wrong + "'}' is missing"));
  CHECK_THAT(is_wrong("{'order': 1}"), Mentions(wrong + "it has an unknown key \"order\""));
  CHECK_THAT(is_wrong("{'descr': '<f4', 'shape': (3, 2)}"),
             Mentions("fortran_order or shape is missing"));
  CHECK_THAT(is_wrong("{'shape': (3, 2), 'fortran_order': False}"), Mentions("is missing"));
  CHECK_THAT(is_wrong("{'shape': (3, 2), 'shape': (3, 2)}"), Mentions("shape comes twice"));
  CHECK_THAT(is_wrong("{'descr': '<f4', 'descr': '<f4'}"), Mentions("descr comes twice"));
  CHECK_THAT(is_wrong("{'fortran_order': False, 'fortran_order': False}"), Mentions("comes twice"));
  CHECK_THAT(is_wrong("{'fortran_order': 0}"), Mentions("neither True nor False"));
  CHECK_THAT(is_wrong("{'shape': (3 2)}"), Mentions("')' is missing"));
  CHECK_THAT(is_wrong("{'shape': (-3,)}"), Mentions("there is no extent before \"-3"));
  CHECK_THAT(is_wrong(good + "{}"), Mentions("there is more behind it"));
  CHECK_THAT(thrown<StoreError>([] { NpyFile("/nonexistent/a.npy"); }), Mentions("cannot open"));
  CHECK_THAT(failure(npy(good, numbers), "a"), Mentions("it is no .npz archive"));
}

// ---- Archives -----------------------------------------------------------------------------------

struct Member {
  std::string name, bytes;
  std::uint16_t method = 0, flags = 0;
  bool large = false;  // with numbers of 64 bits
};

std::string zip(const std::vector<Member>& members, bool large_end = false,
                const std::string& comment = {}) {
  std::string all, directory;
  for (const Member& member : members) {
    const auto size = static_cast<std::uint32_t>(member.bytes.size());
    const std::uint32_t told = member.large ? ~0u : size;
    const std::uint32_t place = member.large ? ~0u : static_cast<std::uint32_t>(all.size());
    const std::string wide = bytes_of(std::uint64_t{size}) + bytes_of(std::uint64_t{size});
    const auto field = [](const std::string& numbers) {
      return bytes_of(std::uint16_t{1}) + bytes_of(static_cast<std::uint16_t>(numbers.size())) +
             numbers;
    };
    const std::string unknown = "\x99\x99\2\0ab"s;
    const std::string extra = member.large ? unknown + field(wide) : "";
    const std::string directory_extra =
        member.large ? unknown + field(wide + bytes_of(std::uint64_t{all.size()})) : "";
    const auto middle = [&](const std::string& more) {
      return bytes_of(member.flags) + bytes_of(member.method) + std::string(8, '\0') +
             bytes_of(told) + bytes_of(told) +
             bytes_of(static_cast<std::uint16_t>(member.name.size())) +
             bytes_of(static_cast<std::uint16_t>(more.size()));
    };
    directory += "PK\1\2\x14\0\x14\0"s + middle(directory_extra) + std::string(10, '\0') +
                 bytes_of(place) + member.name + directory_extra;
    all += "PK\3\4\x14\0"s + middle(extra) + member.name + extra + member.bytes;
  }
  const std::uint64_t begin = all.size();
  all += directory;
  const auto count = static_cast<std::uint16_t>(members.size());
  if (large_end) {
    const std::uint64_t end = all.size();
    all += "PK\6\6"s + bytes_of(std::uint64_t{44}) + std::string(12, '\0') +
           bytes_of(std::uint64_t{count}) + bytes_of(std::uint64_t{count}) +
           bytes_of(std::uint64_t{directory.size()}) + bytes_of(begin);
    all += "PK\6\7"s + std::string(4, '\0') + bytes_of(end) + bytes_of(1);
  }
  const std::string counts = large_end ? std::string(4, '\xff') : bytes_of(count) + bytes_of(count);
  const std::string places = large_end ? std::string(8, '\xff')
                                       : bytes_of(static_cast<std::uint32_t>(directory.size())) +
                                             bytes_of(static_cast<std::uint32_t>(begin));
  return all + "PK\5\6"s + std::string(4, '\0') + counts + places +
         bytes_of(static_cast<std::uint16_t>(comment.size())) + comment;
}

const std::string kArray = npy(dictionary("'<f4'", "(3, 2)"), floats());
const std::string kLabels = npy(dictionary("'|u1'", "(4,)"), "\5\6\7\b"s);

TEST_CASE("NpyFile reads a member of an archive", "[npy_file]") {
  const bool large = GENERATE(false, true), large_end = GENERATE(false, true);
  const std::string comment = GENERATE(""s, "PK\5\6 and more"s);
  const std::string archive = zip({{.name = "x.npy", .bytes = kArray, .large = large},
                                   {.name = "d/y.npy", .bytes = kLabels, .large = large}},
                                  large_end, comment);
  CAPTURE(large, large_end, comment);
  for (const char* name : {"x", "x.npy"}) {
    const NpyFile array = in_memory(archive, name);
    CHECK(array.dtype() == "float32");
    CHECK(as_text(array[2]) == bytes_of(4.0f) + bytes_of(5.0f));
  }
  const NpyFile labels = in_memory(archive, "d/y");
  CHECK(labels.size() == 4);
  CHECK(as_text(labels[3]) == "\b");
  CHECK_THAT(failure(archive), Mentions("it has several arrays: name one of them: x.npy, d/y.npy"));
  CHECK_THAT(failure(archive, "y"), Mentions("there is no member y, but x.npy, d/y.npy"));
  CHECK(in_memory(zip({{.name = "x.npy", .bytes = kArray}})).size() == 3);
}

TEST_CASE("NpyFile says what is wrong with an archive, or its member", "[npy_file]") {
  const Member x{.name = "x.npy", .bytes = kArray};
  CHECK_THAT(failure(zip({{.name = "x.npy", .bytes = kArray, .method = 8}})),
             Mentions("mem://a.npy: member x.npy is compressed (method 8): save the arrays by "
                      "numpy.savez"));
  CHECK_THAT(failure(zip({{.name = "x.npy", .bytes = kArray, .flags = 1}})),
             Mentions("member x.npy is encrypted"));
  CHECK_THAT(failure(zip({{.name = "x.npy", .bytes = "text"}})),
             Mentions("member x.npy: it is no array"));
  CHECK_THAT(failure(zip({{.name = "x.npy", .bytes = kArray.substr(0, kArray.size() - 4)}})),
             Mentions("member x.npy: its shape is (3, 2)") && Mentions("it is cut"));
  CHECK_THAT(failure(zip({x, x}), "x"), Mentions("several members of the name x"));
  CHECK_THAT(failure(zip({})), Mentions("there is no member , but none at all"));

  const std::string good = zip({x, {.name = "y.npy", .bytes = kLabels}});
  const std::size_t directory = good.find("PK\1\2");
  const auto with = [&](std::size_t at, const std::string& bytes) {
    std::string changed = good;
    changed.replace(at, bytes.size(), bytes);
    return failure(changed, "x");
  };
  const std::string damaged = "the zip archive is damaged or cut: ";
  CHECK_THAT(failure(good.substr(0, good.size() - 1), "x"),
             Mentions(damaged + "its end has no directory"));
  CHECK_THAT(with(good.size() - 6, bytes_of(~1u)),
             Mentions(damaged + "its directory does not fit"));
  CHECK_THAT(with(good.size() - 10, bytes_of(100'000)), Mentions("its directory does not fit"));
  CHECK_THAT(with(good.size() - 12, "\3\0"s),
             Mentions("its directory has 2 members, and should have 3"));
  CHECK_THAT(with(directory, "XX"), Mentions(damaged + "entry 0 of its directory"));
  CHECK_THAT(with(directory + 28, "\xff\xff"s), Mentions(damaged + "the name of entry 0"));
  CHECK_THAT(with(directory + 42, bytes_of(1)), Mentions("member x.npy has no header at byte 1"));
  CHECK_THAT(with(directory + 42, bytes_of(100'000)), Mentions("member x.npy begins behind"));
  CHECK_THAT(with(30, "z"), Mentions("member x.npy has another name at byte 0"));
  CHECK_THAT(with(directory + 20, bytes_of(1'000'000) + bytes_of(1'000'000)),
             Mentions("member x.npy has no header") && Mentions("or does not fit"));

  // An entry has its name at byte 46, and then fields: one of 2 bytes, and one of three numbers of
  // 64 bits.
  const std::string large = zip({{.name = "x.npy", .bytes = kArray, .large = true}});
  const std::size_t fields = large.find("PK\1\2") + 46 + std::string("x.npy").size();
  const auto with_size = [&](std::size_t at, const std::string& size) {
    std::string changed = large;
    changed.replace(at + 2, 2, size);
    return failure(changed, "x");
  };
  const std::string cut = "member x.npy has an extra field that is cut";
  CHECK_THAT(with_size(fields, "\xff\0"s), Mentions(cut));
  CHECK_THAT(with_size(fields + 6, "\x08\0"s), Mentions(cut));
}

}  // namespace
}  // namespace penstock::npy_file_test
