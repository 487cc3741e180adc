// SPDX-License-Identifier: Apache-2.0

// A ReadQueue whose io_uring is bad, or not there: the bytes are the same, and so are the errors.

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <penstock/read_queue.hpp>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "support/catch.hpp"
#include "support/failing_ring.hpp"
#include "support/files.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using test::as_text;
using test::FailingRing;
using test::Mentions;
using test::TemporaryDirectory;
using test::thrown;
using test::write_file;

/// Requests that no two of are neighbours, for a file that the page cache does not have.
struct Reads {
  explicit Reads(DirectReads direct = DirectReads::always) : options{.depth = 8, .direct = direct} {
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<char>(i * 2654435761u >> 16);
    write_file(directory / "a", bytes);
    file.emplace(File::open(directory / "a"));
    ::fdatasync(file->descriptor());
    ::posix_fadvise(file->descriptor(), 0, 0, POSIX_FADV_DONTNEED);
    for (std::size_t i = 0; i < memory.size(); ++i) {
      memory[i].resize(3000);
      requests.push_back({&*file, 10'000 * i + 7, memory[i]});
    }
  }
  /// Whether all requests have their bytes.
  bool are_read_by(ReadQueue& queue) {
    std::size_t right = 0;
    queue.read(requests, [&](const ReadOutcome& outcome) {
      const std::vector<std::byte>& target = memory[outcome.request];
      if (!outcome.error && outcome.bytes == target.size() &&
          as_text(target) == bytes.substr(10'000 * outcome.request + 7, target.size()))
        ++right;
    });
    return right == requests.size();
  }

  ReadQueueOptions options;
  std::string bytes = std::string(1'000'000, '\0');
  const TemporaryDirectory directory;
  std::optional<File> file;
  std::array<std::vector<std::byte>, 50> memory;
  std::vector<ReadRequest> requests;
};

/// io_uring may be forbidden where the tests run.
bool is_there() {
  return ReadQueue().why_not_io_uring().empty();
}

TEST_CASE("ReadQueue: what the ring does not bring is read alone, or asked for again",
          "[read_queue_faults]") {
  if (!is_there()) return;
  Reads reads;
  const bool is_direct = reads.file->direct().descriptor >= 0;
  FailingRing ring;
  ReadQueue queue(reads.options);
  std::uint64_t number = 0;
  SECTION("an error that the second read does not have") {
    ring.result = [&](int result) { return ++number % 3 == 0 ? -EIO : result; };
    CHECK(reads.are_read_by(queue));
    if (is_direct) CHECK(queue.stats().alone == 50 / 3);
  }
  SECTION("fewer bytes than were asked for") {
    ring.result = [&](int result) { return ++number % 2 == 0 ? result / 2 : result; };
    CHECK(reads.are_read_by(queue));
    if (is_direct) CHECK(queue.stats().alone == 25);
  }
  SECTION("no bytes") {
    ring.result = [](int) { return 0; };
    CHECK(reads.are_read_by(queue));
  }
  SECTION("once more, please") {
    const int error = GENERATE(-EAGAIN, -EINTR);
    ring.result = [&number, error](int result) { return ++number <= 10 ? error : result; };
    CHECK(reads.are_read_by(queue));
    CHECK(queue.stats().alone == 0);
  }
  SECTION("always once more") {
    ring.result = [](int) { return -EAGAIN; };
    CHECK(reads.are_read_by(queue));
    if (is_direct) CHECK(queue.stats().alone == 50);
  }
  ring.result = {};
  CHECK(reads.are_read_by(queue));
}

TEST_CASE("ReadQueue: a ring that is full is waited for, one that takes nothing is given up",
          "[read_queue_faults]") {
  if (!is_there()) return;
  Reads reads;
  FailingRing ring;
  ReadQueue queue(reads.options);
  std::uint64_t number = 0;
  SECTION("signals") {
    ring.enter = [&](unsigned) { return ++number % 2 == 0 ? EINTR : 0; };
    CHECK(reads.are_read_by(queue));
    CHECK(queue.why_not_io_uring().empty());
  }
  SECTION("full, while requests are in flight") {
    const int error = GENERATE(EAGAIN, EBUSY);
    ring.enter = [&number, error](unsigned entries) {  // Of the 8, others are in flight.
      return entries > 0 && entries < 8 && ++number % 2 == 0 ? error : 0;
    };
    CHECK(reads.are_read_by(queue));
    CHECK(queue.why_not_io_uring().empty());
  }
  SECTION("no memory, or a filter of system calls that came later") {
    const int error = GENERATE(EAGAIN, EPERM);
    ring.enter = [error](unsigned entries) { return entries > 0 ? error : 0; };
    CHECK(reads.are_read_by(queue));
    CHECK_THAT(queue.why_not_io_uring(), Mentions("io_uring_enter: "));
    ring.enter = {};
    CHECK(reads.are_read_by(queue));
  }
}

TEST_CASE("ReadQueue: an exception while the ring takes nothing", "[read_queue_faults]") {
  if (!is_there()) return;
  Reads reads;
  FailingRing ring;
  ReadQueue queue(reads.options);
  int calls = 0;
  ring.enter = [&](unsigned) { return calls == 0 ? 0 : EINTR * (++calls % 2); };
  CHECK(thrown<std::runtime_error>([&] {
          queue.read(reads.requests, [&](const ReadOutcome&) {
            calls = 1;
            throw std::runtime_error("enough");
          });
        }) == "enough");
  ring.enter = {};
  CHECK(reads.are_read_by(queue));
}

TEST_CASE("ReadQueue reads by pread where io_uring cannot be set up, and says why",
          "[read_queue_faults]") {
  Reads reads(GENERATE(DirectReads::never, DirectReads::always));
  const int error = GENERATE(ENOSYS, EPERM, ENOMEM, EMFILE);
  FailingRing ring;
  ring.setup = [error] { return error; };
  ReadQueue queue(reads.options);
  CHECK(reads.are_read_by(queue));
  CHECK(queue.why_not_io_uring() ==
        std::system_error(error, std::generic_category(), "io_uring_setup").what());
  reads.options.method = ReadMethod::io_uring;
  CHECK_THAT(thrown<std::system_error>([&] { ReadQueue{reads.options}; }),
             Mentions("io_uring_setup: "));
}

TEST_CASE("ReadQueue uses a ring of an older kernel, which does not know all flags",
          "[read_queue_faults]") {
  if (!is_there()) return;
  Reads reads;
  FailingRing ring;
  int calls = 0;
  ring.setup = [&] { return ++calls == 1 ? EINVAL : 0; };
  ReadQueue queue(reads.options);
  CHECK(reads.are_read_by(queue));
  CHECK(calls == 2);
  CHECK(queue.why_not_io_uring().empty());
}

/// Every call of io_uring is an error of this process from now on.
bool forbid_io_uring() {
  std::array<sock_filter, 5> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, __NR_io_uring_setup, 0, 2),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, __NR_io_uring_register, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST_CASE("ReadQueue reads by pread where a filter of system calls forbids io_uring",
          "[read_queue_faults]") {
  Reads reads;
  ReadQueue before(reads.options);
  REQUIRE(reads.are_read_by(before));
  const ::pid_t child = ::fork();
  if (child == 0) {
    if (!forbid_io_uring()) ::_exit(2);
    ReadQueue queue(reads.options);
    const bool is_right = reads.are_read_by(queue) && reads.are_read_by(before);
    const bool is_told = queue.why_not_io_uring() == "io_uring_setup: Operation not permitted" &&
                         before.why_not_io_uring() == queue.why_not_io_uring();
    ::_exit(is_right && is_told ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("ReadQueue takes from the page cache while it is not worth a ring's call",
          "[read_queue_faults]") {
  Reads reads(DirectReads::automatic);
  FailingRing ring;
  unsigned calls = 0;
  ring.enter = [&](unsigned) {
    ++calls;
    return 0;
  };
  ReadQueue queue(reads.options);
  CHECK(reads.are_read_by(queue));
  const std::uint64_t queued = queue.stats().queued;
  calls = 0;
  for (int i = 0; i < 3; ++i) CHECK(reads.are_read_by(queue));  // It looks again, at first rarely.
  CHECK(queue.stats().queued - queued < 20);
  calls = 0;
  CHECK(reads.are_read_by(queue));
  CHECK(calls == 0);
}

}  // namespace
}  // namespace penstock
