// SPDX-License-Identifier: Apache-2.0
#pragma once

// A shard for tests, and what TarShards says of one:
//
//   const Shard shard(TarWriter().add("a.jpg", "abc").add("a.cls", "7"));
//   const TarShards shards = shard.open();
//   CHECK(content(shards, 0, ".cls") == "7");

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <penstock/tar_shards.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "files.hpp"
#include "tar_writer.hpp"
#include "temporary_directory.hpp"
#include "thrown.hpp"

namespace penstock::test {

inline std::string content(const TarShards& shards, std::uint64_t index) {
  std::vector<std::byte> scratch;
  return as_text(shards.read(index, scratch));
}
inline std::string content(const TarShards& shards, std::uint64_t index,
                           std::string_view extension) {
  std::vector<std::byte> scratch;
  return as_text(shards.read(index, extension, scratch));
}

inline std::vector<std::string> names(const TarShards& shards) {
  std::vector<std::string> all;
  for (std::uint64_t i = 0; i < shards.size(); ++i) all.push_back(shards.name(i));
  return all;
}

/// What the constructor throws for one shard.
inline std::string shard_failure(const std::filesystem::path& shard,
                                 const TarShardsOptions& options = {}) {
  return thrown<StoreError>([&] { TarShards({shard}, options); });
}

/// A directory with one shard.
struct Shard {
  explicit Shard(const TarWriter& tar) { tar.save(path); }
  TarShards open() const { return TarShards({path}); }
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory / "a.tar";
};

/// `samples` of them: NUMBER.cls, a number, and NUMBER.jpg.
inline TarWriter numbered(int first, int samples) {
  TarWriter tar;
  for (int i = first; i < first + samples; ++i) {
    const std::string base = "dir/" + std::to_string(i);
    tar.add(base + ".cls", std::to_string(i % 10) + "\n");
    tar.add(base + ".jpg", std::string(static_cast<std::size_t>(100 * i % 1700 + 1), 'j') + base);
  }
  return tar;
}

}  // namespace penstock::test
