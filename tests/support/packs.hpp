// SPDX-License-Identifier: Apache-2.0
#pragma once

// Packs for tests, and damage to them.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <penstock/detail/storage/packed_format.hpp>
#include <penstock/packed_file_writer.hpp>
#include <span>
#include <string>
#include <string_view>

namespace penstock::test {

inline std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void set_content(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Record `i` of the packs here: i * i % 100 bytes.
inline std::string packed_record(std::uint64_t i) {
  std::string bytes(i * i % 100, '\0');
  for (std::size_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<char>(i * 31 + k * 7);
  return bytes;
}
inline std::string packed_name(std::uint64_t i) {
  return "class/" + std::to_string(i * i * i) + ".jpg";
}

/// Appends the records from what the writer has to `count`.
inline void append_records(PackedFileWriter& writer, std::uint64_t count, bool names = true) {
  for (std::uint64_t i = writer.size(); i < count; ++i) {
    const std::string bytes = packed_record(i);
    writer.append(std::as_bytes(std::span(bytes)), static_cast<std::int32_t>(i % 7) - 1,
                  names ? packed_name(i) : std::string());
  }
}

inline void write_pack(const std::filesystem::path& path, std::uint64_t count, bool names = true,
                       std::string_view note = "a note") {
  PackedFileWriter writer(path, note);
  append_records(writer, count, names);
  writer.finish();
}

inline detail::PackHeader header_of(const std::string& pack) {
  detail::PackHeader header;
  std::memcpy(&header, pack.data(), sizeof(header));
  return header;
}

/// Puts `header` into `pack`, with the right checksums of index and header.
inline void seal(std::string& pack, detail::PackHeader header) {
  const auto bytes = std::as_bytes(std::span(pack));
  if (header.index <= pack.size())
    header.index_checksum = detail::crc32c(bytes.subspan(static_cast<std::size_t>(header.index)));
  header.checksum = detail::checksum_of(header);
  std::memcpy(pack.data(), &header, sizeof(header));
}

}  // namespace penstock::test
