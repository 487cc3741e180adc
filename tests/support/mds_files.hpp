// SPDX-License-Identifier: Apache-2.0
#pragma once

// MDS shards for tests, byte by byte, and their index.json.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace penstock::test::mds {

inline std::string bytes_of(std::uint32_t number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}

/// Sample `i` has a number of 8 bytes, `i` bytes of text, and an image of 3 * i bytes.
inline std::string number_of(std::uint64_t i) {
  return {reinterpret_cast<const char*>(&i), sizeof(i)};
}
inline std::string sample(std::uint32_t i) {
  return bytes_of(3 * i) + bytes_of(i) + std::string(3 * i, 'i') + number_of(i) +
         std::string(i, 't');
}

inline std::string shard_of(const std::vector<std::string>& samples) {
  const std::string note = R"({"version": 2})";
  std::uint32_t at = static_cast<std::uint32_t>(4 * (samples.size() + 2) + note.size());
  std::string head = bytes_of(static_cast<std::uint32_t>(samples.size())), bytes;
  for (const std::string& one : samples) {
    head += bytes_of(at);
    at += static_cast<std::uint32_t>(one.size());
    bytes += one;
  }
  return head + bytes_of(at) + note + bytes;
}

inline std::string shard(std::uint32_t first, std::uint32_t count) {
  std::vector<std::string> samples;
  for (std::uint32_t i = first; i < first + count; ++i) samples.push_back(sample(i));
  return shard_of(samples);
}

inline std::string entry(const std::string& name, std::size_t bytes, int samples,
                         const std::string& compression = "null") {
  return R"({"column_encodings": ["jpeg", "int", "str"], "column_names": ["image", "number", "text"],
    "column_sizes": [null, 8, null], "compression": )" +
         compression + R"(, "format": "mds", "hashes": ["sha1"], "raw_data": {"basename": ")" +
         name + R"(", "bytes": )" + std::to_string(bytes) +
         R"(, "hashes": {"sha1": "00"}}, "samples": )" + std::to_string(samples) +
         R"(, "size_limit": 67108864, "version": 2, "zip_data": null})";
}

inline std::string index_of(const std::string& entries) {
  return R"({"shards": [)" + entries + R"(], "version": 2})";
}

}  // namespace penstock::test::mds
