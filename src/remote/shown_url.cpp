// SPDX-License-Identifier: Apache-2.0
#include "shown_url.hpp"

namespace penstock::remote {
namespace {

struct Parts {
  std::string_view scheme, host, path;
};

/// The path may be empty, and has no query.
Parts cut(std::string_view url) {
  Parts parts;
  const std::size_t colon = url.find("://");
  if (colon != std::string_view::npos) {
    parts.scheme = url.substr(0, colon);
    url.remove_prefix(colon + 3);
  }
  const std::size_t end = url.find_first_of("/?#");
  parts.host = url.substr(0, end);
  if (end != std::string_view::npos) parts.path = url.substr(end);
  parts.host.remove_prefix(parts.host.rfind('@') + 1);  // npos + 1 is 0
  parts.path = parts.path.substr(0, parts.path.find_first_of("?#"));
  return parts;
}

}  // namespace

std::string shown_url(std::string_view url) {
  const Parts parts = cut(url);
  std::string shown;
  for (const std::string_view part :
       {parts.scheme, std::string_view(parts.scheme.empty() ? "" : "://"), parts.host, parts.path})
    for (const char letter : part) shown += letter < ' ' || letter == 127 ? '?' : letter;
  return shown;
}

std::string origin_of(std::string_view url) {
  const Parts parts = cut(url);
  std::string origin;
  for (const std::string_view part : {parts.scheme, std::string_view("://"), parts.host})
    for (const char letter : part)
      origin += letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  for (const auto& [scheme, port] :
       {std::pair<std::string_view, std::string_view>{"http://", ":80"}, {"https://", ":443"}})
    if (origin.starts_with(scheme) && origin.ends_with(port))
      origin.resize(origin.size() - port.size());
  return origin;
}

}  // namespace penstock::remote
