// SPDX-License-Identifier: Apache-2.0
#pragma once

// RangeServer: a server of one object in this process, whose answers a test holds back. For tests
// of what is asked for, and when.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"

namespace penstock::test {

/// Any number of threads may call the members.
class RangeServer {
 public:
  /// Of an object of so many bytes. `port` 0: any that is free.
  explicit RangeServer(std::size_t bytes, const char* address = "127.0.0.1", int port = 0)
      : bytes_(bytes) {
    ::setenv("no_proxy", "*", 1);
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<std::uint16_t>(port));
    REQUIRE(::inet_pton(AF_INET, address, &place.sin_addr) == 1);
    socklen_t size = sizeof place;
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&place), size) == 0);
    REQUIRE(::listen(listener_, 64) == 0);
    REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr*>(&place), &size) == 0);
    port_ = ntohs(place.sin_port);
    accepting_ = std::thread([this] { accept_all(); });
  }
  ~RangeServer() {
    release();
    ::shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int connection : connections_) ::shutdown(connection, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
    for (const int connection : connections_) ::close(connection);
    ::close(listener_);
  }
  RangeServer(const RangeServer&) = delete;
  RangeServer& operator=(const RangeServer&) = delete;

  std::string url(const std::string& host = "127.0.0.1") const {
    return "http://" + host + ":" + std::to_string(port_) + "/object";
  }
  int port() const { return port_; }
  static std::byte content(std::uint64_t at) { return static_cast<std::byte>(at * 37 % 251); }

  /// From now on requests are taken, but not answered until release().
  void hold() {
    set([&] { held_ = true; });
  }
  void release() {
    set([&] { held_ = false; });
  }
  /// The status of the following answers; 0: as they should be.
  void answer_with(int status) {
    set([&] { status_ = status; });
  }
  /// The time that each of the following answers takes.
  void take(std::chrono::milliseconds time) {
    set([&] { time_ = time; });
  }
  /// The requests so far: "100-199", or "whole".
  std::vector<std::string> asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  template <class Change>
  void set(const Change& change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }

  void accept_all() {
    for (;;) {
      const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) return;
      const std::lock_guard lock(mutex_);
      connections_.push_back(connection);
      threads_.emplace_back([this, connection] { serve(connection); });
    }
  }

  void serve(int connection) {
    std::string text;
    for (;;) {
      std::size_t end = 0;
      while ((end = text.find("\r\n\r\n")) == std::string::npos) {
        char more[4096];
        const ::ssize_t count = ::recv(connection, more, sizeof more, 0);
        if (count <= 0) return;
        text.append(more, static_cast<std::size_t>(count));
      }
      const std::string answer = answer_to(text.substr(0, end));
      text.erase(0, end + 4);
      for (std::size_t sent = 0; sent < answer.size();) {
        const ::ssize_t count =
            ::send(connection, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
        if (count <= 0) return;
        sent += static_cast<std::size_t>(count);
      }
    }
  }

  std::string answer_to(const std::string& request) {
    std::size_t first = 0, last = bytes_ - 1;
    const std::size_t range = request.find("Range: bytes=");
    const bool whole = range == std::string::npos;
    if (!whole) std::sscanf(request.c_str() + range, "Range: bytes=%zu-%zu", &first, &last);
    std::unique_lock lock(mutex_);
    asked_.push_back(whole ? "whole" : std::to_string(first) + "-" + std::to_string(last));
    changed_.wait(lock, [this] { return !held_; });
    changed_.wait_for(lock, time_, [this] { return time_.count() == 0; });
    if (status_ != 0)
      return "HTTP/1.1 " + std::to_string(status_) + " no\r\nContent-Length: 0\r\n\r\n";
    last = std::min(last, bytes_ - 1);
    std::string answer = whole ? "HTTP/1.1 200 OK\r\n"
                               : "HTTP/1.1 206 Partial\r\nContent-Range: bytes " +
                                     std::to_string(first) + "-" + std::to_string(last) + "/" +
                                     std::to_string(bytes_) + "\r\n";
    answer += "ETag: \"1\"\r\nContent-Length: " + std::to_string(last + 1 - first) + "\r\n\r\n";
    for (std::size_t at = first; at <= last; ++at) answer += static_cast<char>(content(at));
    return answer;
  }

  const std::size_t bytes_;
  int listener_ = -1, port_ = 0;
  std::thread accepting_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  int status_ = 0;
  std::chrono::milliseconds time_{0};
  std::vector<std::string> asked_;
  std::vector<int> connections_;
  std::vector<std::thread> threads_;
};

}  // namespace penstock::test
