// SPDX-License-Identifier: Apache-2.0
#pragma once

// The handles of libcurl, with owners.

#include <curl/curl.h>

#include <memory>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::remote {

struct EndEasy {
  void operator()(CURL* handle) const noexcept { ::curl_easy_cleanup(handle); }
};
struct EndMulti {
  void operator()(CURLM* handle) const noexcept { ::curl_multi_cleanup(handle); }
};
/// One transfer at a time.
using Easy = std::unique_ptr<CURL, EndEasy>;
/// Many transfers on one thread, which no longer has any when it ends.
using Multi = std::unique_ptr<CURLM, EndMulti>;

}  // namespace penstock::remote
