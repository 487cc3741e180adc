// SPDX-License-Identifier: Apache-2.0

// RecordFile over a part of a file, as NpyFile uses it.

#include <cstddef>
#include <cstdint>
#include <penstock/file.hpp>
#include <penstock/record_file.hpp>
#include <span>
#include <stdexcept>
#include <vector>

#include "support/catch.hpp"
#include "support/numbered_rows.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using test::is_record;
using test::Mentions;
using test::TemporaryDirectory;
using test::thrown;

TEST_CASE("RecordFile has the records in a part of a file", "[record_file]") {
  const TemporaryDirectory directory;
  const auto path = directory.records("a.bin", 0, 50, 8);
  const File file = File::open(path);
  const RecordFile records(file, {.offset = 80, .bytes = 240}, 8);  // records 10 to 39
  REQUIRE(records.size() == 30);
  CHECK(is_record(records[0], 10));
  CHECK(is_record(records[29], 39));
  std::vector<std::byte> rows(24);
  records.read_many(std::vector<std::uint64_t>{29, 0, 1}, rows);
  CHECK(is_record(std::span(rows).first(8), 39));
  CHECK(is_record(std::span(rows).subspan(8, 8), 10));
  CHECK(is_record(std::span(rows).subspan(16), 11));
  CHECK_THROWS_AS(records[30], std::out_of_range);
  const auto error = [&](FileRange part, std::size_t bytes) {
    return thrown<StoreError>([&] { RecordFile(file, part, bytes); });
  };
  CHECK_THAT(error({80, 321}, 1), Mentions("a.bin: the 321 bytes from byte 80 on do not fit into "
                                           "the file's 400: it was cut"));
  CHECK_THAT(error({401, 8}, 8), Mentions("from byte 401 on do not fit"));
  CHECK_THAT(error({~0ull, 8}, 8), Mentions("do not fit"));
  CHECK_THAT(error({80, 12}, 8), Mentions("are no whole number of records of 8 bytes"));
  CHECK_THAT(error({80, 0}, 8), Mentions("the 0 bytes from byte 80 on are no whole number"));
  CHECK_THAT(thrown<std::invalid_argument>([&] {
               RecordFile(file, {0, 8}, 0);
             }),
             Mentions("record_bytes is 0"));
}

}  // namespace
}  // namespace penstock
