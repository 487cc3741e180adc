// SPDX-License-Identifier: Apache-2.0

#include "url.hpp"

#include <algorithm>
#include <cstddef>
#include <penstock/detail/escaped.hpp>

namespace penstock::inline PENSTOCK_ABI::remote {

namespace {

constexpr std::string_view kDigits = "0123456789ABCDEF";

bool is_unreserved(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.' || c == '~';
}

/// -1: it is no hexadecimal digit.
int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

void append_encoded(std::string& out, char c, bool keep_slashes) {
  if (is_unreserved(c) || (keep_slashes && c == '/')) {
    out += c;
  } else {
    const auto byte = static_cast<unsigned char>(c);
    out.append({'%', kDigits[byte >> 4], kDigits[byte & 15]});
  }
}

/// Calls take(byte, whether it was encoded) for each byte that `text` stands for. False: a "%"
/// without two digits.
template <class Take>
bool decode(std::string_view text, bool plus_is_space, const Take& take) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      take(' ', true);
    } else if (text[i] != '%') {
      take(text[i], false);
    } else {
      const int high = text.size() - i > 2 ? digit(text[i + 1]) : -1;
      const int low = text.size() - i > 2 ? digit(text[i + 2]) : -1;
      if (high < 0 || low < 0) return false;
      take(static_cast<char>(high * 16 + low), true);
      i += 2;
    }
  }
  return true;
}

}  // namespace

void append_percent_encoded(std::string& out, std::string_view text, bool keep_slashes) {
  for (const char c : text) append_encoded(out, c, keep_slashes);
}

bool append_normalised(std::string& out, std::string_view text, bool keep_slashes) {
  return decode(text, false, [&](char c, bool was_encoded) {
    append_encoded(out, c, keep_slashes && !was_encoded);
  });
}

std::string percent_encoded(std::string_view text, bool keep_slashes) {
  std::string out;
  out.reserve(text.size());
  append_percent_encoded(out, text, keep_slashes);
  return out;
}

std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  if (!decode(text, plus_is_space, [&](char c, bool) { out += c; })) return std::nullopt;
  return out;
}

std::optional<UrlParts> split_url(std::string_view url) {
  const std::size_t colon = url.find("://");
  if (colon == std::string_view::npos) return std::nullopt;
  UrlParts parts;
  parts.scheme = url.substr(0, colon);
  url.remove_prefix(colon + 3);
  if (const std::size_t mark = url.find('?'); mark != std::string_view::npos) {
    parts.query = url.substr(mark + 1);
    url = url.substr(0, mark);
  }
  const std::size_t slash = url.find('/');
  parts.authority = url.substr(0, slash);
  if (slash != std::string_view::npos) parts.path = url.substr(slash);
  if (const std::size_t at = parts.authority.rfind('@'); at != std::string_view::npos) {
    parts.user_info = parts.authority.substr(0, at);
    parts.authority.remove_prefix(at + 1);
  }
  return parts;
}

std::string printable_url(std::string_view text) {
  text = text.substr(0, text.find_first_of("?#"));
  std::string shown;
  // A password may have "/" or "://" in it where the text is no proper URL.
  if (const std::size_t at = text.rfind('@'); at != std::string_view::npos) {
    const std::string_view scheme = text.substr(0, text.find("://"));
    if (scheme.size() < at && std::all_of(scheme.begin(), scheme.end(), &is_unreserved))
      shown.append(scheme).append("://");
    shown += "***";
    text.remove_prefix(at);
  }
  return detail::escaped(shown.append(text));
}

}  // namespace penstock::remote
