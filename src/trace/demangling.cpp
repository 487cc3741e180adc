// SPDX-License-Identifier: Apache-2.0
#include "demangling.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

// How the text is bounded before the demangler makes it: each back reference ("S1_") is first
// replaced by an identifier of the same length, which keeps the grammar valid. Then some more of
// them are restored at a time, in their order. A restored reference repeats a part of the text
// before it, so the text at most doubles, and its length determines how many may follow.

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

constexpr std::size_t kMostName = 1024;       // the C++ library's demangler has the same limit
constexpr std::size_t kMostAtOnce = 4 << 20;  // characters that one call may make
constexpr std::size_t kFirst = 4;             // references of the first attempt
// Identifiers may contain any byte, and the grammar uses none of these.
constexpr char kUnresolved = '\x01', kHidden = '\x02';

bool is_digit(char character) {
  return character >= '0' && character <= '9';
}

std::optional<std::string> demangle(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  if (!text) return {};
  return text.get();
}

/// Finds the identifiers and the references of a mangled name. It knows only a part of the grammar.
/// A name that it parses wrongly does not demangle when its identifiers are hidden.
class Scanner {
 public:
  struct Part {
    std::size_t at, length;
  };

  explicit Scanner(const std::string& name) : text_(name) {}

  /// Returns false if the name is not demangled here.
  bool scan() {
    at_ = 2;  // "_Z"
    while (at_ < text_.size())
      if (!step()) return false;
    return true;
  }

  /// Returns the name with only its first `references` references, with or without its identifiers.
  std::string name(std::size_t references, bool with_identifiers) const {
    std::string name = text_;
    for (std::size_t i = references; i < references_.size(); ++i) replace(name, references_[i]);
    if (!with_identifiers)
      for (const Part& part : identifiers_)
        std::fill_n(name.begin() + static_cast<std::ptrdiff_t>(part.at), part.length, kHidden);
    return name;
  }
  std::size_t references() const { return references_.size(); }

 private:
  /// A construct that an "E" ends.
  struct Bracket {
    char kind;
    bool has_type = false;  ///< for a literal: the value follows
  };

  bool step() {
    const char character = text_[at_];
    if (is_digit(character)) return value_or_identifier();
    if (character == 'S' || character == 'T') return reference(character);
    if (character == 'E') return end();
    if (starts_with("cv") || starts_with("sp") || starts_with("sZ") || starts_with("sP"))
      return false;
    if (starts_with("Dp")) {  // for parameters: each is a pointer to a pointer
      text_.replace(at_, 2, "PP");
      return skip(2);
    }
    return other(character);
  }

  bool other(char character) {
    if (starts_with("Ul") || starts_with("DT") || starts_with("Dt")) {
      open_.push_back({text_[at_ + 1]});
      return skip(2);
    }
    if (std::string_view("NIJLXFZ").find(character) != std::string_view::npos) {
      open_.push_back({character});
      return skip(1);
    }
    if (character == 'A' || character == '_' || starts_with("Ut") || starts_with("Dv") ||
        starts_with("fp"))
      return numbered(character == 'A' || character == '_' ? 1 : 2);
    if (character == 'C' || character == 'D') return skip(2);  // constructors; types of two letters
    if (character >= 'a' && character <= 'z') type_is_known();
    return skip(1);
  }

  bool value_or_identifier() {
    std::size_t number = 0, digits = 0;
    for (; at_ + digits < text_.size() && is_digit(text_[at_ + digits]); ++digits)
      number = std::min(number * 10 + static_cast<std::size_t>(text_[at_ + digits] - '0'),
                        std::size_t{2 * kMostName});
    at_ += digits;
    if (!open_.empty() && open_.back().kind == 'L' && open_.back().has_type) return true;
    if (number > text_.size() - at_) return false;
    identifiers_.push_back({at_, number});
    type_is_known();
    return skip(number);
  }

  /// Skips "S_" or "S1A_", "T_", or one of another kind, such as "St".
  bool reference(char kind) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && (is_digit(text_[end]) || (text_[end] >= 'A' && text_[end] <= 'Z')))
      ++end;
    if (end == text_.size() || text_[end] != '_') return skip(2);
    const Part part{at_, end + 1 - at_};
    if (part.length > 9) return false;
    if (kind == 'S')
      references_.push_back(part);
    else
      replace(text_, part);
    type_is_known();
    return skip(part.length);
  }

  bool end() {
    if (open_.empty()) return false;
    const char kind = open_.back().kind;
    open_.pop_back();
    type_is_known();
    return kind == 'l' ? numbered(1) : skip(1);
  }

  /// Skips a code of that length, and its number if it has one: "A16_", "Ut0_", "__12_".
  bool numbered(std::size_t length) {
    at_ += length;
    while (at_ < text_.size() && (is_digit(text_[at_]))) ++at_;
    if (at_ < text_.size() && text_[at_] == '_') ++at_;
    return true;
  }

  bool skip(std::size_t length) {
    at_ += length;
    return at_ <= text_.size();
  }
  bool starts_with(std::string_view code) const {
    return std::string_view(text_).substr(at_).starts_with(code);
  }
  void type_is_known() {
    if (!open_.empty()) open_.back().has_type = true;
  }

  static void replace(std::string& name, Part part) {
    name[part.at] = static_cast<char>('0' + part.length - 1);
    std::fill_n(name.begin() + static_cast<std::ptrdiff_t>(part.at + 1), part.length - 1,
                kUnresolved);
  }

  std::string text_;
  std::size_t at_ = 0;
  std::vector<Bracket> open_;
  std::vector<Part> identifiers_, references_;
};

/// Whether the text with all references is bounded.
bool is_bounded(const Scanner& scanner, std::size_t most) {
  std::size_t kept = std::min(kFirst, scanner.references());
  for (;;) {
    const std::optional<std::string> text = demangle(scanner.name(kept, false));
    if (!text || text->size() > most) return false;
    if (kept == scanner.references()) return true;
    const std::size_t factor = kMostAtOnce / std::max<std::size_t>(1, text->size());
    kept =
        std::min(scanner.references(), kept + static_cast<std::size_t>(std::bit_width(factor)) - 1);
  }
}

}  // namespace

std::optional<std::string> demangled_within_bounds(const std::string& name) {
  if (!name.starts_with("_Z") || name.size() > kMostName) return {};
  const auto is_control = [](char byte) { return static_cast<unsigned char>(byte) < 0x20; };
  if (std::any_of(name.begin(), name.end(), is_control)) return {};
  Scanner scanner(name);
  if (!scanner.scan() || !is_bounded(scanner, most_text(name.size()))) return {};
  return demangle(scanner.name(scanner.references(), true));
}

std::string without_abi(std::string name) {
  constexpr std::string_view kPenstock = "penstock::",
                             kCharacters = "_abcdefghijklmnopqrstuvwxyz0123456789";
  for (std::size_t at = 0; (at = name.find(kPenstock, at)) != std::string::npos;) {
    at += kPenstock.size();
    const std::size_t end = name.find_first_not_of(kCharacters, at);
    const std::string_view part = std::string_view(name).substr(at, end - at);
    const bool is_version = part.size() > 1 && part[0] == 'v' && part[1] >= '0' && part[1] <= '9';
    if (is_version && std::string_view(name).substr(end, 2) == "::") name.erase(at, end + 2 - at);
  }
  return name;
}

}  // namespace penstock::trace::detail
