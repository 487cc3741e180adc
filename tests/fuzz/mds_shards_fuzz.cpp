// SPDX-License-Identifier: Apache-2.0

// MdsShards over any index.json and any bytes of a shard, with a byte of 0 between them.

#include <algorithm>
#include <penstock/mds_shards.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bytes_file.hpp"
#include "fuzz.hpp"

namespace {

using penstock::MdsShards;
using penstock::StoreError;
using penstock::test::require;

void check_sample(const MdsShards& shards, std::span<const std::byte> sample) {
  std::size_t all = 0;
  for (std::size_t column = 0; column < shards.columns().size(); ++column) {
    const std::span<const std::byte> field = shards.field(sample, column);
    all += field.size() + (shards.columns()[column].bytes == 0 ? 4 : 0);
    require(field.empty() || (field.data() >= sample.data() &&
                              field.data() + field.size() <= sample.data() + sample.size()),
            "a field is within the sample");
  }
  require(all == sample.size(), "the fields are the sample");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view index = input.substr(0, input.find('\0'));
  const std::string bytes(input.substr(std::min(index.size() + 1, input.size())));
  try {
    const MdsShards shards(index,
                           [&](const std::string&) { return penstock::test::file_of(bytes); });
    require(shards.size() > 0 && !shards.columns().empty(), "there are samples and columns");
    for (const penstock::MdsColumn& column : shards.columns())
      require(shards.columns()[shards.column(column.name)].name == column.name,
              "a column is found by its name");
    std::vector<std::byte> scratch;
    for (std::uint64_t i = 0; i < shards.size(); ++i) try {
        check_sample(shards, shards.read(i, scratch));
      } catch (const StoreError& error) {
        require(error.sample() == i, "an error names the sample");
      }
  } catch (const StoreError& error) {
    require(error.file() == "index.json" || error.file() == "input", "an error names the file");
  }
  return 0;
}
