// SPDX-License-Identifier: Apache-2.0

// Ranks of several machines meet: here each is a thread, and says that it is alone on its machine.
// rendezvous_test.py has what all ranks have in common.

#include "examples/resnet/distributed/rendezvous.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "examples/resnet/distributed/communicator.hpp"
#include "examples/resnet/distributed/listeners.hpp"
#include "support/catch.hpp"

namespace resnet {
namespace {

using penstock::Ranks;
using std::chrono::milliseconds;

constexpr milliseconds kLong{60'000}, kShort{1500};
const std::string kSecret = "0123456789abcdef0123456789abcdef";

bool connects_to(const char* host, int port) {
  const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  ::inet_pton(AF_INET, host, &address.sin_addr);
  return ::connect(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

/// One that nobody has, below those that the system gives to connections.
int free_port() {
  std::random_device random;
  while (true) {
    const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int port = 10'000 + static_cast<int>(random() % 9'900);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (::bind(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
      return port;
  }
}

/// Alone on its machine.
Ranks rank_of(int rank, int world_size, int port, const std::string& host = "127.0.0.1") {
  return {.rank = rank,
          .world_size = world_size,
          .source = "a test",
          .host = host,
          .port = port,
          .job = "this job"};
}

/// How many connections a rank has at the end, or why there are none.
std::string end_of(const Ranks& ranks, const JobSecret& secret, milliseconds timeout) try {
  const Meeting meeting = meet(ranks, secret, timeout, 2);
  std::size_t count = 0;
  for (const auto& channel : meeting.connections)
    for (const Connection& connection : channel) count += connection ? 1 : 0;
  return std::to_string(count);
} catch (const std::exception& error) {
  return error.what();
}

std::vector<std::string> ends_of(const std::vector<std::pair<Ranks, JobSecret>>& ranks,
                                 milliseconds timeout) {
  std::vector<std::future<std::string>> futures;
  for (const auto& [rank, secret] : ranks)
    futures.push_back(std::async(std::launch::async, end_of, rank, secret, timeout));
  std::vector<std::string> ends;
  for (auto& future : futures) ends.push_back(future.get());
  return ends;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("ranks on several machines do not begin without a secret") {
  const int port = free_port();
  for (const int rank : {0, 1}) {
    const auto begin = std::chrono::steady_clock::now();
    CHECK_THROWS_AS(meet(rank_of(rank, 2, port), {}, kLong, 1), std::invalid_argument);
    CHECK(std::chrono::steady_clock::now() - begin < kLong);
    const std::string why = end_of(rank_of(rank, 2, port), {}, kLong);
    CHECK(has(why, "PENSTOCK_JOB_SECRET "));
    CHECK(has(why, "PENSTOCK_JOB_SECRET_FILE "));
  }
  // Two of the three are on one machine.
  Ranks pair = rank_of(0, 3, port);
  pair.local_size = 2;
  CHECK(has(end_of(pair, {}, kLong), "need a secret"));
}

TEST_CASE("ranks on several machines meet when they have the same secret") {
  const int port = free_port();
  const JobSecret secret(kSecret);
  // To rank 0 the name of the second job is that of a service: an address of no machine here.
  for (const std::string host : {"127.0.0.1", "192.0.2.1"})
    CHECK(ends_of({{rank_of(1, 3, port), secret},
                   {rank_of(0, 3, port, host), secret},
                   {rank_of(2, 3, port, "localhost"), secret}},
                  kLong) == std::vector<std::string>{"2", "4", "2"});
}

TEST_CASE("a rank on another machine with another secret does not get in") {
  const int port = free_port();
  const auto ends = ends_of({{rank_of(0, 2, port), JobSecret(kSecret)},
                             {rank_of(1, 2, port), JobSecret("another " + kSecret)}},
                            kShort);
  CHECK(has(ends[0], "rank 1 of 2 did not come within 1.5 s"));
  CHECK(has(ends[0], "somebody at 127.0.0.1 left when rank 0 had proved its secret"));
  CHECK(has(ends[1], "rank 0 of 2 was not found within 1.5 s"));
  CHECK(has(ends[1], "has not this rank's secret"));
  for (const std::string& end : ends) CHECK_FALSE(has(end, kSecret));
}

TEST_CASE("rank 0 listens at the addresses of this machine that its name leads to") {
  const int port = free_port();
  const auto place = [&](const std::string& host) {
    return listen(rank_of(0, 2, port, host), {port});
  };
  {
    const Listeners one = place("127.0.0.2");
    CHECK(one.where == "127.0.0.2");
    CHECK(one.port == port);
    CHECK(connects_to("127.0.0.2", port));
    CHECK_FALSE(connects_to("127.0.0.1", port));
  }
  // A name of a loopback address is one that other machines know by another address.
  for (const char* host : {"192.0.2.1", "localhost"}) {
    INFO(host);
    const Listeners all = place(host);
    CHECK(all.where == "all addresses");
    CHECK(connects_to("127.0.0.1", port));
    CHECK(connects_to("127.0.0.2", port));
  }
  // Where all ranks are on this machine, others have nothing to connect to.
  Ranks pair = rank_of(0, 2, port, "192.0.2.1");
  pair.local_size = 2;
  const Listeners loopback = listen(pair, {port});
  CHECK(loopback.where == "127.0.0.1");
  CHECK_FALSE(connects_to("127.0.0.2", port));
  // This port is taken now, at all addresses too.
  CHECK(listen(pair, ports_of(rank_of(0, 2, port))).port != port);
  CHECK_THROWS_AS(listen(pair, {port}), RankError);
  CHECK_THROWS_AS(place("192.0.2.1"), RankError);
}

TEST_CASE("a proof is for one secret, one role, these nonces and this text") {
  const JobSecret secret(kSecret), other(kSecret + "0");
  const std::string nonces = nonce() + nonce();
  const std::string proof = secret.proof("rank", nonces, "text");
  CHECK(proof.size() == JobSecret::kProof);
  CHECK(secret.accepts(proof, "rank", nonces, "text"));
  CHECK(JobSecret(kSecret).accepts(proof, "rank", nonces, "text"));
  CHECK_FALSE(other.accepts(proof, "rank", nonces, "text"));
  CHECK_FALSE(JobSecret().accepts(proof, "rank", nonces, "text"));
  CHECK_FALSE(secret.accepts(proof, "rank 0", nonces, "text"));
  CHECK_FALSE(secret.accepts(proof, "rank", nonce() + nonce(), "text"));
  CHECK_FALSE(secret.accepts(proof, "rank", nonces, "texts"));
  CHECK_FALSE(secret.accepts(proof.substr(1), "rank", nonces, "text"));
  CHECK_FALSE(secret.accepts("", "rank", nonces, "text"));
  CHECK(nonce() != nonce());
  CHECK_THROWS_AS(JobSecret(std::string(15, 'x')), std::invalid_argument);
  CHECK_THROWS_AS(JobSecret(""), std::invalid_argument);
  CHECK_FALSE(JobSecret(std::string(16, 'x')).empty());
  CHECK(JobSecret().empty());
}

}  // namespace
}  // namespace resnet
