// SPDX-License-Identifier: Apache-2.0

// The limit of requests of a Client: it is found while requests run.

#include <chrono>
#include <penstock/remote.hpp>

#include "range_server.hpp"
#include "readers.hpp"
#include "support/catch.hpp"
#include "support/eventually.hpp"

namespace penstock::test {
namespace {

using namespace std::chrono_literals;
using penstock::remote::Client;
using penstock::remote::Options;

}  // namespace

TEST_CASE("Client: where answers take their time, more requests run at the same time", "[remote]") {
  for (const int reactors : {1, 3}) {
    RangeServer server(10'000);
    const Client client({.reactors = reactors, .head_bytes = 1, .hedging = false});
    const File file = client.file(server.url());
    CHECK(client.stats().limit == 16);
    server.take(50ms);
    const Readers readers(file, 40);
    CHECK(eventually([&] { return client.stats().limit > 16; }));
    server.take(0ms);
  }
}

TEST_CASE("Client: fewer readers than the limit do not raise it", "[remote]") {
  RangeServer server(10'000);
  const Client client({.head_bytes = 1, .hedging = false});
  const File file = client.file(server.url());
  const Readers readers(file, 8);
  CHECK(eventually([&] { return client.stats().requests > 2000; }));
  CHECK(client.stats().limit == 16);
}

}  // namespace penstock::test
