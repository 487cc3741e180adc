// SPDX-License-Identifier: Apache-2.0
#include "request_ranges.hpp"

#if !defined(PENSTOCK_DISABLE_NVTX) && !defined(NVTX_DISABLE)
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::remote {
namespace {

constexpr std::size_t kLongestPath = 200;

penstock::detail::Marker marker(const char* text, const MarkerCategory& category) noexcept {
  return penstock::detail::make_marker(penstock::detail::own_domain, text, category);
}

/// The end of the URL's path, where it is long. The host may hold a name, and the query a secret.
std::string_view path_of(std::string_view url) noexcept {
  if (const auto scheme = url.find("://"); scheme != url.npos) url.remove_prefix(scheme + 3);
  url = url.substr(0, url.find_first_of("?#"));
  const auto host_end = url.find('/');
  if (host_end == url.npos) return {};
  url.remove_prefix(host_end + 1);
  return url.substr(url.size() - std::min(url.size(), kLongestPath));
}

}  // namespace

RequestRanges::RequestRanges() noexcept
    : first_(marker("GET", {11, "request", 0xffa0cbe8})),
      retry_(marker("GET retry", {12, "request again", 0xffd37295})),
      hedge_(marker("GET hedge", {13, "hedge", 0xffffbe7d})) {}

std::uint64_t RequestRanges::start(const Part& part, std::size_t from, std::size_t bytes,
                                   bool is_hedge) const noexcept {
  const bool is_retry = !is_hedge && part.attempts > 1;
  const penstock::detail::Marker& marker = is_hedge ? hedge_ : is_retry ? retry_ : first_;
  std::array<char, kLongestPath + 100> text;
  const std::string_view path = path_of(part.object->url);
  const int length = std::snprintf(text.data(), text.size(), "GET%s /%.*s",
                                   is_hedge   ? " hedge"
                                   : is_retry ? " retry"
                                              : "",
                                   static_cast<int>(path.size()), path.data());
  if (!part.whole && length > 0) {
    const auto used = static_cast<std::size_t>(length);
    const unsigned long long begin = part.offset + from;
    std::snprintf(text.data() + used, text.size() - used, " %llu-%llu", begin, begin + bytes - 1);
  }
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.category = marker.category;
  attributes.colorType = NVTX_COLOR_ARGB;
  attributes.color = marker.color;
  attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  attributes.payload.ullValue = bytes;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text.data();
  return nvtxDomainRangeStartEx(static_cast<nvtxDomainHandle_t>(marker.domain), &attributes);
}

void RequestRanges::stop(std::uint64_t range) const noexcept {
  nvtxDomainRangeEnd(static_cast<nvtxDomainHandle_t>(first_.domain), range);
}

}  // namespace penstock::remote

#endif
