// SPDX-License-Identifier: Apache-2.0

// The cache of a node: what it keeps, and right bytes or none, whatever happens to its files.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cache.hpp>
#include <cache_policy.hpp>
#include <cache_record.hpp>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/temporary_directory.hpp"

namespace penstock::test {
namespace {

namespace fs = std::filesystem;
using penstock::remote::Cache;
using penstock::remote::CacheKey;
using penstock::remote::CacheOptions;
using penstock::remote::CachePieces;
using penstock::remote::CachePolicy;
using penstock::remote::Counters;
using penstock::remote::object_version;
using penstock::remote::ObjectVersion;
using Trace = std::vector<std::uint64_t>;

// The policy alone.

std::size_t hits_of_policy(const Trace& trace, CachePolicy::Slot slots, bool announced) {
  CachePolicy policy(slots);
  if (announced)
    for (const std::uint64_t item : trace) policy.will_read(item);
  std::size_t hits = 0;
  for (const std::uint64_t item : trace) {
    policy.read(item);
    if (policy.slot_of(item) != CachePolicy::no_slot)
      ++hits;
    else if (const auto slot = policy.place_for(item))
      policy.put(*slot, item);
  }
  return hits;
}

/// Belady's rule by looking through the rest of the trace.
std::size_t hits_of_belady(const Trace& trace, std::size_t slots) {
  std::vector<std::uint64_t> kept;
  std::size_t hits = 0;
  for (std::size_t at = 0; at < trace.size(); ++at) {
    const auto next = [&](std::uint64_t item) {
      return std::find(trace.begin() + static_cast<std::ptrdiff_t>(at) + 1, trace.end(), item);
    };
    if (std::ranges::find(kept, trace[at]) != kept.end()) {
      ++hits;
      continue;
    }
    kept.push_back(trace[at]);
    if (kept.size() <= slots) continue;
    kept.erase(std::ranges::max_element(kept, {}, next));
  }
  return hits;
}

/// The most hits that any decisions bring, by trying all.
std::size_t most_hits(const Trace& trace, std::size_t slots) {
  std::map<unsigned, std::size_t> best{{0u, 0u}};  // by the set of items that are kept
  for (const std::uint64_t item : trace) {
    const unsigned bit = 1u << item;
    std::map<unsigned, std::size_t> after;
    const auto reach = [&](unsigned kept, std::size_t hits) {
      after[kept] = std::max(after[kept], hits);
    };
    for (const auto& [kept, hits] : best) {
      reach(kept, hits + ((kept & bit) != 0 ? 1 : 0));
      if ((kept & bit) != 0) continue;
      if (static_cast<std::size_t>(__builtin_popcount(kept)) < slots) reach(kept | bit, hits);
      for (unsigned other = 1; other <= kept; other <<= 1)
        if ((kept & other) != 0) reach((kept & ~other) | bit, hits);
    }
    best = std::move(after);
  }
  std::size_t most = 0;
  for (const auto& [kept, hits] : best) most = std::max(most, hits);
  return most;
}

Trace epochs_of(std::size_t items, std::size_t epochs, unsigned seed) {
  std::mt19937 random(seed);
  Trace epoch(items), all;
  std::iota(epoch.begin(), epoch.end(), std::uint64_t{0});
  for (std::size_t i = 0; i < epochs; ++i) {
    std::shuffle(epoch.begin(), epoch.end(), random);
    all.insert(all.end(), epoch.begin(), epoch.end());
  }
  return all;
}

/// Two data sets, mixed by weights: a small one is read often.
Trace mixed_by_weights(std::size_t reads, unsigned seed) {
  std::mt19937 random(seed);
  Trace trace;
  for (std::size_t i = 0; i < reads; ++i)
    trace.push_back(random() % 10 < 7 ? random() % 40 : 40 + random() % 400);
  return trace;
}

}  // namespace

TEST_CASE("CachePolicy: a cache of the share f has the hit rate f", "[cache]") {
  constexpr std::size_t kItems = 400, kEpochs = 6;
  for (const std::size_t slots : {100u, 200u, 300u})
    for (const bool announced : {false, true}) {
      const auto hits = hits_of_policy(epochs_of(kItems, kEpochs, 7),
                                       static_cast<CachePolicy::Slot>(slots), announced);
      CHECK(hits == slots * (kEpochs - 1));
    }
}

TEST_CASE("CachePolicy: with reads that are known it has the hits of an offline Belady",
          "[cache]") {
  for (unsigned seed = 0; seed < 20; ++seed)
    for (const std::size_t slots : {1u, 7u, 50u, 200u}) {
      const Trace trace = mixed_by_weights(1500, seed);
      const auto policy = hits_of_policy(trace, static_cast<CachePolicy::Slot>(slots), true);
      CHECK(policy == hits_of_belady(trace, slots));
    }
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    Trace trace(16);
    for (std::uint64_t& item : trace) item = random() % 6;
    for (const std::size_t slots : {1u, 2u, 3u}) {
      const auto policy = hits_of_policy(trace, static_cast<CachePolicy::Slot>(slots), true);
      CHECK(policy == most_hits(trace, slots));
    }
  }
}

TEST_CASE("CachePolicy: announced reads that are left out are past with the next one", "[cache]") {
  CachePolicy policy(1);
  for (const std::uint64_t item : {1u, 2u, 3u, 2u, 1u}) policy.will_read(item);
  policy.put(*policy.place_for(1), 1);
  policy.read(3);                    // 2 and 1 are to come
  CHECK(policy.place_for(2) == 0u);  // before 1
  policy.put(0, 2);
  CHECK(policy.slot_of(1) == CachePolicy::no_slot);
  CHECK(!policy.place_for(3));  // nothing is known of it
  policy.read(1);
  CHECK(!policy.place_for(1));  // now nothing is known of 1 and 2
  policy.remove(0);
  CHECK(policy.place_for(3) == 0u);
}

namespace {

// The cache and its files.

constexpr std::size_t kSlot = 4096;

ObjectVersion version_of(const char* etag) {
  return *object_version("https://host/object", etag, 1 << 20);
}

CacheKey key_of(std::uint64_t i, const char* etag = "\"a\"") {
  return {version_of(etag), i * kSlot, static_cast<std::uint32_t>(kSlot - i % 100)};
}

/// Those of a range.
std::vector<std::byte> bytes_of(const CacheKey& key) {
  std::vector<std::byte> bytes(key.bytes);
  std::mt19937_64 random(key.version[0] ^ key.offset);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

struct Opened {
  explicit Opened(const fs::path& directory, std::uint64_t slots = 64, std::size_t slot = kSlot)
      : cache(CacheOptions{.directory = directory, .bytes = slots * slot, .slot_bytes = slot},
              counters) {}

  enum class Read { missed, right, wrong };
  Read read(const CacheKey& key) {
    std::vector<std::byte> target(key.bytes);
    if (!cache.read(key, target)) return Read::missed;
    return target == bytes_of(key) ? Read::right : Read::wrong;
  }
  bool hits(const CacheKey& key) { return read(key) == Read::right; }
  void put(const CacheKey& key) {
    cache.offer(key, bytes_of(key));
    cache.drain();
  }
  void fill(std::uint64_t end, std::uint64_t first = 0) {
    for (; first < end; ++first) put(key_of(first));
  }
  /// Of the first keys: how many are there. None may be wrong.
  std::uint64_t found(std::uint64_t keys) {
    std::uint64_t count = 0;
    for (std::uint64_t i = 0; i < keys; ++i) {
      const Read result = read(key_of(i));
      REQUIRE(result != Read::wrong);
      if (result == Read::right) ++count;
    }
    return count;
  }

  Counters counters;
  Cache cache;
};

/// The files take no more than they may, and there are no others.
void check_space(const fs::path& directory, std::uint64_t slots, std::size_t slot = kSlot) {
  for (const auto& file : fs::directory_iterator(directory)) {
    const std::string name = file.path().filename().string();
    if (name == "slots")
      CHECK(file.file_size() <= slots * slot);
    else if (name == "index")
      CHECK(file.file_size() <= (1 + 1024 + 2 * slots) * 64);
    else
      CHECK(name == "lock");
  }
}

void flip(const fs::path& path, std::uint64_t byte, int bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(byte));
  const int before = file.get();
  file.seekp(static_cast<std::streamoff>(byte));
  file.put(static_cast<char>(before ^ (1 << bit)));
}

/// Pages of a file that are in memory.
std::size_t pages_in_memory(const fs::path& path) {
  const std::size_t bytes = fs::file_size(path), pages = (bytes + 4095) / 4096;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  std::vector<unsigned char> are_there(pages);
  REQUIRE(::mincore(mapped, bytes, are_there.data()) == 0);
  ::munmap(mapped, bytes);
  ::close(file);
  return static_cast<std::size_t>(std::count(are_there.begin(), are_there.end(), 1));
}

/// Runs `work` in a process of its own.
::pid_t begin_process(const std::function<bool()>& work) {
  const ::pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child > 0) return child;
  bool good = false;
  try {
    good = work();
  } catch (...) {
  }
  ::_exit(good ? 0 : 1);
}

bool ends_well(::pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("Cache: fills, keeps, and is there for the next process", "[cache]") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "a/b";
  {
    Opened first(path);
    first.fill(100);
    CHECK(first.found(100) == 64);
    CHECK(first.found(64) == 64);
    CHECK(first.counters.cache_hits == 128);
    CHECK(first.counters.cache_misses == 36);
    CHECK(first.counters.from_cache > 128 * (kSlot - 100));
    CHECK(first.counters.cache_errors == 0);
  }
  Opened second(path);
  CHECK(second.found(100) == 64);
  CHECK(second.counters.cache_damaged == 0);
  check_space(path, 64);
}

TEST_CASE("Cache: what will be needed is read from the disk ahead", "[cache]") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "c";
  Opened opened(path, 16, std::size_t{1} << 20);
  const CacheKey key{{1, 2}, 0, 1 << 20}, missing{{1, 2}, 1 << 20, 1 << 20};
  opened.put(key);
  CHECK_FALSE(opened.cache.will_need(missing));
  penstock::test::drop_from_cache(path / "slots");
  const bool is_on_disk = pages_in_memory(path / "slots") == 0;  // Some file systems are memory.
  CHECK(opened.cache.will_need(key));
  if (is_on_disk) CHECK(eventually([&] { return pages_in_memory(path / "slots") == 256; }));
  CHECK(opened.hits(key));
  CHECK(opened.counters.cache_misses == 0);
}

TEST_CASE("Cache: a hit allocates nothing", "[cache]") {
  const TemporaryDirectory directory;
  Opened opened(directory / "c");
  opened.fill(64);
  std::vector<std::byte> target(kSlot);
  for (std::uint64_t i = 0; i < 4; ++i) opened.cache.will_read(key_of(i));
  std::vector<CacheKey> keys;
  for (std::uint64_t i = 0; i < 64; ++i) keys.push_back(key_of(i));
  const std::uint64_t before = allocations_of_this_thread();
  for (const CacheKey& key : keys)
    if (!opened.cache.read(key, std::span(target).first(key.bytes))) FAIL("missed");
  CHECK(allocations_of_this_thread() == before);
}

TEST_CASE("Cache: with reads that are announced it has the hits of an offline Belady", "[cache]") {
  const TemporaryDirectory directory;
  Opened opened(directory / "c", 50);
  const Trace trace = mixed_by_weights(1500, 11);
  for (const std::uint64_t item : trace) opened.cache.will_read(key_of(item));
  for (const std::uint64_t item : trace) {
    const auto result = opened.read(key_of(item));
    REQUIRE(result != Opened::Read::wrong);
    if (result == Opened::Read::missed) opened.put(key_of(item));
  }
  CHECK(opened.counters.cache_hits == hits_of_belady(trace, 50));
  CHECK(opened.counters.cache_damaged == 0);
  check_space(directory / "c", 50);
}

TEST_CASE("Cache: the index is compacted, and others follow", "[cache]") {
  const TemporaryDirectory directory;
  Opened writer(directory / "c", 4), reader(directory / "c", 4);
  for (std::uint64_t i = 0; i < 3000; ++i) writer.cache.will_read(key_of(i / 2));
  for (std::uint64_t i = 0; i < 1500; ++i) {
    REQUIRE(writer.read(key_of(i)) == Opened::Read::missed);
    writer.put(key_of(i));
    REQUIRE(writer.hits(key_of(i)));
    if (i % 100 == 0) REQUIRE(reader.hits(key_of(i)));
    if (i % 50 == 0) check_space(directory / "c", 4);
  }
  CHECK(reader.found(1500) <= 4);
  CHECK(reader.counters.cache_damaged + writer.counters.cache_damaged == 0);
  CHECK(reader.counters.cache_errors + writer.counters.cache_errors == 0);
  CHECK(Opened(directory / "c", 4).found(1500) == reader.found(1500));
}

TEST_CASE("Cache: versions of an object are told apart", "[cache]") {
  const TemporaryDirectory directory;
  Opened opened(directory / "c");
  opened.put(key_of(3));
  CHECK(opened.read(key_of(3, "\"b\"")) == Opened::Read::missed);
  opened.put(key_of(3, "\"b\""));
  CHECK(opened.hits(key_of(3)));
  CHECK(opened.hits(key_of(3, "\"b\"")));
  CacheKey shorter = key_of(3);
  --shorter.bytes;
  CHECK(opened.read(shorter) == Opened::Read::missed);

  const auto version = object_version("u", "\"a\"", 1);
  CHECK(version != object_version("v", "\"a\"", 1));
  CHECK(version != object_version("u", "\"b\"", 1));
  CHECK(version != object_version("u", "\"a\"", 2));
  CHECK(!object_version("u", "", 1));
  CHECK(!object_version("u", "W/\"a\"", 1));
}

TEST_CASE("Cache: a flipped bit is a miss", "[cache]") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "c", copy = directory / "copy";
  constexpr std::uint64_t kKeys = 5;
  Opened(path, 8).fill(kKeys);
  const auto damage = [&](const char* file, std::uint64_t byte) {
    fs::remove_all(copy);
    fs::copy(path, copy);
    flip(copy / file, byte, static_cast<int>(byte % 8));
    Opened opened(copy, 8);
    const std::uint64_t found = opened.found(kKeys);
    opened.fill(kKeys);
    CHECK(opened.found(kKeys) == kKeys);
    CHECK(opened.counters.cache_errors == 0);
    CHECK(Opened(copy, 8).found(kKeys) == kKeys);
    check_space(copy, 8);
    return std::pair(found, opened.counters.cache_damaged.load());
  };
  for (std::uint64_t byte = 0; byte < 64; ++byte)
    CHECK(damage("index", byte) == std::pair(std::uint64_t{0}, std::uint64_t{0}));
  for (std::uint64_t byte = 64; byte < (1 + kKeys) * 64; ++byte)
    CHECK(damage("index", byte) == std::pair(kKeys - 1, std::uint64_t{1}));
  for (std::uint64_t byte = 0; byte < (kKeys - 1) * kSlot; byte += 509) {
    // Behind its last byte, a slot has nothing.
    const bool is_inside = byte % kSlot < key_of(byte / kSlot).bytes;
    CHECK(damage("slots", byte) == (is_inside ? std::pair(kKeys - 1, std::uint64_t{1})
                                              : std::pair(kKeys, std::uint64_t{0})));
  }
}

TEST_CASE("Cache: files that were cut, or that somebody removed", "[cache]") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "c";
  Opened(path).fill(20);
  for (const std::uint64_t size : {1000u, 100u, 63u, 0u}) {
    fs::resize_file(path / "index", size);
    Opened opened(path);
    CHECK(opened.found(20) == (size == 0 ? 0 : size / 64 - (size >= 64 ? 1 : 0)));
  }
  Opened(path).fill(20);
  fs::resize_file(path / "slots", 5 * kSlot);
  {
    Opened opened(path);
    CHECK(opened.found(20) == 5);
    CHECK(opened.counters.cache_damaged == 15);
    opened.fill(20);
    CHECK(opened.found(20) == 20);
    fs::remove_all(path);
    CHECK(opened.found(30) == 20);  // The files that are open are still there.
    Opened other(path);             // A new cache.
    CHECK(other.found(20) == 0);
    opened.fill(30, 20);
    CHECK(opened.found(30) == 0);
    CHECK(opened.counters.cache_errors == 1);
    other.fill(20);
    CHECK(other.found(20) == 20);
  }
  Opened larger(path, 128);  // Another size empties it.
  CHECK(larger.found(20) == 0);
  CHECK(fs::file_size(path / "slots") == 0);
}

TEST_CASE("Cache: a process may be killed at any moment", "[cache]") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "c";
  constexpr std::uint64_t kSlots = 16, kKeys = 200;
  std::minstd_rand random(5);
  for (int round = 0; round < 40; ++round) {
    const auto seed = static_cast<unsigned>(random());
    const ::pid_t child = begin_process([&] {
      Opened opened(path, kSlots);
      std::mt19937 order(seed);
      while (true) {  // until it is killed
        const std::uint64_t i = order() % kKeys;
        for (int again = 0; again < 2; ++again) opened.cache.will_read(key_of(i));
        if (opened.read(key_of(i)) == Opened::Read::wrong) return false;
        opened.cache.offer(key_of(i), bytes_of(key_of(i)));
      }
    });
    ::usleep(static_cast<unsigned>(random() % 30'000));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    REQUIRE(WIFSIGNALED(status));
    Opened opened(path, kSlots);
    opened.found(kKeys);
    // One slot may have lost what it had.
    CHECK(opened.counters.cache_damaged <= 2);
    CHECK(opened.counters.cache_errors == 0);
    check_space(path, kSlots);
  }
  Opened opened(path, kSlots);
  opened.fill(kKeys);
  CHECK(opened.found(kKeys) == kSlots);
}

TEST_CASE("Cache: several processes fill it at the same time", "[cache]") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "c";
  constexpr std::uint64_t kKeys = 400, kProcesses = 3;
  std::vector<::pid_t> children;
  for (std::uint64_t child = 0; child < kProcesses; ++child)
    children.push_back(begin_process([&, child] {
      Opened opened(path, kKeys);
      for (std::uint64_t i = 0; i < kKeys; ++i) {
        const std::uint64_t key = (i + child * 7) % kKeys;
        const auto result = opened.read(key_of(key));
        if (result == Opened::Read::wrong) return false;
        if (result == Opened::Read::missed) opened.put(key_of(key));
      }
      return opened.counters.cache_errors + opened.counters.cache_damaged == 0;
    }));
  for (const ::pid_t child : children) CHECK(ends_well(child));
  Opened opened(path, kKeys);
  CHECK(opened.found(kKeys) == kKeys);
  CHECK(fs::file_size(path / "index") == 64 * (kKeys + 1));  // Each was written once.
}

TEST_CASE("Cache: processes that evict what others read", "[cache]") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "c";
  std::vector<::pid_t> children;
  for (unsigned child = 0; child < 3; ++child)
    children.push_back(begin_process([&, child] {
      Opened opened(path, 8);
      const Trace trace = mixed_by_weights(3000, child);
      for (const std::uint64_t item : trace) opened.cache.will_read(key_of(item));
      for (const std::uint64_t item : trace) {
        const auto result = opened.read(key_of(item));
        if (result == Opened::Read::wrong) return false;
        if (result == Opened::Read::missed)
          opened.cache.offer(key_of(item), bytes_of(key_of(item)));
      }
      return opened.counters.cache_hits > 0 && opened.counters.cache_errors == 0;
    }));
  for (const ::pid_t child : children) CHECK(ends_well(child));
  Opened(path, 8).found(440);
  check_space(path, 8);
}

TEST_CASE("Cache: threads read and fill it", "[cache]") {
  const TemporaryDirectory directory;
  Opened opened(directory / "c", 8);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed)
    threads.emplace_back([&, seed] {
      for (const std::uint64_t item : mixed_by_weights(1000, seed)) {
        opened.cache.will_read(key_of(item));
        const auto result = opened.read(key_of(item));
        if (result == Opened::Read::wrong) ++wrong;
        if (result == Opened::Read::missed)
          opened.cache.offer(key_of(item), bytes_of(key_of(item)));
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(opened.counters.cache_errors == 0);
}

TEST_CASE("Cache: a full disk", "[cache]") {
  const TemporaryDirectory directory;
  const fs::path disk = directory / "disk";
  fs::create_directory(disk);
  if (::mount("penstock", disk.c_str(), "tmpfs", 0, "size=128k") != 0) {
    WARN("no file system can be mounted here; the next test has another full disk");
    return;
  }
  {
    Opened opened(disk / "c");
    opened.fill(64);
    const std::uint64_t found = opened.found(64);
    CHECK(found > 10);
    CHECK(found < 32);
    CHECK(opened.counters.cache_errors == 1);
    CHECK(opened.counters.cache_damaged == 0);
    check_space(disk / "c", 64);
    CHECK(Opened(disk / "c").found(64) == found);
  }
  CHECK(::umount(disk.c_str()) == 0);
}

TEST_CASE("Cache: a file that may not grow", "[cache]") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "c";
  const ::pid_t child = begin_process([&] {
    const ::rlimit limit{10 * kSlot + 1000, 10 * kSlot + 1000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    Opened opened(path);
    for (std::uint64_t i = 0; i < 64; ++i) opened.put(key_of(i));
    for (std::uint64_t i = 0; i < 64; ++i)
      if (opened.read(key_of(i)) != (i < 10 ? Opened::Read::right : Opened::Read::missed))
        return false;
    return opened.counters.cache_errors == 1;
  });
  CHECK(ends_well(child));
  CHECK(Opened(path).found(64) == 10);
}

TEST_CASE("Cache: a directory that cannot be used is an error that is counted", "[cache]") {
  const TemporaryDirectory directory;
  std::ofstream(directory / "file") << "no directory";
  Opened opened(directory / "file/c");
  CHECK(opened.counters.cache_errors == 1);
  opened.fill(3);
  CHECK(opened.found(3) == 0);
  fs::create_directories(directory / "d/slots");
  Opened other(directory / "d");
  CHECK(other.counters.cache_errors == 1);
  CHECK(other.found(3) == 0);
}

TEST_CASE("CachePieces: they make up the range", "[cache]") {
  for (const std::uint64_t bytes : {1u, 4096u, 4097u, 12'288u, 100'000u}) {
    const CachePieces pieces(77, bytes, 4096);
    std::uint64_t end = 77;
    for (std::uint64_t i = 0; i < pieces.count(); ++i) {
      const CacheKey key = pieces.key({}, i);
      CHECK(key.offset == end);
      CHECK(key.bytes <= 4096);
      CHECK(key.bytes >= bytes / pieces.count());
      end += key.bytes;
    }
    CHECK(end == 77 + bytes);
  }
}

}  // namespace penstock::test
