// SPDX-License-Identifier: Apache-2.0

// Any text as the index of a tar of three samples: what is read by it are bytes of a member, behind
// a header.

#include <filesystem>
#include <fstream>
#include <penstock/tar_shards.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "../support/tar_writer.hpp"
#include "directory.hpp"
#include "fuzz.hpp"

namespace {

using penstock::StoreError;
using penstock::TarShards;
using penstock::test::Directory;
using penstock::test::require;

struct Tar : Directory {
  Tar() {
    penstock::test::TarWriter tar;
    for (const char* base : {"a", "dir/b", "\xC3\xA4"})
      tar.add(std::string(base) + ".jpg", std::string("jpeg of ") + base)
          .add(std::string(base) + ".cls", "7");
    tar.save(path);
    bytes = tar.bytes();
  }
  const std::filesystem::path path = *this / "a.tar";
  std::string bytes;
};

void read(const TarShards& shards, std::uint64_t i, const std::string& tar) {
  std::vector<std::byte> scratch;
  const auto bytes = shards.read(i, scratch);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  require(!text.empty() && tar.find(text) != std::string::npos, "bytes are the tar's");
  const std::string name = shards.name(i);
  // A name with letters that wds2idx escapes is compared as tar --list prints it.
  if (name == "a.tar/a.jpg") require(text == "jpeg of a", "a member has its own bytes");
  if (name == "a.tar/dir/b.jpg") require(text == "jpeg of dir/b", "a member has its own bytes");
  require(shards.label(i) == 7, "there is no other label");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Tar tar;
  const std::filesystem::path index = TarShards::index_path(tar.path);
  std::ofstream(index, std::ios::binary)
      << std::string_view(reinterpret_cast<const char*>(data), size);
  try {
    const TarShards shards({tar.path});
    for (std::uint64_t i = 0; i < shards.size(); ++i) try {
        read(shards, i, tar.bytes);
      } catch (const StoreError& error) {
        require(error.sample() == i && error.file() == tar.path, "an error names file and sample");
      }
  } catch (const StoreError& error) {
    require(error.file() == index || error.file() == tar.path, "an error names the file");
  }
  return 0;
}
