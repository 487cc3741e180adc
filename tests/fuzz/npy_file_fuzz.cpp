// SPDX-License-Identifier: Apache-2.0

// NpyFile over any bytes, as an array and as an archive that has a member x: they are refused with
// a message, or each row is a part of them.

#include <algorithm>
#include <cstring>
#include <penstock/npy_file.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bytes_file.hpp"
#include "fuzz.hpp"

namespace {

using penstock::NpyFile;
using penstock::test::require;

void check(const std::string& bytes, std::string_view member) {
  try {
    const NpyFile array(penstock::test::file_of(bytes), member);
    require(array.size() > 0 && array.size() <= bytes.size() / array.record_bytes(),
            "all rows are within the file");
    std::uint64_t row = array.item_bytes();
    for (std::size_t axis = 1; axis < array.shape().size(); ++axis) row *= array.shape()[axis];
    require(array.shape()[0] == array.size() && row == array.record_bytes(),
            "the shape is that of the rows");
    require(!array.dtype().empty(), "the numbers have a type");
    std::vector<std::byte> scratch;
    std::string all;
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(array.size(), 1000); ++i) {
      array.read(i, scratch);
      all.append(reinterpret_cast<const char*>(scratch.data()), scratch.size());
    }
    require(bytes.find(all) != std::string::npos, "rows lie one behind the other in the file");
  } catch (const penstock::StoreError& error) {
    require(error.file() == "input", "an error names the file");
    require(std::string_view(error.what()).size() < 2000, "a message is short");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  check(bytes, "");
  check(bytes, "x");
  return 0;
}
