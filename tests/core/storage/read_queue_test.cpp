// SPDX-License-Identifier: Apache-2.0

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <penstock/read_queue.hpp>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/descriptor_file.hpp"
#include "support/files.hpp"
#include "support/memory_files.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using test::as_text;
using test::DescriptorFile;
using test::drop_from_cache;
using test::MemoryFile;
using test::Mentions;
using test::TemporaryDirectory;
using test::thrown;
using test::write_file;

static_assert(std::is_nothrow_move_constructible_v<ReadQueue>);
static_assert(std::is_nothrow_move_assignable_v<ReadQueue>);
static_assert(!std::is_copy_constructible_v<ReadQueue>);

/// Bytes that tell their place.
std::string random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(count, '\0');
  for (std::size_t i = 0; i < count; i += sizeof(std::uint64_t)) {
    const std::uint64_t number = random();
    std::memcpy(&bytes[i], &number, std::min(sizeof number, count - i));
  }
  return bytes;
}

/// Both ways; the first where the system allows it.
ReadQueueOptions any_method(std::size_t depth = 64) {
  return {.depth = depth, .method = GENERATE(ReadMethod::automatic, ReadMethod::pread)};
}

struct Asked {
  Asked(const File& file, std::uint64_t offset, std::size_t bytes)
      : memory(bytes), request{&file, offset, memory} {}
  std::vector<std::byte> memory;
  ReadRequest request;
};

std::vector<ReadRequest> requests_of(std::span<const Asked> asked) {
  std::vector<ReadRequest> requests;
  for (const Asked& one : asked) requests.push_back(one.request);
  return requests;
}

/// Reads, and returns the outcomes in the order of the requests.
std::vector<ReadOutcome> outcomes_of(ReadQueue& queue, std::span<const ReadRequest> requests) {
  std::vector<std::optional<ReadOutcome>> found(requests.size());
  queue.read(requests, [&](const ReadOutcome& outcome) {
    REQUIRE(outcome.request < found.size());
    CHECK_FALSE(found[outcome.request].has_value());
    found[outcome.request] = outcome;
  });
  std::vector<ReadOutcome> outcomes;
  for (const auto& outcome : found) {
    REQUIRE(outcome.has_value());
    outcomes.push_back(*outcome);
  }
  return outcomes;
}

std::string text_of(const ReadOutcome& outcome) {
  if (!outcome.error) return "(no error)";
  return thrown<std::system_error>([&] { std::rethrow_exception(outcome.error); });
}

TEST_CASE("ReadQueue reads what pread reads, by each method, at each depth, past the page cache",
          "[read_queue]") {
  ReadQueueOptions options = any_method(GENERATE(1, 2, 64));
  options.direct = GENERATE(DirectReads::automatic, DirectReads::never, DirectReads::always);
  options.read_around = GENERATE(0, 65536);
  const bool is_cold = GENERATE(false, true);
  const TemporaryDirectory directory;
  std::vector<File> files;
  std::vector<std::string> bytes;
  for (const char* const name : {"a", "b", "c"}) {
    bytes.push_back(random_bytes(300'000 + 777 * files.size(), files.size()));
    write_file(directory / name, bytes.back());
    files.push_back(File::open(directory / name));
    if (is_cold) drop_from_cache(directory / name);
  }
  std::mt19937_64 random(1);
  std::vector<Asked> asked;
  for (int i = 0; i < 10'000 / 18; ++i) {  // 10^4 in all ways of this test
    const std::size_t file = random() % 3;
    const std::size_t length = i % 4 == 0 ? 4096 * (random() % 8) : random() % 20'000;
    const std::uint64_t offset =
        i % 3 == 0 ? 4096 * (random() % 73) : random() % (bytes[file].size() + 5000);
    asked.emplace_back(files[file], offset, length);
  }
  ReadQueue queue(options);
  const std::vector<ReadOutcome> outcomes = outcomes_of(queue, requests_of(asked));
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const auto& [file, offset, target] = asked[i].request;
    std::vector<std::byte> right(target.size());
    right.resize(file->read(offset, right));
    CHECK_FALSE(outcomes[i].error);
    REQUIRE(outcomes[i].bytes == right.size());
    REQUIRE((right.empty() || std::memcmp(target.data(), right.data(), right.size()) == 0));
  }
  CHECK(queue.stats().requests == asked.size());
  CHECK(queue.stats().most_in_flight <= options.depth);
  if (options.method == ReadMethod::pread) CHECK_FALSE(queue.why_not_io_uring().empty());
}

TEST_CASE("ReadQueue joins neighbours, in whatever order they stand", "[read_queue]") {
  const TemporaryDirectory directory;
  const std::string bytes = random_bytes(100'000, 7);
  write_file(directory / "a", bytes);
  const File file = File::open(directory / "a");
  ReadQueue queue(any_method());
  const auto reads = [&](const std::vector<std::uint64_t>& offsets, std::size_t length) {
    const ReadQueueStats before = queue.stats();
    std::vector<Asked> asked;
    for (const std::uint64_t offset : offsets) asked.emplace_back(file, offset, length);
    outcomes_of(queue, requests_of(asked));
    for (const Asked& one : asked)
      CHECK(as_text(one.memory) == bytes.substr(one.request.offset, length));
    const ReadQueueStats after = queue.stats();
    return after.cached + after.queued - before.cached - before.queued;
  };
  CHECK(reads({2000, 0, 1000}, 1000) == 1);
  CHECK(reads({0, 100 + 4096}, 100) == 1);      // a gap of 4 KiB
  CHECK(reads({0, 100 + 4096 + 1}, 100) == 2);  // a longer one
  CHECK(reads({0, 50}, 100) == 2);              // They overlap, and each has its target.
  CHECK(reads({0, 0}, 100) == 2);
  std::vector<std::uint64_t> many(1024);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = 90 * i;
  CHECK(reads(many, 80) == 2);  // 512 targets and gaps are what the system takes at once.
}

TEST_CASE("ReadQueue takes what is in the page cache at once", "[read_queue]") {
  const TemporaryDirectory directory;
  write_file(directory / "a", random_bytes(200'000, 1));
  const File file = File::open(directory / "a");
  ReadQueue queue(any_method());
  std::vector<Asked> asked;
  for (std::uint64_t i = 0; i < 10; ++i) asked.emplace_back(file, 20'000 * i, 4096);
  outcomes_of(queue, requests_of(asked));
  CHECK(queue.stats().cached + queue.stats().queued == 10);
  CHECK(queue.stats().bytes == 10 * 4096);
  if (queue.stats().queued == 0) CHECK(queue.stats().most_in_flight == 0);
}

TEST_CASE("ReadQueue tells each request its own error, which is that of pread", "[read_queue]") {
  const TemporaryDirectory directory;
  write_file(directory / "a", random_bytes(50'000, 1));
  const File good = File::open(directory / "a");
  const File directory_file(
      std::make_shared<DescriptorFile>(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  // Its first page is not mapped: reading it is an input or output error.
  const File bad_disk(
      std::make_shared<DescriptorFile>(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC)));
  ReadQueue queue(any_method(GENERATE(1, 2, 64)));
  std::vector<Asked> asked;
  for (std::uint64_t i = 0; i < 5; ++i) {
    asked.emplace_back(good, 9000 * i, 4096);
    asked.emplace_back(bad_disk, 100 * i, 100);
    asked.emplace_back(directory_file, 100 * i, 100);
  }
  const std::vector<ReadOutcome> outcomes = outcomes_of(queue, requests_of(asked));
  for (std::size_t i = 0; i < outcomes.size(); i += 3) {
    CHECK(text_of(outcomes[i]) == "(no error)");
    CHECK(outcomes[i].bytes == 4096);
    CHECK(text_of(outcomes[i + 1]) == "cannot read: Input/output error");
    CHECK(text_of(outcomes[i + 2]) == "cannot read: Is a directory");
  }
  CHECK(queue.stats().alone == 10);
}

TEST_CASE("ReadQueue tells how many bytes a file still has that was cut", "[read_queue]") {
  const TemporaryDirectory directory;
  write_file(directory / "a", random_bytes(50'000, 1));
  const File file = File::open(directory / "a");
  std::filesystem::resize_file(directory / "a", 10'000);
  ReadQueueOptions options = any_method();
  options.direct = GENERATE(DirectReads::never, DirectReads::always);
  ReadQueue queue(options);
  std::vector<Asked> asked;
  for (const std::uint64_t offset : {0, 9000, 20'000}) asked.emplace_back(file, offset, 4000);
  const std::vector<ReadOutcome> outcomes = outcomes_of(queue, requests_of(asked));
  CHECK(outcomes[0].bytes == 4000);
  CHECK(outcomes[1].bytes == 1000);
  CHECK(outcomes[2].bytes == 0);
}

TEST_CASE("direct reads of a ReadQueue are aligned, so that none is done once more",
          "[read_queue]") {
  const TemporaryDirectory directory;
  write_file(directory / "a", random_bytes(300'777, 1));
  const File file = File::open(directory / "a");
  if (file.direct().descriptor < 0) return;  // The file system has none.
  ReadQueueOptions options = any_method();
  options.direct = DirectReads::always;
  ReadQueue queue(options);
  std::vector<Asked> asked;
  for (std::uint64_t i = 0; i < 20; ++i) asked.emplace_back(file, 14'999 * i, 3333);
  for (const ReadOutcome& outcome : outcomes_of(queue, requests_of(asked)))
    CHECK(outcome.bytes == 3333);
  CHECK(queue.stats().direct == 20);
  CHECK(queue.stats().alone == 0);
}

TEST_CASE("ReadQueue reads files that bring few bytes at a time, or do not wait", "[read_queue]") {
  const int more_flags = GENERATE(0, O_NONBLOCK);
  const auto reader = std::make_shared<DescriptorFile>(
      ::open("/proc/self/smaps", O_RDONLY | O_CLOEXEC | more_flags));
  const File file(reader);
  ReadQueue queue(any_method());
  std::vector<Asked> asked;
  asked.emplace_back(file, 0, 9000);  // of which the first call brings 4 KiB at most
  const std::vector<ReadOutcome> outcomes = outcomes_of(queue, requests_of(asked));
  CHECK(outcomes[0].bytes == 9000);
  CHECK(as_text(asked[0].memory).find("Rss:") != std::string::npos);
}

TEST_CASE("ReadQueue: no requests, empty ones, and ones that are wrong", "[read_queue]") {
  const TemporaryDirectory directory;
  write_file(directory / "a", "0123456789");
  const File file = File::open(directory / "a");
  ReadQueue queue(any_method());
  CHECK(outcomes_of(queue, {}).empty());
  std::vector<Asked> asked;
  asked.emplace_back(file, 3, 0);
  asked.emplace_back(file, 3, 2);
  asked.emplace_back(file, ~std::uint64_t{0} - 1, 100);  // The end is no number.
  asked.emplace_back(file, std::uint64_t{1} << 62, 10);
  const std::vector<ReadOutcome> outcomes = outcomes_of(queue, requests_of(asked));
  CHECK(outcomes[0].bytes == 0);
  CHECK(as_text(asked[1].memory) == "34");
  CHECK(text_of(outcomes[2]) == "cannot read: Invalid argument");
  CHECK(outcomes[3].bytes == 0);

  std::vector<ReadRequest> wrong = requests_of(asked);
  wrong[1].file = nullptr;
  int calls = 0;
  CHECK_THAT(thrown<std::invalid_argument>(
                 [&] { queue.read(wrong, [&](const ReadOutcome&) { ++calls; }); }),
             Mentions("request 1 has no file"));
  CHECK(calls == 0);
  for (const std::size_t depth : {0, 4097})
    CHECK_THAT(thrown<std::invalid_argument>([&] { ReadQueue({.depth = depth}); }),
               Mentions("set ReadQueueOptions::depth to 1 to 4096"));
}

TEST_CASE("ReadQueue is not called by its own callback, and can be used after an exception",
          "[read_queue]") {
  const TemporaryDirectory directory;
  write_file(directory / "a", random_bytes(1'000'000, 3));
  drop_from_cache(directory / "a");
  const File file = File::open(directory / "a");
  ReadQueueOptions options = any_method(GENERATE(1, 2, 64));
  options.direct = GENERATE(DirectReads::never, DirectReads::always);
  ReadQueue queue(options);
  std::vector<Asked> asked;
  for (std::uint64_t i = 0; i < 100; ++i) asked.emplace_back(file, 9999 * i, 4000);
  const std::vector<ReadRequest> requests = requests_of(asked);
  CHECK_THAT(thrown<std::logic_error>([&] {
               queue.read(requests, [&](const ReadOutcome&) {
                 queue.read(requests, [](const ReadOutcome&) {});
               });
             }),
             Mentions("it is called while it reads"));
  for (const int number : {1, 2, 50, 100}) {
    int calls = 0;
    CHECK(thrown<std::runtime_error>([&] {
            queue.read(requests, [&](const ReadOutcome&) {
              if (++calls == number) throw std::runtime_error("enough");
            });
          }) == "enough");
    CHECK(calls == number);
  }
  for (const ReadOutcome& outcome : outcomes_of(queue, requests)) CHECK(outcome.bytes == 4000);
}

TEST_CASE("ReadQueue: after an exception the kernel does not write to the targets any more",
          "[read_queue]") {
  const TemporaryDirectory directory;
  write_file(directory / "a", "0123456789");
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  // A slow file: nothing comes before somebody writes. It is asked first: it lies first.
  const std::array files{File(std::make_shared<DescriptorFile>(ends[0])),
                         File::open(directory / "a")};
  std::optional<ReadQueue> queue(std::in_place);
  if (!queue->why_not_io_uring().empty()) return;
  std::vector<Asked> asked;
  asked.emplace_back(files[0], 0, 4);
  asked.emplace_back(files[1], 0, 10);
  const std::vector<ReadRequest> requests = requests_of(asked);
  CHECK(thrown<std::runtime_error>([&] {
          queue->read(requests, [](const ReadOutcome& outcome) {
            CHECK(outcome.request == 1);
            throw std::runtime_error("enough");
          });
        }) == "enough");
  const bool is_destroyed = GENERATE(false, true);
  if (is_destroyed) queue.reset();
  REQUIRE(::write(ends[1], "late", 4) == 4);
  std::array<char, 4> left{};
  CHECK(::read(ends[0], left.data(), 4) == 4);  // All of it is in the pipe still.
  CHECK(asked[0].memory == std::vector<std::byte>(4));
  ::close(ends[1]);
}

TEST_CASE("ReadQueue tells a file of another machine of all requests, and reads them one by one",
          "[read_queue]") {
  const auto reader = std::make_shared<MemoryFile>("mem://a", random_bytes(10'000, 5));
  reader->broken = 5500;
  const File file(reader);
  ReadQueue queue(any_method());
  std::vector<Asked> asked;
  for (const std::uint64_t offset : {5000, 1000, 9990}) asked.emplace_back(file, offset, 1000);
  const std::vector<ReadOutcome> outcomes = outcomes_of(queue, requests_of(asked));
  CHECK(reader->ranges == test::Asked{{1000, 1000}, {5000, 1000}, {9990, 1000}});
  REQUIRE(outcomes[0].error);
  CHECK(thrown<std::runtime_error>([&] { std::rethrow_exception(outcomes[0].error); }) ==
        "the server is gone");
  CHECK(as_text(asked[1].memory) == reader->bytes.substr(1000, 1000));
  CHECK(outcomes[2].bytes == 10);
  CHECK(queue.stats().alone == 3);
}

TEST_CASE("ReadQueue allocates nothing when it has read such requests before", "[read_queue]") {
  const TemporaryDirectory directory;
  write_file(directory / "a", random_bytes(1'000'000, 3));
  const File file = File::open(directory / "a");
  ReadQueueOptions options = any_method();
  options.direct = GENERATE(DirectReads::never, DirectReads::always);
  ReadQueue queue(options);
  std::vector<Asked> asked;
  for (std::uint64_t i = 0; i < 100; ++i) asked.emplace_back(file, 9999 * i, 4000);
  const std::vector<ReadRequest> requests = requests_of(asked);
  const auto read = [&] {
    drop_from_cache(directory / "a");
    const std::uint64_t before = test::allocations_of_this_thread();
    queue.read(requests, [](const ReadOutcome&) {});
    return test::allocations_of_this_thread() - before;
  };
  read();
  CHECK(read() == 0);
}

TEST_CASE("ReadQueue can be moved, and used by one thread after the other", "[read_queue]") {
  const TemporaryDirectory directory;
  write_file(directory / "a", "0123456789");
  drop_from_cache(directory / "a");
  const File file = File::open(directory / "a");
  ReadQueue queue(any_method());
  const auto reads = [&](ReadQueue& used) {
    std::vector<Asked> asked;
    asked.emplace_back(file, 2, 3);
    outcomes_of(used, requests_of(asked));
    return as_text(asked[0].memory) == "234";
  };
  CHECK(reads(queue));
  ReadQueue moved(std::move(queue));
  bool has_read = false;
  std::thread([&] { has_read = reads(moved); }).join();
  CHECK(has_read);
  queue = std::move(moved);
  CHECK(reads(queue));
}

TEST_CASE("ReadQueue: a child of fork has a ring of its own", "[read_queue]") {
  const TemporaryDirectory directory;
  const std::string bytes = random_bytes(100'000, 9);
  write_file(directory / "a", bytes);
  const File file = File::open(directory / "a");
  ReadQueueOptions options = any_method();
  options.direct = GENERATE(DirectReads::never, DirectReads::always);
  ReadQueue queue(options);
  const auto reads = [&] {
    std::vector<std::byte> memory(5000);
    const ReadRequest request{&file, 50'000, memory};
    std::size_t count = 0;
    queue.read({&request, 1}, [&](const ReadOutcome& outcome) { count = outcome.bytes; });
    return count == 5000 && as_text(memory) == bytes.substr(50'000, 5000);
  };
  REQUIRE(reads());
  const ::pid_t child = ::fork();
  if (child == 0) {
    const bool is_right = reads();
    { const ReadQueue gone = std::move(queue); }
    ::_exit(is_right ? 0 : 1);
  }
  CHECK(reads());
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(reads());
}

}  // namespace
}  // namespace penstock
