// SPDX-License-Identifier: Apache-2.0
#pragma once

// Server: an nginx of the test's own, on a free port of this machine, with faults on request. It
// ends with its object, and with this process.
//
//   Server server;
//   server.put("a.bin", bytes);
//   client.file(server.url("/files/a.bin"));
//
// /files/ serves files as they are, /fault/ with the faults of faults.lua; the other places are in
// server.conf.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/temporary_directory.hpp"

namespace penstock::test {

inline std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(seed >> 56);
  }
  return bytes;
}

class Server {
 public:
  Server() : port_(free_port()), tls_port_(free_port()) {
    ::setenv("no_proxy", "127.0.0.1,localhost", 1);
    std::filesystem::create_directory(directory_ / "files");
    make_certificates();
    std::ofstream(directory_ / "nginx.conf") << configuration();
    const std::string configuration_file = (directory_ / "nginx.conf").string(),
                      prefix = (directory_ / ".").string();
    const ::pid_t parent = ::getpid();
    process_ = ::fork();
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // also if the test crashes
      if (::getppid() != parent) ::_exit(1);
      ::execlp(PENSTOCK_NGINX, PENSTOCK_NGINX, "-p", prefix.c_str(), "-c",
               configuration_file.c_str(), "-e", "error.log", nullptr);
      ::_exit(127);
    }
    REQUIRE(process_ > 0);
    const bool answers = eventually([this] { return connects(port_); });
    INFO(log("error.log"));
    REQUIRE(answers);
  }
  ~Server() {
    ::kill(process_, SIGTERM);
    ::waitpid(process_, nullptr, 0);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void put(const char* name, const std::vector<std::byte>& bytes) const {
    std::ofstream file(directory_ / "files" / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  /// Writes another version of a file that is there, with another ETag: nginx makes that of the
  /// size and the second of the last change.
  void replace(const char* name, const std::vector<std::byte>& bytes) const {
    const auto before = std::filesystem::last_write_time(files() / name);
    put(name, bytes);
    std::filesystem::last_write_time(files() / name, before + std::chrono::seconds(2));
  }
  /// Where put() writes to.
  std::filesystem::path files() const { return directory_ / "files"; }
  std::string url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  std::string tls_url(const std::string& path) const {
    return "https://localhost:" + std::to_string(tls_port_) + path;
  }
  std::string ca_file() const { return (directory_ / "ca.pem").string(); }
  /// Requests so far whose line in the log has this text. nginx writes a line when a request ends.
  int requests(const std::string& text) const {
    std::istringstream lines(log("access.log"));
    int count = 0;
    for (std::string line; std::getline(lines, line);)
      if (line.find(text) != std::string::npos) ++count;
    return count;
  }

 private:
  static sockaddr_in address(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  static int free_port() {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in any = address(0);
    socklen_t size = sizeof any;
    REQUIRE(::bind(socket, reinterpret_cast<sockaddr*>(&any), size) == 0);
    REQUIRE(::getsockname(socket, reinterpret_cast<sockaddr*>(&any), &size) == 0);
    ::close(socket);
    return ntohs(any.sin_port);
  }
  static bool connects(int port) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in to = address(port);
    const bool good = ::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
    ::close(socket);
    return good;
  }
  void make_certificates() const {
    const std::string command =
        "cd '" + (directory_ / ".").string() +
        "' && openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj "
        "/CN=test-ca -addext basicConstraints=critical,CA:TRUE && openssl req -newkey rsa:2048 "
        "-nodes -keyout server.key -out server.csr -subj /CN=localhost && echo "
        "subjectAltName=DNS:localhost >server.ext && openssl x509 -req -in server.csr -CA ca.pem "
        "-CAkey ca.key -CAcreateserial -out server.pem -days 2 -extfile server.ext";
    REQUIRE(std::system(("{ " + command + "; } >/dev/null 2>&1").c_str()) == 0);
  }
  std::string log(const char* name) const {
    std::ifstream file(directory_ / name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::string configuration() const {
    std::ifstream file(PENSTOCK_SERVER_CONFIGURATION);
    std::stringstream read;
    read << file.rdbuf();
    std::string text = read.str();
    for (const auto& [name, value] :
         {std::pair<std::string, std::string>{"PLAIN_PORT", std::to_string(port_)},
          {"TLS_PORT", std::to_string(tls_port_)},
          {"FAULTS", PENSTOCK_SERVER_FAULTS},
          {"MODULES", PENSTOCK_NGINX_MODULES}})
      for (auto at = text.find(name); at != std::string::npos; at = text.find(name))
        text.replace(at, name.size(), value);
    return text;
  }

  const TemporaryDirectory directory_;
  const int port_, tls_port_;
  ::pid_t process_ = -1;
};

}  // namespace penstock::test
