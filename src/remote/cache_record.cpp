// SPDX-License-Identifier: Apache-2.0
#include "cache_record.hpp"

#include <openssl/evp.h>

#include <bit>
#include <cstring>
#include <penstock/detail/storage/crc32c.hpp>
#include <stdexcept>
#include <string>

namespace penstock::inline PENSTOCK_ABI::remote {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kMagic = 0x3145484341435350;  // "PSCACHE1"
constexpr std::uint32_t kRecord = 0x44524F43;         // "CORD"
constexpr std::size_t kChecked = std::tuple_size_v<CacheCell> - sizeof(std::uint32_t);

template <class T>
void set(CacheCell& cell, std::size_t at, T value) noexcept {
  std::memcpy(cell.data() + at, &value, sizeof value);
}

template <class T>
T get(const CacheCell& cell, std::size_t at) noexcept {
  T value{};
  std::memcpy(&value, cell.data() + at, sizeof value);
  return value;
}

std::uint32_t checksum_of(const CacheCell& cell, std::uint64_t number) noexcept {
  std::array<std::byte, sizeof number> before;
  std::memcpy(before.data(), &number, sizeof number);
  return penstock::detail::crc32c(std::span(cell).first<kChecked>(),
                                  penstock::detail::crc32c(before));
}

ObjectVersion hash_of(const std::string& text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> hash{};
  unsigned int bytes = 0;
  ObjectVersion version{};
  if (::EVP_Digest(text.data(), text.size(), hash.data(), &bytes, ::EVP_sha256(), nullptr) != 1 ||
      bytes < sizeof version)
    throw std::runtime_error("OpenSSL cannot calculate a SHA-256");
  std::memcpy(version.data(), hash.data(), sizeof version);
  return version;
}

}  // namespace

std::optional<ObjectVersion> object_version(std::string_view url, std::string_view etag,
                                            std::uint64_t size) {
  if (etag.empty() || etag.starts_with("W/")) return std::nullopt;
  // No URL and no ETag has a line break.
  std::string text(url);
  text.append("\n").append(etag).append("\n").append(std::to_string(size));
  return hash_of(text);
}

ObjectVersion object_id(std::string_view url) {
  return hash_of(std::string(url));
}

CacheCell to_cell(const CacheHeader& header) noexcept {
  CacheCell cell{};
  set(cell, 0, kMagic);
  set(cell, 8, header.slot_bytes);
  set(cell, 16, header.slots);
  set(cell, kChecked, checksum_of(cell, 0));
  return cell;
}

CacheCell to_cell(const CacheRecord& record, std::uint64_t number) noexcept {
  CacheCell cell{};
  set(cell, 0, kRecord);
  set(cell, 4, record.slot);
  set(cell, 8, record.key.version);
  set(cell, 24, record.key.offset);
  set(cell, 32, record.key.bytes);
  set(cell, 36, record.checksum);
  set(cell, kChecked, checksum_of(cell, number));
  return cell;
}

std::optional<CacheHeader> header_of(const CacheCell& cell) noexcept {
  if (get<std::uint64_t>(cell, 0) != kMagic ||
      get<std::uint32_t>(cell, kChecked) != checksum_of(cell, 0))
    return std::nullopt;
  return CacheHeader{get<std::uint64_t>(cell, 8), get<std::uint64_t>(cell, 16)};
}

std::optional<CacheRecord> record_of(const CacheCell& cell, std::uint64_t number,
                                     const CacheHeader& header) noexcept {
  if (get<std::uint32_t>(cell, 0) != kRecord ||
      get<std::uint32_t>(cell, kChecked) != checksum_of(cell, number))
    return std::nullopt;
  CacheRecord record;
  record.slot = get<std::uint32_t>(cell, 4);
  record.key.version = get<ObjectVersion>(cell, 8);
  record.key.offset = get<std::uint64_t>(cell, 24);
  record.key.bytes = get<std::uint32_t>(cell, 32);
  record.checksum = get<std::uint32_t>(cell, 36);
  if (record.slot >= header.slots || record.key.bytes > header.slot_bytes) return std::nullopt;
  return record;
}

}  // namespace penstock::remote
