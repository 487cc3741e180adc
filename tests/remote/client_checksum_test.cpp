// SPDX-License-Identifier: Apache-2.0

// An object that comes whole has the CRC32C that the store says, or it is asked for again.

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <penstock/detail/storage/crc32c.hpp>
#include <penstock/remote.hpp>
#include <string>
#include <vector>

#include "client_fixture.hpp"
#include "server.hpp"
#include "support/thrown.hpp"

namespace penstock::test {
namespace {

using penstock::remote::Client;
using penstock::remote::Options;
using penstock::remote::RemoteError;

std::string base64(std::uint32_t checksum) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (int i = 0; i < 6; ++i) text += kLetters[(std::uint64_t{checksum} << 4 >> (30 - 6 * i)) & 63];
  return text + "==";
}

/// Puts a file, and what the server says about its checksum.
std::vector<std::byte> put(const Server& server, const char* name, std::size_t count,
                           std::uint32_t error = 0) {
  const auto bytes = random_bytes(count, count);
  server.put(name, bytes);
  std::ofstream(server.files() / (std::string(name) + ".crc32c"))
      << base64(detail::crc32c(bytes) + error);
  return bytes;
}

struct Read {
  bool right;
  std::uint64_t verified, damaged;
};

Read read_in_folder(const Options& options, const std::string& folder, const char* name,
                    const std::vector<std::byte>& bytes) {
  const Client client(options);
  std::vector<std::byte> scratch;
  const bool right = std::ranges::equal(client.folder(folder)->read(name, scratch), bytes);
  return {right, client.stats().verified, client.stats().damaged};
}

}  // namespace

TEST_CASE("Client: an object that comes whole is verified", "[remote]") {
  const Server server;
  const auto small_one = put(server, "small.jpg", 100'000),
             large = put(server, "large.jpg", 700'000);
  Options options = small();
  options.head_bytes = 64 << 10;
  options.stores = {.endpoint = server.url(""), .key_id = "id", .secret_key = "a-secret-key"};
  for (const std::string& folder : {server.url("/checked/"), std::string("s3://checked/s3/")}) {
    INFO(folder);
    for (const auto& [name, bytes] :
         {std::pair{"small.jpg", &small_one}, std::pair{"large.jpg", &large}}) {
      const Read read = read_in_folder(options, folder, name, *bytes);
      CHECK(read.right);
      CHECK(read.verified == 1);  // The large one comes in several answers.
      CHECK(read.damaged == 0);
    }
    options.head_bytes = 100'000;
    const Client client(options);
    CHECK(reads(client.file(folder + "small.jpg"), small_one, 0, small_one.size()));
    CHECK(client.stats().verified == 1);
    CHECK(reads(client.file(folder + "large.jpg"), large, 0, large.size()));
    CHECK(client.stats().verified == 1);  // in ranges alone
  }
}

TEST_CASE("Client: an object with another checksum is asked for again, then it is an error",
          "[remote]") {
  const Server server;
  const auto small_one = put(server, "small.jpg", 100'000, 1);
  put(server, "large.jpg", 700'000, 1);
  Options options = small();
  options.attempts = 3;
  const std::string folder = server.url("/checked/");
  const Client client(options);
  std::vector<std::byte> scratch;
  const auto error = [&](const char* name) {
    return thrown<RemoteError>([&] { client.folder(folder)->read(name, scratch); });
  };
  const std::string of_small = error("small.jpg");
  CHECK_THAT(of_small, Mentions("the bytes have the CRC32C "));
  CHECK_THAT(of_small, Mentions(" (3 attempts"));
  CHECK(client.stats().damaged == 3);
  CHECK(client.stats().requests == 3);
  scratch = {};
  CHECK_THAT(error("large.jpg"), Mentions("and the store says "));
  CHECK(client.stats().damaged == 3 + 1 + 3);
  options.head_bytes = 100'000;
  CHECK_THAT(thrown<RemoteError>([&] { Client(options).file(folder + "small.jpg"); }),
             Mentions("small.jpg: the bytes have the CRC32C "));
  // With a checksum of parts nothing is verified.
  std::ofstream(server.files() / "small.jpg.crc32c") << "AAAAAA==-3";
  CHECK(read_in_folder(options, folder, "small.jpg", small_one).verified == 0);
}

}  // namespace penstock::test
