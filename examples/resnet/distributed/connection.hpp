// SPDX-License-Identifier: Apache-2.0
#pragma once

// Socket owns a descriptor. Connection sends and receives messages over one without blocking:
//
//   connection.post(Kind::beat, "17");
//   if (!connection.flush() || !connection.receive()) ...       // the other side is gone
//   while (auto message = connection.next()) ...
//
// A message is a word that strangers do not send, its kind, its size, and a text.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace resnet {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  int descriptor() const noexcept { return descriptor_; }
  explicit operator bool() const noexcept { return descriptor_ >= 0; }
  void set_blocking(bool blocking) const;
  /// Without delay for what is short, and closed in programs that this one starts.
  void set_options() const;

 private:
  int descriptor_ = -1;
};

enum class Kind : std::uint32_t {
  // To meet (rendezvous.hpp).
  hello,
  challenge,
  proof,
  welcome,
  refused,
  start,
  missing,
  // To go on together (control.hpp).
  beat,
  gather,
  gathered,
  lost,
  bye
};

struct Message {
  Kind kind;
  std::string text;
};

class Connection {
 public:
  static constexpr std::size_t kShort = 4096, kLong = std::size_t{64} << 20;

  Connection() = default;
  /// `most`: bytes of a text that is accepted.
  explicit Connection(Socket socket, std::size_t most = kShort);

  int descriptor() const noexcept { return socket_.descriptor(); }
  explicit operator bool() const noexcept { return static_cast<bool>(socket_); }
  void accept_long() noexcept { most_ = kLong; }

  void post(Kind kind, const std::string& text);
  bool has_more_to_send() const noexcept { return !out_.empty(); }
  /// Sends what the system takes now. False: the connection is broken.
  bool flush();
  /// Reads what is there. False: the other side has closed, or the connection is broken; next() may
  /// still have messages.
  bool receive();
  /// The next whole message. What is no message sets garbage().
  std::optional<Message> next();
  bool garbage() const noexcept { return garbage_; }

  /// Nothing more is sent; the other side may go on.
  void shut_output() const;
  Socket take() { return static_cast<Socket&&>(socket_); }

 private:
  Socket socket_;
  std::size_t most_ = kShort;
  std::string in_, out_;
  bool garbage_ = false;
};

/// Waits until it can be read from, or the time is over. False: it cannot.
bool readable_within(int descriptor, int milliseconds);

}  // namespace resnet
