// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tar files for tests, also wrong ones:
//
//   TarWriter tar;
//   tar.add("000.jpg", bytes).add("000.cls", "7");
//   tar.save(path);

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace penstock::test {

class TarWriter {
 public:
  /// A header of ustar, with the right checksum. Names of more than 100 bytes are cut.
  static std::string header(std::string_view name, std::uint64_t size, char type = '0',
                            std::string_view prefix = {}) {
    std::string block(512, '\0');
    name.substr(0, 100).copy(block.data(), 100);
    set_number(block, 100, 7, 0644);
    set_number(block, 124, 11, size);
    block[156] = type;
    block.replace(257, 8,
                  "ustar\0"
                  "00",
                  8);
    prefix.copy(&block[345], 155);
    return with_checksum(std::move(block));
  }

  static std::string with_checksum(std::string block, bool is_signed = false) {
    block.replace(148, 8, 8, ' ');
    int sum = 0;
    for (const char byte : block)
      sum += is_signed ? static_cast<signed char>(byte) : static_cast<unsigned char>(byte);
    set_number(block, 148, 6, static_cast<std::uint64_t>(sum));
    block[154] = '\0';
    return block;
  }

  /// A header whose size is in base 256.
  static std::string header_with_binary_size(std::string_view name, std::uint64_t size) {
    std::string block = header(name, 0);
    block.replace(124, 12, 12, '\0');
    block[124] = '\x80';
    for (std::size_t i = 0; i < 8; ++i)
      block[135 - i] = static_cast<char>(static_cast<std::uint8_t>(size >> 8 * i));
    return with_checksum(std::move(block));
  }

  static std::string pax_record(std::string_view key, std::string_view value) {
    std::size_t length = key.size() + value.size() + 3;
    while (length != key.size() + value.size() + 3 + std::to_string(length).size())
      length = key.size() + value.size() + 3 + std::to_string(length).size();
    return std::to_string(length) + " " + std::string(key) + "=" + std::string(value) + "\n";
  }

  TarWriter& add(std::string_view name, std::string_view bytes, char type = '0') {
    return raw(header(name, bytes.size(), type)).content(bytes);
  }
  /// As GNU tar writes names of more than 100 bytes.
  TarWriter& add_gnu(std::string_view name, std::string_view bytes) {
    return add("././@LongLink", std::string(name) + '\0', 'L').add(name, bytes);
  }
  /// Records of pax, and then the member with this header.
  TarWriter& add_pax(std::string_view records, const std::string& header, std::string_view bytes) {
    return add("PaxHeaders/x", records, 'x').raw(header).content(bytes);
  }
  TarWriter& content(std::string_view bytes) {
    bytes_ += bytes;
    bytes_.resize((bytes_.size() + 511) / 512 * 512);
    return *this;
  }
  TarWriter& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }

  /// Bytes so far.
  std::size_t size() const { return bytes_.size(); }
  /// With the zeros at the end.
  std::string bytes() const { return bytes_ + std::string(1024, '\0'); }
  void save(const std::filesystem::path& path) const {
    std::ofstream(path, std::ios::binary) << bytes();
  }

 private:
  static void set_number(std::string& block, std::size_t at, std::size_t digits,
                         std::uint64_t value) {
    for (std::size_t i = digits; i-- > 0; value /= 8)
      block[at + i] = static_cast<char>('0' + value % 8);
  }

  std::string bytes_;
};

}  // namespace penstock::test
