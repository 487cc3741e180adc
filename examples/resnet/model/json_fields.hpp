// SPDX-License-Identifier: Apache-2.0
#pragma once

// Fields of a JSON object that a file has: each is of its type and in its range, or an error that
// names it. nlohmann's own conversions would wrap numbers around, and take an unknown enumerator
// for the first.
//
//   state.step = integer_of<std::int64_t>(json, "step", 0, most_steps);
//   sgd.momentum = number_of(json, "momentum", 0, 1);
//   model.format = enumerator_of<Format>(json, "format");
//
// All throw std::invalid_argument, or Json::exception for a field that is missing.

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace resnet {

/// What the JSON library says of a text, but not more of the text than fits a message: it quotes
/// all that it read last, which may be the whole file in longer words.
inline std::string reason_of(const nlohmann::json::exception& error) {
  constexpr std::size_t longest = 300;
  const std::string_view what = error.what();
  return std::string(what.substr(0, longest)) + (what.size() > longest ? "..." : "");
}

namespace detail {

inline std::invalid_argument bad_field(const char* key, const std::string& why) {
  return std::invalid_argument(std::string(key) + ' ' + why);
}

}  // namespace detail

template <class Integer>
Integer in_range(const nlohmann::json& value, const char* key, std::int64_t lowest,
                 std::int64_t highest) {
  // What is above the range of 64 bits with a sign is unsigned, and what is beyond that a float.
  const bool small = value.is_number_integer() &&
                     (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
  if (!small || value.get<std::int64_t>() < lowest || value.get<std::int64_t>() > highest)
    throw detail::bad_field(
        key, "is no integer from " + std::to_string(lowest) + " to " + std::to_string(highest));
  return static_cast<Integer>(value.get<std::int64_t>());
}

template <class Integer>
Integer integer_of(const nlohmann::json& object, const char* key, std::int64_t lowest,
                   std::int64_t highest) {
  return in_range<Integer>(object.at(key), key, lowest, highest);
}

inline float number_of(const nlohmann::json& object, const char* key, double lowest,
                       double highest) {
  const nlohmann::json& value = object.at(key);
  const double number = value.is_number() ? value.get<double>() : NAN;
  if (!(number >= lowest && number <= highest))
    throw detail::bad_field(
        key, "is no number from " + std::to_string(lowest) + " to " + std::to_string(highest));
  return static_cast<float>(number);
}

/// By the names of NLOHMANN_JSON_SERIALIZE_ENUM.
template <class Enum>
Enum enumerator_of(const nlohmann::json& object, const char* key) {
  const nlohmann::json& value = object.at(key);
  if (!value.is_string()) throw detail::bad_field(key, "is no text");
  const auto enumerator = value.get<Enum>();
  if (nlohmann::json(enumerator) != value)
    throw detail::bad_field(
        key, "is \"" + value.get<std::string>().substr(0, 40) + "\", which is unknown");
  return enumerator;
}

}  // namespace resnet
