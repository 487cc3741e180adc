// SPDX-License-Identifier: Apache-2.0

// remote::Client with an nginx of its own on this machine, beside bare libcurl that asks for the
// same ranges by a program of one loop. CPU seconds are those of this process, without the server;
// "a core" is what one CPU second brings. The runs take turns; the figures are medians.
//
//   remote_benchmark [RUNS [CASE...]]    5 runs; the cases are parts, tls, objects, late, list

#include <arpa/inet.h>
#include <curl/curl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <penstock/file_folder.hpp>
#include <penstock/remote.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cpu_seconds.hpp"

namespace {

namespace fs = std::filesystem;
using namespace penstock;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr std::size_t kFileBytes = 256 * kMiB, kObjectBytes = 128 * kKiB;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = ::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(socket);
  if (!bound) throw std::runtime_error("there is no free port");
  return ntohs(address.sin_port);
}

/// nginx, one process. /files/ serves big.bin and object.bin; /late/ the same, 1 % of the answers a
/// second late; /objects/ANYTHING object.bin.
class Server {
 public:
  Server() : port_(free_port()), tls_port_(free_port()) {
    ::setenv("no_proxy", "127.0.0.1,localhost", 1);
    std::string name = (fs::temp_directory_path() / "penstock_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("there is no temporary folder");
    folder_ = name;
    fs::create_directory(folder_ / "files");
    std::string bytes(kMiB, '\0');
    std::uint64_t seed = 1;
    std::ofstream big(folder_ / "files/big.bin", std::ios::binary);
    for (std::size_t written = 0; written < kFileBytes; written += bytes.size()) {
      for (char& byte : bytes) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        byte = static_cast<char>(seed >> 56);
      }
      big << bytes;
    }
    std::ofstream(folder_ / "files/object.bin", std::ios::binary) << bytes.substr(0, kObjectBytes);
    const std::string certificate =
        "cd '" + folder_.string() +
        "' && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "
        "server.key -out server.pem -days 2 -subj /CN=localhost -addext "
        "subjectAltName=DNS:localhost >openssl.log 2>&1";
    if (std::system(certificate.c_str()) != 0) throw std::runtime_error("openssl has failed");
    std::ofstream(folder_ / "nginx.conf") << configuration();
    start();
  }
  ~Server() {
    ::kill(process_, SIGTERM);
    ::waitpid(process_, nullptr, 0);
    fs::remove_all(folder_);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::string url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  std::string tls_url(const std::string& path) const {
    return "https://localhost:" + std::to_string(tls_port_) + path;
  }
  std::string ca_file() const { return (folder_ / "server.pem").string(); }
  fs::path folder() const { return folder_; }

 private:
  std::string configuration() const {
    return "daemon off; master_process off; pid nginx.pid; error_log error.log;\n"
           "load_module " PENSTOCK_NGINX_MODULES
           "/ndk_http_module.so;\n"
           "load_module " PENSTOCK_NGINX_MODULES
           "/ngx_http_lua_module.so;\n"
           "events { worker_connections 1000; }\n"
           "http {\n"
           "  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000;\n"
           "  open_file_cache max=100;\n"
           "  client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3;\n"
           "  uwsgi_temp_path t4; scgi_temp_path t5;\n"
           "  server {\n"
           "    listen 127.0.0.1:" +
           std::to_string(port_) + ";\n    listen 127.0.0.1:" + std::to_string(tls_port_) +
           " ssl;\n"
           "    ssl_certificate server.pem; ssl_certificate_key server.key;\n"
           "    root .;\n"
           "    location /objects/ { rewrite ^ /files/object.bin last; }\n"
           "    location /late/ {\n"
           "      rewrite_by_lua_block { if math.random(100) == 1 then ngx.sleep(1) end }\n"
           "      alias files/;\n"
           "    }\n"
           "  }\n"
           "}\n";
  }
  void start() {
    const std::string file = (folder_ / "nginx.conf").string(), prefix = folder_.string() + "/";
    const ::pid_t parent = ::getpid();
    process_ = ::fork();
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (::getppid() == parent)
        ::execlp(PENSTOCK_NGINX, PENSTOCK_NGINX, "-p", prefix.c_str(), "-c", file.c_str(), "-e",
                 "error.log", nullptr);
      ::_exit(127);
    }
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port_));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < 200; ++i) {
      const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const bool listens = ::connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
      ::close(socket);
      if (listens) return;
      std::this_thread::sleep_for(50ms);
    }
    throw std::runtime_error("nginx does not start");
  }

  fs::path folder_;
  const int port_, tls_port_;
  ::pid_t process_ = -1;
};

/// What a program does that has libcurl's multi interface and nothing else: so many transfers at a
/// time on one thread, each into its own memory.
class BareLibcurl {
 public:
  BareLibcurl(std::size_t at_a_time, const std::string& ca_file) : multi_(::curl_multi_init()) {
    for (std::size_t i = 0; i < at_a_time; ++i) {
      CURL* const easy = ::curl_easy_init();
      ::curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 512L << 10);
      ::curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
      ::curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &take);
      if (!ca_file.empty()) ::curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file.c_str());
      transfers_.push_back({easy, nullptr, nullptr});
    }
    ::curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(at_a_time));
  }
  ~BareLibcurl() {
    for (const Transfer& transfer : transfers_) ::curl_easy_cleanup(transfer.easy);
    ::curl_multi_cleanup(multi_);
  }
  BareLibcurl(const BareLibcurl&) = delete;
  BareLibcurl& operator=(const BareLibcurl&) = delete;

  /// Gets `count` ranges, or whole objects for parts of 0 bytes, one after the other in `target`.
  void get(const std::string& url, std::size_t count, std::size_t part_bytes, std::byte* target,
           std::size_t stride) {
    std::size_t next = 0, running = 0;
    const auto start = [&](Transfer& transfer) {
      if (next == count) return;
      transfer.at = transfer.begin = target + next * stride;
      ::curl_easy_setopt(transfer.easy, CURLOPT_URL, url.c_str());
      ::curl_easy_setopt(transfer.easy, CURLOPT_WRITEDATA, &transfer);
      ::curl_easy_setopt(transfer.easy, CURLOPT_PRIVATE, &transfer);
      if (part_bytes > 0) {
        const std::string range =
            std::to_string(next * part_bytes) + "-" + std::to_string((next + 1) * part_bytes - 1);
        ::curl_easy_setopt(transfer.easy, CURLOPT_RANGE, range.c_str());
      }
      ::curl_multi_add_handle(multi_, transfer.easy);
      ++next;
      ++running;
    };
    for (Transfer& transfer : transfers_) start(transfer);
    while (running > 0) {
      int left = 0;
      ::curl_multi_perform(multi_, &left);
      while (const CURLMsg* const message = ::curl_multi_info_read(multi_, &left)) {
        if (message->data.result != CURLE_OK) throw std::runtime_error("libcurl has failed");
        char* self = nullptr;
        ::curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &self);
        auto& transfer = *reinterpret_cast<Transfer*>(self);
        if (transfer.at != transfer.begin + stride)
          throw std::runtime_error("an answer has another length");
        ::curl_multi_remove_handle(multi_, transfer.easy);
        --running;
        start(transfer);
      }
      if (running > 0) ::curl_multi_poll(multi_, nullptr, 0, 1000, nullptr);
    }
  }

 private:
  struct Transfer {
    CURL* easy;
    std::byte *begin, *at;
  };
  static std::size_t take(char* bytes, std::size_t size, std::size_t count, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    std::memcpy(transfer.at, bytes, size * count);
    transfer.at += size * count;
    return size * count;
  }

  CURLM* const multi_;
  std::vector<Transfer> transfers_;
};

/// One way to do a task, and what its runs took.
struct Way {
  std::string name;
  std::function<void()> run;
  std::vector<double> seconds = {}, cpu_seconds = {};
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Runs the ways in turn. `amount`: what a run brings, in `unit`.
void measure(const char* task, int runs, double amount, const char* unit, std::vector<Way> ways) {
  for (Way& way : ways) way.run();  // connections, pages, the first touch of memory
  for (int i = 0; i < runs; ++i)
    for (Way& way : ways) {
      const double cpu = cpu_seconds();
      const auto begin = Clock::now();
      way.run();
      way.seconds.push_back(seconds_since(begin));
      way.cpu_seconds.push_back(cpu_seconds() - cpu);
    }
  for (const Way& way : ways)
    std::printf("%-22s %-26s %9.5g %s/s a core %9.5g %s/s\n", task, way.name.c_str(),
                amount / median(way.cpu_seconds), unit, amount / median(way.seconds), unit);
  std::fflush(stdout);
}

void parts(const Server& server, int runs, bool tls) {
  constexpr std::size_t kPart = 8 * kMiB, kAtATime = 16;
  remote::Options options;
  options.ca_file = server.ca_file();
  const std::string url = tls ? server.tls_url("/files/big.bin") : server.url("/files/big.bin");
  const remote::Client client(options);
  const File file = client.file(url);
  BareLibcurl bare(kAtATime, server.ca_file());
  std::vector<std::byte> target(kFileBytes);
  measure(tls ? "8 MiB parts, TLS" : "8 MiB parts", runs, 1e-9 * kFileBytes, "GB",
          {{"remote::Client, read", [&] { file.read(0, target); }},
           {"libcurl, 512 KiB buffer",
            [&] { bare.get(url, kFileBytes / kPart, kPart, target.data(), kPart); }}});
}

void objects(const Server& server, int runs) {
  constexpr std::size_t kCount = 4096, kAtATime = 16;
  const std::string url = server.url("/files/object.bin");
  const remote::Client client;
  const auto folder = client.folder(server.url("/files/"));
  BareLibcurl bare(kAtATime, "");
  std::vector<std::byte> target(kAtATime * kObjectBytes);
  // Ranges of a file, fetched ahead by one thread and copied from there.
  const File file = client.file(server.url("/files/big.bin"));
  const auto fetch_ahead = [&] {
    constexpr std::size_t kAhead = 64, kRecords = kFileBytes / kObjectBytes;
    std::vector<FileRange> ranges;
    const auto range = [](std::size_t i) {  // neighbours are far apart, so that none are joined
      return FileRange{i * 769 % kRecords * kObjectBytes, kObjectBytes};
    };
    for (std::size_t i = 0; i < kCount; ++i) {
      if (i % kAhead == 0) {
        ranges.clear();
        for (std::size_t k = i == 0 ? 0 : i + kAhead; k < std::min(i + 2 * kAhead, kCount); ++k)
          ranges.push_back(range(k));
        file.will_need(ranges);
      }
      file.read(range(i).offset, std::span(target).first(kObjectBytes));
    }
  };
  const auto read_folder = [&] {
    std::vector<std::thread> threads;
    for (std::size_t worker = 0; worker < kAtATime; ++worker)
      threads.emplace_back([&] {
        std::vector<std::byte> scratch;
        for (std::size_t i = 0; i < kCount / kAtATime; ++i)
          if (folder->read("object.bin", scratch).size() != kObjectBytes) std::abort();
      });
    for (std::thread& thread : threads) thread.join();
  };
  // The memory of the bare loop is one object's, which stays in the cache.
  const auto get_bare = [&] {
    for (std::size_t i = 0; i < kCount / 64; ++i) {
      static std::vector<std::byte> batch(64 * kObjectBytes);
      bare.get(url, 64, 0, batch.data(), kObjectBytes);
    }
  };
  measure("objects of 128 KiB", runs, kCount, "GET",
          {{"folder, 16 threads", read_folder},
           {"file, fetched ahead", fetch_ahead},
           {"libcurl, 512 KiB buffer", get_bare}});
}

/// Batches of 256 ranges, and how many take longer than half a second.
void late(const Server& server, int runs) {
  constexpr std::size_t kBatch = 256, kBytes = 32 * kKiB, kStride = kMiB;
  for (const bool hedging : {false, true}) {
    remote::Options options;
    options.hedging = hedging;
    const remote::Client client(options);
    const File file = client.file(server.url("/late/big.bin"));
    std::vector<std::byte> target(kBytes);
    int late = 0, batches = 0;
    const auto begin_requests = client.stats().requests;
    for (; batches < 20 * runs; ++batches) {
      std::vector<FileRange> ranges;
      for (std::size_t i = 0; i < kBatch; ++i)
        ranges.push_back(
            {i * kStride + static_cast<std::size_t>(batches) % 16 * 2 * kBytes, kBytes});
      const auto begin = Clock::now();
      file.will_need(ranges);
      for (const FileRange& range : ranges) file.read(range.offset, target);
      if (seconds_since(begin) > 0.5) ++late;
    }
    const auto stats = client.stats();
    const auto wanted = static_cast<double>(batches) * kBatch;
    std::printf("%-22s %-26s %6.1f %% of %d batches late, %.2f %% more GETs, limit %d\n",
                "1 % a second late", hedging ? "hedging" : "no hedging", 100.0 * late / batches,
                batches, 100 * (static_cast<double>(stats.requests - begin_requests) / wanted - 1),
                stats.limit);
    std::fflush(stdout);
  }
}

/// The time to the first batch of a folder of a million objects.
void list(const Server& server, int runs) {
  const fs::path names = server.folder() / "million.list";
  {
    std::ofstream file(names);
    for (int i = 0; i < 1'000'000; ++i)
      file << "n" << i % 1000 << "/ILSVRC2012_val_" << 10'000'000 + i << ".JPEG\t" << i % 1000
           << '\n';
  }
  std::vector<double> to_list, to_batch;
  for (int run = 0; run < runs; ++run) {
    const auto begin = Clock::now();
    const remote::Client client;
    const FileFolder images = FileFolder::from_list(client.folder(server.url("/objects/")), names);
    to_list.push_back(seconds_since(begin));
    std::vector<std::thread> threads;
    for (std::uint64_t worker = 0; worker < 16; ++worker)
      threads.emplace_back([&, worker] {
        std::vector<std::byte> scratch;
        for (std::uint64_t i = worker; i < 256; i += 16)
          if (images.read(i * 3907, scratch).size() != kObjectBytes) std::abort();
      });
    for (std::thread& thread : threads) thread.join();
    to_batch.push_back(seconds_since(begin));
  }
  std::printf("%-22s list read %.3f s, first batch of 256 %.3f s\n", "10^6 objects, a list",
              median(to_list), median(to_batch));
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : 5;
  const std::vector<std::string_view> cases(argv + std::min(argc, 2), argv + argc);
  if (runs < 1) return 2;
  ::curl_global_init(CURL_GLOBAL_DEFAULT);
  // remote::Client keeps the memory that libcurl allocates for each transfer. The peer gets as much
  // by this; else half of its time goes into page faults.
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  try {
    const Server server;
    const auto wanted = [&](const char* name) {
      return cases.empty() || std::ranges::find(cases, name) != cases.end();
    };
    if (wanted("parts")) parts(server, runs, false);
    if (wanted("tls")) parts(server, runs, true);
    if (wanted("objects")) objects(server, runs);
    if (wanted("late")) late(server, runs);
    if (wanted("list")) list(server, runs);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
