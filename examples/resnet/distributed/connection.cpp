// SPDX-License-Identifier: Apache-2.0
#include "connection.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace resnet {

namespace {

struct Header {
  std::array<char, 8> word;
  std::uint32_t kind, size;
};
constexpr std::array<char, 8> kWord{'p', 'e', 'n', 's', 't', 'o', 'k', '2'};

}  // namespace

// ---- Socket

Socket::Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  Socket taken(std::move(other));
  std::swap(descriptor_, taken.descriptor_);
  return *this;
}

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void Socket::set_blocking(bool blocking) const {
  const int flags = ::fcntl(descriptor_, F_GETFL);
  ::fcntl(descriptor_, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

void Socket::set_options() const {
  const int on = 1;
  ::fcntl(descriptor_, F_SETFD, FD_CLOEXEC);
  ::setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(descriptor_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

// ---- Connection

Connection::Connection(Socket socket, std::size_t most) : socket_(std::move(socket)), most_(most) {
  socket_.set_blocking(false);
  socket_.set_options();
}

void Connection::post(Kind kind, const std::string& text) {
  const Header header{kWord, static_cast<std::uint32_t>(kind),
                      static_cast<std::uint32_t>(text.size())};
  out_.append(reinterpret_cast<const char*>(&header), sizeof header) += text;
}

bool Connection::flush() {
  while (!out_.empty()) {
    const ssize_t sent = ::send(descriptor(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    out_.erase(0, static_cast<std::size_t>(sent));
  }
  return true;
}

bool Connection::receive() {
  std::array<char, 1 << 14> buffer;
  // Whoever never stops sending does not hold up the others: the rest is read the next time.
  // Nor does it fill the memory: what is in front of that is a whole message, or garbage.
  for (int turn = 0; turn < 64 && in_.size() < most_ + sizeof(Header); ++turn) {
    const std::size_t room = most_ + sizeof(Header) - in_.size();
    const ssize_t got = ::recv(descriptor(), buffer.data(), std::min(room, buffer.size()), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (got == 0) return false;
    in_.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return true;
}

std::optional<Message> Connection::next() {
  // A stranger is told from its first bytes.
  const std::size_t there = in_.size() < kWord.size() ? in_.size() : kWord.size();
  garbage_ = garbage_ || std::memcmp(in_.data(), kWord.data(), there) != 0;
  if (garbage_ || in_.size() < sizeof(Header)) return {};
  Header header{};
  std::memcpy(&header, in_.data(), sizeof header);
  garbage_ = header.kind > static_cast<std::uint32_t>(Kind::bye) || header.size > most_;
  if (garbage_ || in_.size() < sizeof header + header.size) return {};
  Message message{static_cast<Kind>(header.kind), in_.substr(sizeof header, header.size)};
  in_.erase(0, sizeof header + header.size);
  return message;
}

void Connection::shut_output() const {
  ::shutdown(descriptor(), SHUT_WR);
}

bool readable_within(int descriptor, int milliseconds) {
  pollfd wanted{descriptor, POLLIN, 0};
  return ::poll(&wanted, 1, milliseconds) > 0;
}

}  // namespace resnet
