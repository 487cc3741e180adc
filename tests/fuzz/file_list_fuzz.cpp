// SPDX-License-Identifier: Apache-2.0

// Any text as a list of a FileFolder's files; what is saved again is the same list.

#include <filesystem>
#include <fstream>
#include <penstock/file_folder.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "directory.hpp"
#include "fuzz.hpp"

namespace {

using penstock::FileFolder;
using penstock::StoreError;
using penstock::test::Directory;
using penstock::test::require;

void require_equal(const FileFolder& one, const FileFolder& other) {
  require(one.size() == other.size() && one.classes() == other.classes(), "as many");
  for (std::uint64_t i = 0; i < one.size(); ++i)
    require(one.name(i) == other.name(i) && one.label(i) == other.label(i), "the same");
}

void read_first(const FileFolder& files) {
  std::vector<std::byte> scratch;
  try {
    files.read(0, scratch);
  } catch (const StoreError& error) {
    require(error.sample() == 0u, "an error names the sample");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Directory directory;
  const std::filesystem::path list = directory / "list", again = directory / "again";
  std::ofstream(list, std::ios::binary)
      << std::string_view(reinterpret_cast<const char*>(data), size);
  try {
    // Where nothing is, so that no absolute path alone is read either.
    const FileFolder files = FileFolder::from_list(list, directory / "none");
    require(files.size() > 0, "there is a file");
    if (!files.name(0).starts_with('/')) read_first(files);
    files.save_list(again);
    require_equal(files, FileFolder::from_list(again, directory / "none"));
  } catch (const StoreError&) {
  }
  return 0;
}
