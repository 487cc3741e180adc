// SPDX-License-Identifier: Apache-2.0
#pragma once

// A small HTTP call, whose answer fits into memory, and whoever makes it: what gets credentials and
// listings does not know which library that is.

#include <chrono>
#include <functional>
#include <penstock/version.hpp>
#include <string>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::remote {

struct HttpCall {
  std::string method = "GET";
  std::string url;
  std::vector<std::string> headers;           ///< "name: value"
  std::string body;                           ///< may hold a secret, as the headers may
  std::chrono::milliseconds timeout{10'000};  ///< of the whole call
};

struct HttpAnswer {
  int status = 0;
  std::string body;
};

/// Makes the call and waits for its answer, whatever the status. Follows no redirect. Throws
/// std::runtime_error where there is no answer; its text must hold neither headers nor a body.
using HttpFunction = std::function<HttpAnswer(const HttpCall&)>;

}  // namespace penstock::remote
