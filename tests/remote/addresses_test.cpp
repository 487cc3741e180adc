// SPDX-License-Identifier: Apache-2.0

// These tests are of a name that has several addresses. This program resolves it by itself.

#include <dlfcn.h>
#include <netdb.h>

#include <chrono>
#include <penstock/remote.hpp>
#include <string_view>

#include "range_server.hpp"
#include "readers.hpp"
#include "support/catch.hpp"
#include "support/eventually.hpp"

namespace penstock::test {
namespace {

using penstock::remote::Client;

constexpr const char* kName = "objects.test";
constexpr const char *kFirst = "127.0.0.1", *kSecond = "127.0.0.2", *kNobody = "127.0.0.3";

}  // namespace
}  // namespace penstock::test

/// Takes the place of the C library's, also for libcurl. The list of several addresses is freed as
/// that of one is: member by member.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** result) {
  using namespace penstock::test;
  static const auto real =
      reinterpret_cast<decltype(&getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (name == nullptr || std::string_view(name) != kName) return real(name, service, hints, result);
  for (const char* const address : {kNobody, kFirst, kSecond}) {
    if (const int error = real(address, service, hints, result); error != 0) return error;
    while (*result != nullptr) result = &(*result)->ai_next;
  }
  return 0;
}

namespace penstock::test {

TEST_CASE("Client: all addresses of a name are used, and one where nobody listens is passed over",
          "[remote]") {
  RangeServer first(10'000, kFirst), second(10'000, kSecond, first.port());
  const Client client({.head_bytes = 1, .hedging = false});
  const File file = client.file(first.url(kName));
  first.hold(), second.hold();  // So each reader needs a connection of its own.
  const Readers readers(file, 16);
  CHECK(eventually([&] { return first.asked().size() + second.asked().size() > 16; }));
  CHECK(first.asked().size() > 1);
  CHECK(second.asked().size() > 1);
  first.release(), second.release();
}

}  // namespace penstock::test
