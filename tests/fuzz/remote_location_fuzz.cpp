// SPDX-License-Identifier: Apache-2.0

// Any text as the URL of an object, behind an endpoint and a line break: what is taken is a URL
// that stands for the same key, can be signed, and is the same when it is read again; no message
// shows user info or a query.

#include <algorithm>
#include <cstddef>
#include <location.hpp>
#include <optional>
#include <penstock/detail/escaped.hpp>
#include <signer.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <url.hpp>

#include "fuzz.hpp"

namespace {

using namespace penstock::remote;
using penstock::test::require;

bool is_of_url(char c) {
  return c > ' ' && c < 0x7F && std::string_view("\"<>\\^`{|}#").find(c) == std::string_view::npos;
}

void check_url(const std::string& url) {
  static Signer signer("us-east-1");
  static const Credentials credentials{"id", Secret("secret"), {}, {}};
  require(std::all_of(url.begin(), url.end(), &is_of_url), "a URL has characters of URLs alone");
  const std::optional<UrlParts> parts = split_url(url);
  require(parts && !parts->authority.empty(), "a URL has a host");
  HttpCall call;
  call.url = url;
  signer.sign(call, credentials, WallTime{});
  require(call.headers.size() == 3, "it is signed");
}

void check(const Location& location) {
  const std::string shown = location.printable();
  require(penstock::detail::escaped(shown) == shown, "a message has printable characters alone");
  if (location.service() == Service::http) {
    require(shown.find('?') == std::string::npos, "no message shows a query");
    require(split_url(shown)->user_info.empty(), "no message shows user info");
    check_url(location.url());
    require(Location::parse(location.url()).url() == location.url(), "read again, it is the same");
    return;
  }
  check_url(location.listing_url({.token = location.key(), .delimiter = "/"}));
  if (location.key().empty()) return;
  check_url(location.url());
  const std::string path(split_url(location.url())->path);
  const std::string end = "/" + location.key();
  const std::optional<std::string> plain = percent_decoded(path);
  require(plain && plain->ends_with(end), "the URL is that of the key");
  require(location.object(location.key()).url() == location.url(), "the same key has the same URL");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t line = std::min(text.find('\n'), size);
  LocationOptions options;
  options.endpoint = text.substr(0, line);
  const std::string_view url = text.substr(std::min(line + 1, size));
  for (const Addressing addressing :
       {Addressing::automatic, Addressing::path, Addressing::virtual_host}) {
    options.addressing = addressing;
    try {
      check(Location::parse(url, options));
    } catch (const std::invalid_argument& error) {
      require(penstock::detail::escaped(error.what()) == error.what(), "an error is printable");
    }
  }
  const std::string shown = printable_url(text);
  require(shown.find('?') == std::string::npos && shown.find('#') == std::string::npos,
          "a text that is no URL is shown without a query");
  require(std::count(shown.begin(), shown.end(), '@') <= 1, "and without user info");
  return 0;
}
