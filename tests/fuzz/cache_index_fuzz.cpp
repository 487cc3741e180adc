// SPDX-License-Identifier: Apache-2.0

// Any bytes as the index of a cache: each record that is taken can be of this cache, and the cache
// goes on with it.

#include <algorithm>
#include <cache.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "directory.hpp"
#include "fuzz.hpp"

namespace {

using namespace penstock::remote;
using penstock::test::Directory;
using penstock::test::require;

constexpr CacheHeader kHeader{4096, 4};

CacheKey key_of(std::uint64_t i) {
  return {{1, 2}, i * 4096, static_cast<std::uint32_t>(4000 + i)};
}

void check_cells(const std::uint8_t* data, std::size_t size) {
  CacheCell cell;
  for (std::uint64_t number = 0; (number + 1) * cell.size() <= size; ++number) {
    std::memcpy(cell.data(), data + number * cell.size(), cell.size());
    const auto record = record_of(cell, number, kHeader);
    if (!record) continue;
    require(record->slot < kHeader.slots && record->key.bytes <= kHeader.slot_bytes,
            "a record is of this cache");
    require(record_of(to_cell(*record, number), number, kHeader) == record, "the same record");
  }
}

/// How many keys are there.
std::size_t filled(const std::filesystem::path& path) {
  Counters counters;
  Cache cache({.directory = path, .bytes = kHeader.slots * 4096, .slot_bytes = 4096}, counters);
  std::size_t hits = 0;
  for (std::uint64_t i = 0; i < kHeader.slots; ++i) {
    const CacheKey key = key_of(i);
    const std::vector<std::byte> right(key.bytes, static_cast<std::byte>(i + 1));
    std::vector<std::byte> read(key.bytes);
    if (cache.read(key, read)) {
      require(read == right, "the bytes are the key's");
      ++hits;
      continue;
    }
    cache.offer(key, right);
    cache.drain();
  }
  require(counters.cache_errors == 0, "there are no errors");
  return hits;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check_cells(data, size);
  static const Directory directory;
  const std::filesystem::path path = directory / "cache";
  std::filesystem::create_directory(path);
  {
    // As many bytes as each key has, in its slot.
    std::ofstream slots(path / "slots", std::ios::binary);
    for (int i = 0; i < 4; ++i)
      for (int byte = 0; byte < 4096; ++byte) slots.put(static_cast<char>(i + 1));
  }
  std::ofstream(path / "index", std::ios::binary)
      << std::string_view(reinterpret_cast<const char*>(data), size);
  filled(path);
  filled(path);
  require(std::filesystem::file_size(path / "slots") <= kHeader.slots * 4096, "it does not grow");
  return 0;
}
