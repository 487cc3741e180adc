// SPDX-License-Identifier: Apache-2.0

// Any bytes as what a server answers, through libcurl: what an attempt takes for right is within
// its target, and has the size and the checksum that the head says. The first byte of an input says
// what was asked for, the second how much room there is; the others are the answer.

#include <attempt.hpp>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <penstock/detail/storage/crc32c.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz.hpp"

namespace {

using namespace penstock::remote;
using penstock::test::require;

constexpr std::size_t kMostAnswer = std::size_t{64} << 10;
constexpr std::byte kGuard{0xA5};

/// A server without a network, in this thread: it sends one answer to the connection that libcurl
/// has made, and no more.
class Listener {
 public:
  Listener() : name_("penstock-fuzz-" + std::to_string(::getpid())) {
    socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};  // sun_path begins with 0: it is no file.
    address.sun_family = AF_UNIX;
    name_.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name_.size());
    require(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), size) == 0, "a name");
    require(::listen(socket_, 1) == 0, "a listener");
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  const std::string& name() const { return name_; }
  /// The connection; -1: nobody has connected.
  int accept_and_send(std::string_view answer) const {
    const int connection = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) return -1;
    const ::ssize_t sent = ::send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
    require(sent == static_cast<::ssize_t>(answer.size()), "the answer fits into the socket");
    ::shutdown(connection, SHUT_WR);
    return connection;
  }

 private:
  const std::string name_;
  int socket_ = -1;
};

/// How the transfer ends.
CURLcode transfer(CURL* easy, std::string_view answer) {
  static const Listener listener;
  static CURLM* const multi = ::curl_multi_init();
  ::curl_easy_setopt(easy, CURLOPT_ABSTRACT_UNIX_SOCKET, listener.name().c_str());
  ::curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
  ::curl_easy_setopt(easy, CURLOPT_PROXY, "");
  require(::curl_multi_add_handle(multi, easy) == CURLM_OK, "a transfer");
  int connection = -1, running = 1;
  for (;;) {
    require(::curl_multi_perform(multi, &running) == CURLM_OK, "libcurl works");
    if (running == 0) break;
    if (connection < 0) connection = listener.accept_and_send(answer);
    ::curl_multi_poll(multi, nullptr, 0, 1000, nullptr);
  }
  int left = 0;
  const CURLMsg* const message = ::curl_multi_info_read(multi, &left);
  require(message != nullptr && message->msg == CURLMSG_DONE, "it has ended");
  const CURLcode code = message->data.result;
  require(connection >= 0, "libcurl has connected");
  ::close(connection);
  ::curl_multi_remove_handle(multi, easy);
  return code;
}

void check(const Attempt& attempt, const Part& part, const Outcome& outcome) {
  if (outcome.kind != Outcome::Kind::whole) {
    require(!outcome.why.empty(), "an error says why");
    require(!outcome.throttled || outcome.kind == Outcome::Kind::again, "429 and 503 may pass");
    return;
  }
  const std::size_t received = attempt.received(), room = part.target.size();
  if (attempt.unchanged()) {
    require(part.whole && !part.object->etag.empty() && received == 0, "it was asked for changes");
    return;
  }
  if (!part.opening) {
    require(received == std::min<std::uint64_t>(room, part.object->size - part.offset),
            "a range of a known object is whole");
    require(attempt.head().etag() == part.object->etag, "and is of this object");
  } else {
    require(received == std::min<std::uint64_t>(room, attempt.total()),
            "the object is whole, or its first bytes are");
  }
  if (attempt.verified()) {
    require(received == attempt.total(), "an object is verified whole");
    require(penstock::detail::crc32c(attempt.bytes()) == *attempt.head().crc32c(),
            "it has the checksum that the head says");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > kMostAnswer) return 0;
  static const Options options;
  // A new one each time, so that nothing depends on the input before.
  Attempt attempt(options);

  const bool known = data[0] % 4 == 0, whole = data[0] % 4 >= 2, has_etag = data[0] % 4 == 3;
  RemoteObject object;
  object.url = object.name = "http://127.0.0.1:9/a";
  object.authorizer = [](HttpRequest&, std::chrono::system_clock::time_point) {};  // no redirects
  object.size = known ? 1000 : 0;
  if (known || has_etag) object.etag = "\"1\"";
  const std::size_t room = 1 + 16 * std::size_t{data[1]};
  std::vector<std::byte> memory(room + 64, kGuard);
  Part part;
  part.object = std::make_shared<const RemoteObject>(object);
  part.offset = known ? 100 : 0;
  part.target = std::span(memory).first(known ? std::min<std::size_t>(room, 900) : room);
  part.opening = !known;
  part.whole = whole;

  attempt.prepare(part, 0, part.target, false, Clock::now());
  const std::string_view answer(reinterpret_cast<const char*>(data) + 2, size - 2);
  const CURLcode code = transfer(attempt.easy(), answer);
  check(attempt, part, attempt.judge(code));
  require(std::all_of(memory.begin() + static_cast<std::ptrdiff_t>(part.target.size()),
                      memory.end(), [](std::byte byte) { return byte == kGuard; }),
          "nothing is written behind the target");
  return 0;
}
