// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a service says about a call that it has not done: S3, GCS and STS answer with XML.

#include <stdexcept>
#include <string>
#include <string_view>

#include "http_call.hpp"

namespace penstock::remote {

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
  struct Parts {
    std::string text, code;
  };
  ServiceError(Parts parts, int status)
      : std::runtime_error(parts.text), status_(status), code_(std::move(parts.code)) {}
  static Parts parts(const std::string& about, const HttpAnswer& answer);

  int status_;
  std::string code_;
};

}  // namespace penstock::remote
