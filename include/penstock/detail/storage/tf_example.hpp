// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <limits>
#include <penstock/detail/escaped.hpp>
#include <penstock/detail/storage/protobuf_fields.hpp>
#include <penstock/tf_example.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>

// The messages, of tensorflow/core/example/example.proto and feature.proto:
//
//   Example   { Features features = 1; }
//   Features  { map<string, Feature> feature = 1; }      each entry: key = 1, value = 2
//   Feature   { oneof { BytesList = 1; FloatList = 2; Int64List = 3; } }
//   ...List   { repeated ... value = 1; }                numbers are packed, or one by one

namespace penstock::inline PENSTOCK_ABI {

namespace detail {

[[noreturn]] inline void fail_example(const std::string& why) {
  throw std::runtime_error("the record is no tf.train.Example: " + why);
}

inline bool is_message(const ProtobufField& field, std::uint32_t number) {
  return field.number == number && field.type == WireType::bytes;
}

}  // namespace detail

PENSTOCK_INLINE void TfFeature::fail(const char* why) const {
  throw std::runtime_error("TfExample: feature \"" + detail::escaped(name_.substr(0, 200)) + "\" " +
                           why);
}

PENSTOCK_INLINE TfFeature::TfFeature(std::string_view name, std::span<const std::byte> message)
    : name_(name) {
  for (detail::ProtobufFields fields(message); !fields.empty();) {
    const detail::ProtobufField field = fields.next();
    if (field.type != detail::WireType::bytes || field.number > 3) continue;
    if (kind_ != Kind::none) fail("has two lists of values");
    kind_ = static_cast<Kind>(field.number);
    list_ = field.bytes;
  }
}

PENSTOCK_INLINE void TfFeature::require(Kind kind, const char* what) const {
  if (kind_ == kind) return;
  constexpr const char* kNames[] = {"no list", "bytes", "floats", "int64s"};
  fail(("has " + std::string(kNames[static_cast<int>(kind_)]) + ", and " + what + " are asked for")
           .c_str());
}

/// Calls `take` with the bits of each number of a list of floats or of int64s.
template <class Take>
void TfFeature::for_each_number(const Take& take) const try {
  const bool is_floats = kind_ == Kind::floats;
  const auto single = is_floats ? detail::WireType::fixed32 : detail::WireType::varint;
  for (detail::ProtobufFields fields(list_); !fields.empty();) {
    const detail::ProtobufField field = fields.next();
    if (field.number != 1) continue;
    if (field.type == single) {
      take(field.value);
    } else if (field.type != detail::WireType::bytes) {
      throw std::runtime_error("a value has another type");
    } else if (is_floats) {
      if (field.bytes.size() % 4 != 0) throw std::runtime_error("it is cut within a float");
      for (std::size_t at = 0; at < field.bytes.size(); at += 4)
        take(detail::number_at<std::uint32_t>(field.bytes, at));
    } else {
      for (detail::ProtobufFields numbers(field.bytes); !numbers.empty();)
        take(numbers.next_varint());
    }
  }
} catch (const std::runtime_error& error) {
  fail((std::string("is damaged: ") + error.what()).c_str());
}

PENSTOCK_INLINE std::int64_t TfFeature::size() const {
  std::int64_t count = 0;
  if (kind_ == Kind::floats || kind_ == Kind::int64s)
    for_each_number([&](std::uint64_t) { ++count; });
  if (kind_ != Kind::bytes) return count;
  try {
    for (detail::ProtobufFields fields(list_); !fields.empty();)
      if (detail::is_message(fields.next(), 1)) ++count;
  } catch (const std::runtime_error& error) {
    fail((std::string("is damaged: ") + error.what()).c_str());
  }
  return count;
}

PENSTOCK_INLINE std::span<const std::byte> TfFeature::bytes(std::int64_t index) const {
  require(Kind::bytes, "bytes");
  std::int64_t left = index;
  try {
    for (detail::ProtobufFields fields(list_); !fields.empty();) {
      const detail::ProtobufField field = fields.next();
      if (detail::is_message(field, 1) && left-- == 0) return field.bytes;
    }
  } catch (const std::runtime_error& error) {
    fail((std::string("is damaged: ") + error.what()).c_str());
  }
  fail(("has no value " + std::to_string(index)).c_str());
}

template <class Value, class Number>
void TfFeature::copy_numbers(std::span<Value> values) const {
  constexpr bool kIsFloat = std::is_floating_point_v<Value>;
  require(kIsFloat ? Kind::floats : Kind::int64s, kIsFloat ? "floats" : "int64s");
  std::size_t count = 0;
  bool fits = true;
  for_each_number([&](std::uint64_t bits) {
    const std::size_t at = count++;
    if (at >= values.size()) return;
    if constexpr (kIsFloat) {
      values[at] = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    } else {
      const auto number = static_cast<Number>(bits);
      fits = fits && number >= std::numeric_limits<Value>::min() &&
             number <= std::numeric_limits<Value>::max();
      values[at] = static_cast<Value>(number);
    }
  });
  if (count != values.size())
    fail(("has " + std::to_string(count) + " values, and " + std::to_string(values.size()) +
          " are asked for")
             .c_str());
  if (!fits) fail("has a value that does not fit into 32 bits");
}

PENSTOCK_INLINE void TfFeature::copy(std::span<float> values) const {
  copy_numbers<float, float>(values);
}
PENSTOCK_INLINE void TfFeature::copy(std::span<std::int64_t> values) const {
  copy_numbers<std::int64_t, std::int64_t>(values);
}
PENSTOCK_INLINE void TfFeature::copy(std::span<std::int32_t> values) const {
  copy_numbers<std::int32_t, std::int64_t>(values);
}

PENSTOCK_INLINE TfExample::TfExample(std::span<const std::byte> record) {
  try {
    bool has_features = false;
    for (detail::ProtobufFields fields(record); !fields.empty();) {
      const detail::ProtobufField field = fields.next();
      if (!detail::is_message(field, 1)) continue;
      if (has_features) throw std::runtime_error("it has its features twice");
      has_features = true;
      features_ = field.bytes;
    }
  } catch (const std::runtime_error& error) {
    detail::fail_example(error.what());
  }
  for_each([](const TfFeature&) {});
}

PENSTOCK_INLINE std::optional<TfFeature> TfExample::take(std::span<const std::byte>& rest) try {
  detail::ProtobufFields features(rest);
  const detail::ProtobufField entry = features.next();
  rest = features.rest();
  if (!detail::is_message(entry, 1)) return std::nullopt;
  std::string_view name;
  std::span<const std::byte> value;
  bool has_value = false;
  for (detail::ProtobufFields fields(entry.bytes); !fields.empty();) {
    const detail::ProtobufField field = fields.next();
    if (detail::is_message(field, 1))
      name = {reinterpret_cast<const char*>(field.bytes.data()), field.bytes.size()};
    if (!detail::is_message(field, 2)) continue;
    if (has_value) throw std::runtime_error("a feature has two values");
    has_value = true;
    value = field.bytes;
  }
  return TfFeature(name, value);
} catch (const std::runtime_error& error) {
  detail::fail_example(error.what());
}

PENSTOCK_INLINE std::optional<TfFeature> TfExample::find(std::string_view name) const {
  std::optional<TfFeature> found;  // the last one, as the format has it
  for_each([&](const TfFeature& feature) {
    if (feature.name() == name) found = feature;
  });
  return found;
}

PENSTOCK_INLINE TfFeature TfExample::operator[](std::string_view name) const {
  if (const std::optional<TfFeature> feature = find(name)) return *feature;
  throw std::runtime_error("TfExample: there is no feature \"" +
                           detail::escaped(name.substr(0, 200)) + "\"");
}

}  // namespace penstock
