// SPDX-License-Identifier: Apache-2.0
#include "listeners.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "communicator.hpp"

namespace resnet {

namespace {

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
  const sockaddr_in& v4() const { return reinterpret_cast<const sockaddr_in&>(bytes); }
  const sockaddr_in6& v6() const { return reinterpret_cast<const sockaddr_in6&>(bytes); }
  bool is_v6() const { return bytes.ss_family == AF_INET6; }
  bool operator==(const Address& other) const {
    return size == other.size && std::memcmp(&bytes, &other.bytes, size) == 0;
  }
};

using Addresses = std::vector<Address>;

Addresses addresses_of(const char* host, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host, nullptr, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, &::freeaddrinfo);
  Addresses addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Address address;
    std::memcpy(&address.bytes, one->ai_addr, one->ai_addrlen);
    address.size = one->ai_addrlen;
    // A name may stand in /etc/hosts twice.
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end())
      addresses.push_back(address);
  }
  return addresses;
}

bool is_loopback(const Address& address) {
  return address.is_v6() ? IN6_IS_ADDR_LOOPBACK(&address.v6().sin6_addr)
                         : ntohl(address.v4().sin_addr.s_addr) >> 24 == 127;
}

Address with_port(Address address, int port) {
  const in_port_t number = htons(static_cast<std::uint16_t>(port));
  if (address.is_v6())
    reinterpret_cast<sockaddr_in6&>(address.bytes).sin6_port = number;
  else
    reinterpret_cast<sockaddr_in&>(address.bytes).sin_port = number;
  return address;
}

Socket bind_to(const Address& address) {
  Socket socket(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1, off = 0;
  ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.is_v6())  // The address of all of IPv6 is for IPv4 too.
    ::setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(socket.descriptor(), address.get(), address.size) != 0) return {};
  return socket;
}

/// Returns the addresses of this machine at which rank 0 listens. None stands for all.
Addresses own_addresses(const penstock::Ranks& ranks) {
  if (ranks.local_size == ranks.world_size) return addresses_of("127.0.0.1", AI_NUMERICHOST);
  const bool number = !addresses_of(ranks.host.c_str(), AI_NUMERICHOST).empty();
  Addresses own = addresses_of(ranks.host.c_str(), 0);
  std::erase_if(own, [&](const Address& address) {
    return (!number && is_loopback(address)) || !bind_to(address);
  });
  return own;
}

/// Returns nothing and leaves errno where the port of one of them is taken.
std::vector<Socket> listen_at(const Addresses& addresses, int port) {
  std::vector<Socket> sockets;
  for (const Address& address : addresses) {
    Socket socket = bind_to(with_port(address, port));
    if (!socket || ::listen(socket.descriptor(), SOMAXCONN) != 0) return {};
    sockets.push_back(std::move(socket));
  }
  return sockets;
}

std::string names_of(const Addresses& addresses) {
  std::string text;
  for (const Address& address : addresses) {
    std::array<char, 64> name{};
    ::getnameinfo(address.get(), address.size, name.data(), name.size(), nullptr, 0,
                  NI_NUMERICHOST);
    text += (text.empty() ? "" : " and ") + std::string(name.data());
  }
  return text.empty() ? "all addresses" : text;
}

}  // namespace

Listeners listen(const penstock::Ranks& ranks, const std::vector<int>& ports) {
  const Addresses own = own_addresses(ranks);
  int error = 0;
  for (const int port : ports) {
    Listeners listeners{listen_at(own, port), port, names_of(own)};
    error = errno;
    // The address of all, of IPv6 and IPv4; a machine may have no IPv6.
    for (const char* all : {"::", "0.0.0.0"})
      if (own.empty() && listeners.sockets.empty()) {
        listeners.sockets = listen_at(addresses_of(all, AI_NUMERICHOST), port);
        error = errno;
      }
    if (!listeners.sockets.empty()) return listeners;
  }
  throw RankError(0, "rank 0 can listen at none of the ports " + std::to_string(ports.front()) +
                         " to " + std::to_string(ports.back()) + " of " + names_of(own) + " (" +
                         std::error_code(error, std::generic_category()).message() +
                         "): set MASTER_PORT to where some are free");
}

}  // namespace resnet
