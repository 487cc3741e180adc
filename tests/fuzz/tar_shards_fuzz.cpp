// SPDX-License-Identifier: Apache-2.0

// TarShards over tar files of any members. A line of the input is a member; `=` for its size is the
// right one, and ~ in its content a line break. Behind a first line "raw" comes the tar as it is.
//
//   <type><size> <name> <content>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
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
using penstock::test::TarWriter;

/// Up to `end`, which is dropped.
std::string_view take(std::string_view& text, char end) {
  const std::size_t length = std::min(text.find(end), text.size());
  const std::string_view part = text.substr(0, length);
  text.remove_prefix(std::min(length + 1, text.size()));
  return part;
}

std::string tar_of(std::string_view input) {
  constexpr std::string_view kRaw = "raw\n";
  if (input.starts_with(kRaw)) return std::string(input.substr(kRaw.size()));
  TarWriter tar;
  while (!input.empty()) {
    std::string_view line = take(input, '\n');
    if (line.empty()) continue;
    const char type = line.front();
    line.remove_prefix(1);
    const std::string_view size = take(line, ' '), name = take(line, ' ');
    std::string content(line);
    std::replace(content.begin(), content.end(), '~', '\n');
    std::string header = TarWriter::header(name, content.size(), type);
    if (size != "=") size.substr(0, 12).copy(&header[124], 12);
    tar.raw(TarWriter::with_checksum(header)).content(content);
  }
  return tar.bytes();
}

struct Sample {
  std::string name, bytes, label;
  bool operator==(const Sample&) const = default;
};

std::vector<Sample> samples_of(const TarShards& shards, const std::string& tar) {
  std::vector<Sample> all(shards.size());
  std::vector<std::byte> scratch;
  for (std::uint64_t i = 0; i < shards.size(); ++i) {
    all[i].name = shards.name(i);
    try {
      const auto bytes = shards.read(i, scratch);
      all[i].bytes.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      require(tar.find(all[i].bytes) != std::string::npos, "a sample has the tar's bytes");
      all[i].label = std::to_string(shards.label(i));
    } catch (const StoreError& error) {
      require(error.sample() == i, "an error names the sample");
      all[i].label = "none";
    }
    const std::uint64_t index[] = {i};
    shards.will_need(index);
  }
  return all;
}

/// The text of what is thrown, or nothing.
template <class Call>
std::optional<std::string> error_of(const Call& call) {
  try {
    call();
  } catch (const StoreError& error) {
    return error.what();
  }
  return std::nullopt;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Directory directory;
  const std::filesystem::path path = directory / "a.tar", index = directory / "a.idx";
  const std::string tar = tar_of({reinterpret_cast<const char*>(data), size});
  std::ofstream(path, std::ios::binary) << tar;
  std::filesystem::remove(index);
  error_of([&] {
    const TarShards shards({path});
    require(shards.size() > 0, "there is a sample");
    const std::vector<Sample> samples = samples_of(shards, tar);
    if (error_of([&] { shards.save_indexes(); })) return;  // A name does not fit into one.
    require(exists(index), "there is an index");
    require(samples_of(TarShards({path}), tar) == samples, "an index brings the same samples");
  });
  return 0;
}
