// SPDX-License-Identifier: Apache-2.0
#pragma once

// TFRecord files for tests, and messages of Protocol Buffers, byte by byte.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::test {

/// CRC-32C bit by bit, rotated and added to, as TensorFlow defines it.
inline std::string masked_checksum(std::string_view bytes) {
  std::uint32_t sum = ~0u;
  for (const char byte : bytes) {
    sum ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? 0x82F63B78u : 0u);
  }
  sum = ~sum;
  sum = ((sum >> 15) | (sum << 17)) + 0xa282ead8u;
  return {reinterpret_cast<const char*>(&sum), sizeof(sum)};
}

inline std::string tf_record(std::string_view bytes) {
  const std::uint64_t size = bytes.size();
  const std::string length(reinterpret_cast<const char*>(&size), sizeof(size));
  return length + masked_checksum(length) + std::string(bytes) + masked_checksum(bytes);
}

/// Record `i` of the files here.
inline std::string tf_content(std::uint64_t i) {
  std::string bytes(i * i * 37 % 900, '\0');
  for (std::size_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<char>(i * 31 + k * 7);
  return bytes;
}
inline std::string tf_records(std::uint64_t first, std::uint64_t count) {
  std::string all;
  for (std::uint64_t i = first; i < first + count; ++i) all += tf_record(tf_content(i));
  return all;
}

// ---- Messages

inline std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
inline std::string message(std::uint64_t number, std::string_view bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}
inline std::string feature(std::string_view name, std::uint64_t kind, std::string_view list) {
  return message(1, message(1, name) + message(2, message(kind, list)));
}
inline std::string bytes_list(const std::vector<std::string>& values) {
  std::string list;
  for (const std::string& value : values) list += message(1, value);
  return list;
}
inline std::string float_list(const std::vector<float>& values, bool packed = true) {
  std::string list;
  for (const float& value : values)
    list += (packed ? "" : varint(1 << 3 | 5)) +
            std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  return packed ? message(1, list) : list;
}
inline std::string int64_list(const std::vector<std::int64_t>& values, bool packed = true) {
  std::string list;
  for (const std::int64_t value : values)
    list += (packed ? "" : varint(1 << 3)) + varint(static_cast<std::uint64_t>(value));
  return packed ? message(1, list) : list;
}
inline std::string example(const std::string& features) {
  return message(1, features);
}

}  // namespace penstock::test
