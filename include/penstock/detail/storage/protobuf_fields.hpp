// SPDX-License-Identifier: Apache-2.0
#pragma once

// ProtobufFields: the fields of a message in the wire format of Protocol Buffers, one after the
// other. Groups, which version 3 does not have, are errors.

#include <cstddef>
#include <cstdint>
#include <penstock/detail/storage/number_at.hpp>
#include <penstock/version.hpp>
#include <span>
#include <stdexcept>

namespace penstock::inline PENSTOCK_ABI::detail {

enum class WireType { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

struct ProtobufField {
  std::uint32_t number = 0;
  WireType type = WireType::varint;
  std::uint64_t value = 0;           // of the other types
  std::span<const std::byte> bytes;  // of WireType::bytes
};

class ProtobufFields {
 public:
  explicit ProtobufFields(std::span<const std::byte> message) : rest_(message) {}

  bool empty() const noexcept { return rest_.empty(); }
  std::span<const std::byte> rest() const noexcept { return rest_; }

  /// Takes the next field away, which must be there. Throws std::runtime_error.
  ProtobufField next() {
    const std::uint64_t key = next_varint();
    ProtobufField field{.number = static_cast<std::uint32_t>(key >> 3),
                        .type = static_cast<WireType>(key & 7),
                        .value = 0,
                        .bytes = {}};
    if (field.number == 0 || key >> 32 != 0) throw std::runtime_error("a field has no number");
    switch (field.type) {
      case WireType::varint:
        field.value = next_varint();
        return field;
      case WireType::fixed64:
        field.value = number_at<std::uint64_t>(take(8), 0);
        return field;
      case WireType::fixed32:
        field.value = number_at<std::uint32_t>(take(4), 0);
        return field;
      case WireType::bytes:
        field.bytes = take(next_varint());
        return field;
    }
    throw std::runtime_error("a field has an unknown type");
  }

  /// Takes a number of 1 to 10 bytes away, each of which has 7 bits of it.
  std::uint64_t next_varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<std::uint64_t>(take(1)[0]);
      if (shift == 63 && byte > 1) break;
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw std::runtime_error("a number has more than 64 bits");
  }

 private:
  std::span<const std::byte> take(std::uint64_t bytes) {
    if (bytes > rest_.size()) throw std::runtime_error("it is cut within a field");
    const auto taken = rest_.first(static_cast<std::size_t>(bytes));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

  std::span<const std::byte> rest_;
};

}  // namespace penstock::detail
