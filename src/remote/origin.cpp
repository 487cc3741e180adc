// SPDX-License-Identifier: Apache-2.0
#include "origin.hpp"

#include <utility>

#include "url.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

std::string origin_of(std::string_view url) {
  // A fragment, or a query without a path, may follow the host.
  const UrlParts parts = split_url(url.substr(0, url.find_first_of("?#"))).value_or(UrlParts{});
  std::string origin;
  for (const std::string_view part : {parts.scheme, std::string_view("://"), parts.authority})
    for (const char letter : part)
      origin += letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  for (const auto& [scheme, port] :
       {std::pair<std::string_view, std::string_view>{"http://", ":80"}, {"https://", ":443"}})
    if (origin.starts_with(scheme) && origin.ends_with(port))
      origin.resize(origin.size() - port.size());
  return origin;
}

}  // namespace penstock::remote
