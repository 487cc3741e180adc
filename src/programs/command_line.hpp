// SPDX-License-Identifier: Apache-2.0
#pragma once

// The common part of all programs' command lines. An empty value is an error: it comes from an
// unset variable and would turn off the option that was requested.
//
//   app.add_option("--rate", rate)->check(penstock::programs::finite(1e-3, 1e3));
//   app.add_option("--seed", seed)->transform(penstock::programs::whole_number());
//   if (const auto status = penstock::programs::parse(app, argc, argv)) return *status;

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace penstock::programs {

/// Checks that a number is between `lowest` and `highest`. (CLI::Range accepts nan.)
inline CLI::Validator finite(double lowest, double highest = std::numeric_limits<double>::max()) {
  std::ostringstream range;
  if (highest == std::numeric_limits<double>::max())
    range << "a finite number from " << lowest << " on";
  else
    range << "in [" << lowest << " - " << highest << "]";
  return {[lowest, highest, text = range.str()](const std::string& input) {
            double value = 0;
            const bool good = CLI::detail::lexical_cast(input, value) && std::isfinite(value) &&
                              value >= lowest && value <= highest;
            return good ? std::string() : "Value " + input + " is not " + text;
          },
          "FLOAT " + range.str()};
}

/// The largest signed number of 64 bits.
inline constexpr std::uint64_t most_signed = ~std::uint64_t{0} >> 1;

/// Checks, for transform(), that a text consists of digits and is a number between `least` and
/// `most`. (CLI::Range replaces a larger number by the largest one, and the message of
/// CLI::PositiveNumber has 309 digits.)
inline CLI::Validator whole_number(std::uint64_t least = 0, std::uint64_t most = most_signed) {
  const std::string range =
      "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  CLI::Validator validator("INT in [" + std::to_string(least) + " - " + std::to_string(most) + "]");
  validator.operation([least, most, range](std::string& input) {
    std::uint64_t value = 0;
    const char* const end = input.data() + input.size();
    const auto [stop, error] = std::from_chars(input.data(), end, value);
    if (error != std::errc() || stop != end || value < least || value > most)
      return "Value " + input + " is not " + range;
    input = std::to_string(value);  // without leading zeros, which CLI11 would take for octal
    return std::string();
  });
  return validator;
}

namespace detail {

[[noreturn]] inline void refuse_empty(const std::string& name) {
  throw CLI::ValidationError(name, "the value is empty: is a variable not set?");
}

/// Checks the value of an option, as it is on the command line.
inline void check_value(const std::string& name, std::string_view value, char delimiter) {
  if (value.empty()) refuse_empty(name);
  if (delimiter == '\0') return;
  const std::string two(2, delimiter);
  if (value.front() == delimiter || value.back() == delimiter ||
      value.find(two) != std::string_view::npos)
    throw CLI::ValidationError(name, "an entry of " + std::string(value) + " is empty");
}

/// CLI11 drops an empty entry of a list, and takes the next word for the value of "--name=". So
/// this checks the words first.
inline void check_words(const CLI::App& program, const std::vector<std::string>& words) {
  const CLI::App* app = &program;
  const CLI::Option* option = nullptr;  // the option whose values may follow
  std::string name;
  for (const std::string& word : words) {
    const std::size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    const std::string before = word.substr(0, equals);
    const CLI::Option* const named =
        word.starts_with('-') ? app->get_option_no_throw(before) : nullptr;
    if (named != nullptr) {
      option = named->get_items_expected_max() > 0 ? named : nullptr;
      name = before;
      if (equals == std::string::npos) continue;
      check_value(name, std::string_view(word).substr(equals + 1), named->get_delimiter());
      option = nullptr;
    } else if (option != nullptr) {
      check_value(name, word, option->get_delimiter());
      if (option->get_items_expected_max() == 1) option = nullptr;
    } else {
      const auto has_its_name = [&](const CLI::App* one) { return one->check_name(word); };
      const auto subcommands = app->get_subcommands(has_its_name);
      if (!word.empty() && !subcommands.empty()) {
        app = subcommands.front();
        continue;
      }
      // The remaining words belong to another program.
      if (app == &program && app->get_prefix_command()) return;
      if (word.empty())
        throw CLI::ValidationError("arguments", "one of them is empty: is a variable not set?");
    }
  }
}

}  // namespace detail

/// Parses the command line; `words` are those after the program's name. Throws CLI::ParseError.
inline void parse(CLI::App& app, std::vector<std::string> words) {
  detail::check_words(app, words);
  // CLI11 takes them in reverse order
  app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
}

/// Parses the command line for main. Returns the exit status if the program must end now: after
/// --help, or after a mistake, which it prints.
inline std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  try {
    if (app.get_name().empty() && argc > 0) app.name(argv[0]);
    parse(app, {argv + 1, argv + argc});
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

}  // namespace penstock::programs
