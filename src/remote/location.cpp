// SPDX-License-Identifier: Apache-2.0

#include "location.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <penstock/detail/escaped.hpp>
#include <penstock/detail/words.hpp>
#include <stdexcept>

#include "url.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

namespace {

using detail::lower_case;

constexpr std::size_t kLongestKey = 1024, kLongestBucket = 255, kLongestUrl = 16384;

[[noreturn]] void fail(std::string_view url, const std::string& why) {
  throw std::invalid_argument("\"" + printable_url(url) + "\": " + why);
}

bool is_letter_or_digit(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
}

/// Four numbers with dots between them.
bool is_address(std::string_view host) {
  return std::count(host.begin(), host.end(), '.') == 3 &&
         host.find_first_not_of("0123456789.") == std::string_view::npos;
}

/// Whether a bucket's name can be the first label of a host's name under a certificate for *.host.
bool is_label(std::string_view name) {
  return name.size() >= 3 && name.size() <= 63 && is_letter_or_digit(name.front()) &&
         is_letter_or_digit(name.back()) && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

/// host, host:port or [address]:port; in lower case, and without the scheme's own port, as it is in
/// the header Host.
std::string read_authority(std::string_view authority, std::string_view scheme,
                           std::string_view url) {
  const std::size_t bracket = authority.starts_with('[') ? authority.find(']') : 0;
  if (bracket == std::string_view::npos) fail(url, "the address of the host has no \"]\"");
  const std::size_t colon = authority.find(':', bracket);
  std::string host = lower_case(authority.substr(0, colon));
  if (bracket > 0) {
    const std::string_view inside = std::string_view(host).substr(1, bracket - 1);
    if (host.size() != bracket + 1 || inside.empty() ||
        inside.find_first_not_of("0123456789abcdef:.") != std::string_view::npos)
      fail(url, "what is between \"[\" and \"]\" is no address of a host");
  } else {
    if (host.empty())
      fail(url, "the name of a host is missing behind " + std::string(scheme) + "://");
    const auto fits = [](char c) {
      return is_letter_or_digit(c) || c == '-' || c == '.' || c == '_';
    };
    if (!std::all_of(host.begin(), host.end(), fits) || host.front() == '.' ||
        host.find("..") != std::string::npos || host.size() > 253)
      fail(url, "what is behind \"" + std::string(scheme) + "://\" is no name of a host");
  }
  if (colon == std::string_view::npos || colon + 1 == authority.size()) return host;
  const std::string_view port = authority.substr(colon + 1);
  const auto number = detail::read_number<std::uint32_t>(port);
  if (!number || *number == 0 || *number > 65535 || port.starts_with('+'))
    fail(url, "a port is a number from 1 to 65535");
  if (*number == (scheme == "https" ? 443u : 80u)) return host;
  return host + ":" + std::to_string(*number);
}

/// The path or query of an http URL with %XX for each byte that no URL may have.
std::string read_encoded(std::string_view text, std::string_view url) {
  constexpr std::string_view kAllowed = "-._~!$&'()*+,;=:@/?%[]";
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '#')
      fail(url,
           "\"#\" begins a fragment, which no server gets: write %23 if it is part of the name");
    if (is_letter_or_digit(c) || kAllowed.find(c) != std::string_view::npos)
      out += c;
    else
      append_percent_encoded(out, text.substr(i, 1), false);
  }
  if (!percent_decoded(out))
    fail(url, "a \"%\" must be followed by two hexadecimal digits (\"%\" itself is %25)");
  return out;
}

void require_bucket(std::string_view name, std::string_view url) {
  if (name.empty()) fail(url, "the name of the bucket is missing");
  if (name.find('@') != std::string_view::npos)
    fail(url, "user info does not belong into it: credentials are options of their own");
  const auto fits = [](char c) {
    return is_letter_or_digit(c) || c == '-' || c == '.' || c == '_';
  };
  if (!std::all_of(name.begin(), name.end(), fits))
    fail(url, "the name of a bucket has letters, digits, \"-\", \".\" and \"_\" alone");
  if (name.size() < 3 || name.size() > kLongestBucket)
    fail(url, "the name of a bucket has 3 to 255 characters, and this has " +
                  std::to_string(name.size()));
  if (name.front() == '.' || name.back() == '.' || name.find("..") != std::string_view::npos)
    fail(url, "the name of a bucket has no \".\" at an end or beside another");
}

void require_key(std::string_view key, std::string_view url) {
  if (key.size() > kLongestKey)
    fail(url, "a key has at most 1024 bytes, and this has " + std::to_string(key.size()));
  if (key.find('\0') != std::string_view::npos) fail(url, "a key has no character 0");
}

void append_parameter(std::string& url, std::string_view name, std::string_view value) {
  url += url.find('?') == std::string::npos ? '?' : '&';
  url.append(name).append("=");
  append_percent_encoded(url, value, false);
}

}  // namespace

Location Location::parse(std::string_view url, const LocationOptions& options) {
  if (url.size() > kLongestUrl)
    fail(url.substr(0, 100),
         "the URL has " + std::to_string(url.size()) + " bytes, and at most 16384 are taken");
  Location location;
  const std::size_t colon = url.find("://");
  const std::string scheme = lower_case(url.substr(0, colon));
  if (colon == std::string_view::npos)
    fail(url, "it must begin with s3://, gs://, https:// or http://");
  if (scheme == "s3" || scheme == "gs") {
    location.service_ = scheme == "s3" ? Service::s3 : Service::gcs;
    location.take_object(url.substr(colon + 3), url, options);
  } else if (scheme == "https" || scheme == "http") {
    location.take_page(url);
  } else {
    fail(url, "it must begin with s3://, gs://, https:// or http://");
  }
  return location;
}

void Location::take_object(std::string_view rest, std::string_view url,
                           const LocationOptions& options) {
  const std::size_t slash = rest.find('/');
  bucket_ = rest.substr(0, slash);
  require_bucket(bucket_, url);
  if (slash != std::string_view::npos) key_ = rest.substr(slash + 1);
  require_key(key_, url);
  region_ = options.region;
  if (region_.empty()) region_ = service_ == Service::s3 ? "us-east-1" : "auto";
  const auto fits = [](char c) { return is_letter_or_digit(c) || c == '-' || c == '_'; };
  if (!std::all_of(region_.begin(), region_.end(), fits))
    fail(url, "\"" + detail::escaped(region_) + "\" is no name of a region");
  take_endpoint(url, options);
}

void Location::take_endpoint(std::string_view url, const LocationOptions& options) {
  std::string endpoint = options.endpoint;
  if (endpoint.empty() && service_ == Service::gcs) {
    endpoint = "https://storage.googleapis.com";
  } else if (endpoint.empty()) {
    endpoint =
        "https://s3." + region_ + ".amazonaws.com" + (region_.starts_with("cn-") ? ".cn" : "");
  }
  const std::optional<UrlParts> parts = split_url(endpoint);
  const std::string scheme = parts ? lower_case(parts->scheme) : "";
  if (scheme != "http" && scheme != "https")
    fail(endpoint, "an endpoint begins with https:// or http://");
  if (!parts->user_info.empty() || endpoint.find('@') != std::string::npos)
    fail(endpoint,
         "user info does not belong into an endpoint: credentials are options of their own");
  if (endpoint.find('?') != std::string::npos) fail(endpoint, "an endpoint has no query");
  std::string authority = read_authority(parts->authority, scheme, endpoint);
  std::string path = read_encoded(parts->path, endpoint);
  while (path.ends_with('/')) path.pop_back();

  const bool custom = !options.endpoint.empty();
  bucket_is_host_ = options.addressing == Addressing::virtual_host ||
                    (options.addressing == Addressing::automatic && service_ == Service::s3 &&
                     !custom && is_label(bucket_));
  if (bucket_is_host_) {
    if (!is_label(bucket_))
      fail(url, "the name of the bucket cannot be part of a host's name: use the path style");
    if (authority.starts_with('[') || is_address(authority.substr(0, authority.find(':'))))
      fail(endpoint, "an address cannot have the name of a bucket before it: use the path style");
    authority = bucket_ + "." + authority;
  } else {
    path += "/" + bucket_;
  }
  root_ = scheme + "://" + authority + path;
}

void Location::take_page(std::string_view url) {
  const UrlParts parts = *split_url(url);
  if (std::any_of(url.begin(), url.end(), is_control)) fail(url, "a URL has no control characters");
  const std::string scheme = lower_case(parts.scheme);
  const std::string authority = read_authority(parts.authority, scheme, url);
  host_ = scheme + "://" + authority;
  root_ = scheme + "://";
  if (!parts.user_info.empty()) root_ += read_encoded(parts.user_info, url) + "@";
  root_ += authority;
  path_ = parts.path.empty() ? "/" : read_encoded(parts.path, url);
  if (url.find('?') != std::string_view::npos)
    query_.assign("?").append(read_encoded(parts.query, url));
}

Location Location::object(std::string_view key) const {
  if (service_ == Service::http)
    throw std::invalid_argument("\"" + printable() + "\": it has no bucket, and so no other keys");
  Location other = *this;
  other.key_ = key;
  require_key(key, other.printable());
  return other;
}

std::string Location::url() const {
  if (service_ == Service::http) return root_ + path_ + query_;
  if (key_.empty())
    throw std::invalid_argument("\"" + printable() + "\": the key of an object is missing");
  std::string url = root_ + "/";
  append_percent_encoded(url, key_, true);
  return url;
}

std::string Location::listing_url(const ListingQuery& query) const {
  if (service_ == Service::http)
    throw std::invalid_argument("\"" + printable() +
                                "\": only s3:// and gs:// have listings; http servers have none");
  std::string url = root_;
  if (bucket_is_host_) url += '/';
  // In the order in which they are signed.
  if (!query.token.empty()) append_parameter(url, "continuation-token", query.token);
  if (!query.delimiter.empty()) append_parameter(url, "delimiter", query.delimiter);
  append_parameter(url, "encoding-type", "url");
  append_parameter(url, "list-type", "2");
  append_parameter(url, "max-keys", std::to_string(query.most_keys));
  append_parameter(url, "prefix", key_);
  return url;
}

std::string Location::printable() const {
  if (service_ == Service::http) return host_ + path_;
  return (service_ == Service::s3 ? "s3://" : "gs://") + bucket_ + "/" + detail::escaped(key_);
}

}  // namespace penstock::remote
