// SPDX-License-Identifier: Apache-2.0

// Each fault of a server under each store: the right bytes, or one error that names the file and
// the fault. Nothing hangs, and no thread and no descriptor is left.

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <iterator>
#include <penstock/file_folder.hpp>
#include <penstock/packed_file.hpp>
#include <penstock/packed_file_writer.hpp>
#include <penstock/record_file.hpp>
#include <penstock/remote.hpp>
#include <penstock/tar_shards.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "server.hpp"
#include "support/tar_writer.hpp"

namespace penstock::test {
namespace {

using namespace std::chrono_literals;
using penstock::remote::Client;

/// What comes of a fault. An empty text: the right bytes.
struct Row {
  const char* fault;
  bool passes;                         ///< a fault that comes once is asked over
  const char* error;                   ///< of a fault that always comes
  const char* folder_error = nullptr;  ///< where a folder's is another, as it asks for no range
};

constexpr Row kRows[] = {
    {"status_404", false, "HTTP 404 (1 attempt"},
    {"status_408", true, "HTTP 408 (3 attempts"},
    {"status_429", true, "HTTP 429 (3 attempts"},
    {"status_500", true, "HTTP 500 (3 attempts"},
    {"status_503", true, "HTTP 503 (3 attempts"},
    {"not_modified", false, "HTTP 304 (1 attempt"},
    {"denied", false, "HTTP 403, AccessDenied: Not for you. (1 attempt"},
    {"closed", true, "Empty reply from server (3 attempts"},
    {"cut", true, "(3 attempts"},
    {"cut_head", true, "(3 attempts"},
    {"hung", true, "less than 1 KiB a second for 0.3 s (3 attempts"},
    {"hung_body", true, "less than 1 KiB a second for 0.3 s (3 attempts"},
    {"slow", true, "less than 1 KiB a second for 0.3 s (3 attempts"},
    {"other_range", false, "the answer is of another range"},
    {"several_ranges", false, "the answer is of another range"},
    {"too_long", false, "more bytes than were asked for", "does not say how many bytes"},
    {"changed", false, "the object has changed: ETag \""},
    {"no_ranges", false, "does not serve ranges"},
    {"garbage", false, "HTTP/0.9"},
    {"huge_head", true, "header"},
    {"bad_chunks", true, "(3 attempts"},
    {"early_hints", true, ""},
    {"wrong_checksum", true, "", "the store says 00000000 (3 attempts"},
    {"redirect_loop", true, "too many redirects (1 attempt"},
};

constexpr std::size_t kRecords = 3;
constexpr std::size_t kRecordBytes = 300'000;  // more than a folder's first request brings

std::vector<std::byte> record(std::uint64_t index) {
  return random_bytes(kRecordBytes, index + 1);
}

/// Reads all samples, and compares them.
template <class AnyStore>
void read_all(const AnyStore& store, bool announced = false) {
  std::vector<std::byte> scratch;
  if (announced) store.will_need(std::vector<std::uint64_t>{0, 1, 2});
  if (store.size() != kRecords) throw std::runtime_error("another number of samples");
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    const std::span<const std::byte> bytes = store.read(i, scratch);
    if (!std::ranges::equal(bytes, record(i))) throw std::runtime_error("wrong bytes");
  }
}

struct AnyStore {
  const char* file;
  std::function<void(const Client&, const std::string& folder)> read;
  bool is_folder = false, announced = false;
};

const std::array<AnyStore, 5> kStores{{
    {"a.pack",
     [](const Client& client, const std::string& folder) {
       read_all(PackedFile(client.file(folder + "a.pack")));
     }},
    {"a.tar",
     [](const Client& client, const std::string& folder) {
       read_all(TarShards(std::vector{client.file(folder + "a.tar")}));
     }},
    {"a.records",
     [](const Client& client, const std::string& folder) {
       read_all(RecordFile(std::vector{client.file(folder + "a.records")}, kRecordBytes));
     }},
    {"0.jpg",
     [](const Client& client, const std::string& folder) {
       read_all(FileFolder::from_files(client.folder(folder), {"0.jpg", "1.jpg", "2.jpg"}));
     },
     true},
    {"a0.jpg, announced",
     [](const Client& client, const std::string& folder) {
       // The names differ from those above, since a fault that comes once is counted by its URL.
       read_all(FileFolder::from_files(client.folder(folder), {"a0.jpg", "a1.jpg", "a2.jpg"}),
                true);
     },
     true, true},
}};

void write_stores(const Server& server) {
  PackedFileWriter pack(server.files() / "a.pack");
  TarWriter tar;
  std::vector<std::byte> records;
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    const std::vector<std::byte> bytes = record(i);
    const std::string name = std::to_string(i) + ".jpg";
    pack.append(bytes);
    tar.add(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    records.insert(records.end(), bytes.begin(), bytes.end());
    server.put(name.c_str(), bytes);
    server.put(("a" + name).c_str(), bytes);
  }
  pack.finish();
  tar.save(server.files() / "a.tar");
  server.put("a.records", records);
}

/// Entries of a folder of /proc/self: threads, or descriptors.
std::ptrdiff_t own(const char* what) {
  return std::distance(std::filesystem::directory_iterator(std::string("/proc/self/") + what), {});
}

/// Empty: as the row says.
std::string what_is_wrong(const Server& server, const Row& row, const AnyStore& store,
                          bool always) {
  remote::Options options;
  options.head_bytes = 1;  // so that reads are requests
  options.attempts = always ? 3 : 12;
  options.backoff = 2ms;
  // A busy machine may stand still for so long without a fault.
  const bool stalls = std::string_view(row.error).find("for 0.3 s") != std::string_view::npos;
  options.stall_timeout = stalls ? 300ms : 30s;
  options.hedging = false;
  const std::string folder =
      server.url(std::string("/fault/") + (always ? "always/" : "once/") + row.fault + "/");
  std::string error;
  const auto begin = std::chrono::steady_clock::now();
  try {
    const Client client(options);
    store.read(client, folder);
  } catch (const std::exception& thrown) {
    error = thrown.what();
  }
  if (std::chrono::steady_clock::now() - begin > 40s) return "took too long";
  // Where it was announced, the read makes requests after the first one has failed.
  const bool makes_others = store.announced && !always;
  if (makes_others && error.empty()) return "";
  const std::string_view expected = !always && row.passes ? ""
                                    : store.is_folder && row.folder_error != nullptr
                                        ? row.folder_error
                                        : row.error;
  if (expected.empty()) return error.empty() ? "" : "an error: " + error;
  // A fault that comes once, and is not asked over, has the same text but for the attempts.
  const std::string_view text = always ? expected : expected.substr(0, expected.find(" ("));
  const bool has_text = error.find(text) != std::string::npos ||
                        (makes_others && error.find(row.error) != std::string::npos);
  if (!has_text || error.find(folder) == std::string::npos)
    return error.empty() ? "no error" : "another error: " + error;
  return "";
}

}  // namespace

TEST_CASE("Client: each fault under each store", "[remote][faults]") {
  const Server server;
  write_stores(server);
  const auto threads = own("task"), descriptors = own("fd");
  struct Case {
    const Row* row;
    const AnyStore* store;
    bool always;
    std::string wrong = "not run";
  };
  std::vector<Case> cases;
  for (const bool always : {true, false})
    for (const Row& row : kRows)
      for (const AnyStore& store : kStores) cases.push_back({&row, &store, always});
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> workers;
  for (int i = 0; i < 16; ++i)
    workers.emplace_back([&] {
      for (std::size_t at = next++; at < cases.size(); at = next++) {
        Case& here = cases[at];
        here.wrong = what_is_wrong(server, *here.row, *here.store, here.always);
      }
    });
  for (std::thread& worker : workers) worker.join();
  for (const Case& here : cases) {
    INFO((here.always ? "always " : "once ") << here.row->fault << ", " << here.store->file);
    CHECK(here.wrong == "");
  }
  CHECK(eventually([&] { return own("task") == threads; }));
  CHECK(own("fd") == descriptors);
}

TEST_CASE("Client: nobody listens", "[remote][faults]") {
  remote::Options options;
  options.attempts = 2;
  options.backoff = 2ms;
  const Client client(options);
  for (const AnyStore& store : kStores) {
    std::string error;
    try {
      store.read(client, "http://127.0.0.1:1/");
    } catch (const std::exception& thrown) {
      error = thrown.what();
    }
    INFO(store.file << ": " << error);
    CHECK(error.find("http://127.0.0.1:1/") != std::string::npos);
    CHECK(error.find("onnect") != std::string::npos);
    CHECK(error.find("(2 attempts") != std::string::npos);
  }
}

}  // namespace penstock::test
