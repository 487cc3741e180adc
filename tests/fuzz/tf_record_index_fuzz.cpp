// SPDX-License-Identifier: Apache-2.0

// Any text as the index of a TFRecord file of three records: it is refused, or what is read by it
// is a record, or an error.

#include <filesystem>
#include <fstream>
#include <penstock/tf_record_file.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "../support/tf_records.hpp"
#include "directory.hpp"
#include "fuzz.hpp"

namespace {

using penstock::StoreError;
using penstock::TfRecordFile;
using penstock::test::require;

struct Records : penstock::test::Directory {
  Records() {
    std::ofstream(path, std::ios::binary)
        << penstock::test::tf_record("one") << penstock::test::tf_record("")
        << penstock::test::tf_record("three");
  }
  const std::filesystem::path path = *this / "a.tfrecord";
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Records file;
  const std::filesystem::path index = TfRecordFile::index_path(file.path);
  std::ofstream(index, std::ios::binary)
      << std::string_view(reinterpret_cast<const char*>(data), size);
  try {
    const TfRecordFile records({file.path});
    require(records.size() >= 1 && records.size() <= 3, "records have frames");
    std::vector<std::byte> scratch;
    for (std::uint64_t i = 0; i < records.size(); ++i) try {
        const auto bytes = records.read(i, scratch);
        const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        require(text == "one" || text.empty() || text == "three", "a record is one of the file's");
      } catch (const StoreError& error) {
        require(error.sample() == i && error.file() == file.path, "an error names file and record");
      }
  } catch (const StoreError& error) {
    require(error.file() == index, "an error names the index");
  }
  return 0;
}
