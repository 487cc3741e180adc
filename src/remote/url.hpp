// SPDX-License-Identifier: Apache-2.0
#pragma once

// The parts of a URL, and percent-encoding by RFC 3986.

#include <optional>
#include <penstock/version.hpp>
#include <string>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::remote {

/// All bytes but A-Z, a-z, 0-9 and "-_.~" as %XX; and but "/" with `keep_slashes`.
std::string percent_encoded(std::string_view text, bool keep_slashes);
/// The same, put behind `out`.
void append_percent_encoded(std::string& out, std::string_view text, bool keep_slashes);

/// Each %XX as its byte; "+" as a space with `plus_is_space`. nullopt: a "%" without two digits.
std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space = false);

/// What percent_encoded() makes of the bytes that `text` stands for, behind `out`: the same for
/// each way to encode them. False: a "%" without two digits.
bool append_normalised(std::string& out, std::string_view text, bool keep_slashes);

/// Views of a URL's parts: scheme://user_info@authority/path?query
struct UrlParts {
  std::string_view scheme;
  std::string_view user_info;
  std::string_view authority;  ///< host, or host:port
  std::string_view path;       ///< with the slash that it begins with; empty if there is none
  std::string_view query;      ///< without the "?"
};

/// Cuts the text, and does not look at the parts. nullopt: there is no "://".
std::optional<UrlParts> split_url(std::string_view url);

/// What a message may show of a text that should be a URL and may be none: no query, and "***" for
/// all that may be user info; control characters as \xNN.
std::string printable_url(std::string_view text);

}  // namespace penstock::remote
