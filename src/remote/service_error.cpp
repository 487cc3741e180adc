// SPDX-License-Identifier: Apache-2.0

#include "service_error.hpp"

#include <cstddef>
#include <penstock/detail/escaped.hpp>
#include <string_view>

#include "xml.hpp"

namespace penstock::remote {

namespace {

constexpr std::size_t kLongestCode = 100, kLongestMessage = 300,
                      kLongestBody = std::size_t{1} << 16;

}  // namespace

ServiceError::ServiceError(const std::string& about, const HttpAnswer& answer)
    : ServiceError(parts(about, answer), answer.status) {}

ServiceError::Parts ServiceError::parts(const std::string& about, const HttpAnswer& answer) {
  std::string code, message;
  try {
    read_xml(std::string_view(answer.body).substr(0, kLongestBody),
             [&](std::string_view path, std::string_view text) {
               if (path.ends_with("Error/Code")) code = text.substr(0, kLongestCode);
               if (path.ends_with("Error/Message")) message = text.substr(0, kLongestMessage);
             });
  } catch (const XmlError&) {  // It is a page of a proxy, say. The status remains.
  }
  std::string text = about + ": the server says " + std::to_string(answer.status);
  if (!code.empty()) text += ", " + detail::escaped(code);
  if (!message.empty()) text += ": " + detail::escaped(message);
  return {text, code};
}

}  // namespace penstock::remote
