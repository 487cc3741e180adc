// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a service says about a call that it has not done: S3, GCS and STS answer with XML.

#include <penstock/version.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include "http_call.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

/// What the body of an answer says.
struct ServiceFault {
  std::string code;     ///< the service's own, such as "SlowDown"; empty where the body has none
  std::string message;  ///< empty where the body has none

  /// ", code: message", as far as there are any, of printable characters.
  std::string text() const;
  /// Whether the token of the credentials has expired.
  bool expired() const { return code == "ExpiredToken"; }
};
/// Of a body that may be cut off.
ServiceFault read_service_fault(std::string_view body);

/// A service refused a call. `what()` has the status, the code and the service's own message.
class ServiceError : public std::runtime_error {
 public:
  /// `about`: whose URL or which service, for the message.
  ServiceError(const std::string& about, const HttpAnswer& answer);
  /// Of HTTP.
  int status() const noexcept { return status_; }
  /// The service's own, such as "SlowDown"; empty where the body has none.
  const std::string& code() const noexcept { return code_; }

 private:
  ServiceError(const std::string& about, int status, ServiceFault fault);

  int status_;
  std::string code_;
};

}  // namespace penstock::remote
