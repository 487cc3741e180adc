// SPDX-License-Identifier: Apache-2.0

#include "service_error.hpp"

#include <cstddef>
#include <penstock/detail/escaped.hpp>
#include <string_view>
#include <utility>

#include "xml.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

namespace {

constexpr std::size_t kLongestCode = 100, kLongestMessage = 300,
                      kLongestBody = std::size_t{1} << 16;

}  // namespace

ServiceFault read_service_fault(std::string_view body) {
  ServiceFault fault;
  try {
    read_xml(body.substr(0, kLongestBody), [&](std::string_view path, std::string_view text) {
      if (path.ends_with("Error/Code")) fault.code = text.substr(0, kLongestCode);
      if (path.ends_with("Error/Message")) fault.message = text.substr(0, kLongestMessage);
    });
  } catch (const XmlError&) {  // It is a page of a proxy, say, or was cut off.
  }
  return fault;
}

std::string ServiceFault::text() const {
  std::string text;
  if (!code.empty()) text += ", " + detail::escaped(code);
  if (!message.empty()) text += ": " + detail::escaped(message);
  return text;
}

ServiceError::ServiceError(const std::string& about, const HttpAnswer& answer)
    : ServiceError(about, answer.status, read_service_fault(answer.body)) {}

ServiceError::ServiceError(const std::string& about, int status, ServiceFault fault)
    : std::runtime_error(about + ": the server says " + std::to_string(status) + fault.text()),
      status_(status),
      code_(std::move(fault.code)) {}

}  // namespace penstock::remote
