// SPDX-License-Identifier: Apache-2.0

// Files that programs read and write: whole or not at all, by many writers, after signals and
// deaths; caches that other users have been at.

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "../../examples/common/atomic_file.hpp"
#include "../../examples/common/cache_directory.hpp"
#include "../../examples/common/different_files.hpp"
#include "../../examples/common/interrupt.hpp"
#include "../../examples/common/read_file.hpp"
#include "../../examples/data/cifar10.hpp"
#include "../../examples/data/synthetic.hpp"
#include "../support/temporary_directory.hpp"
#include "resnet/matchers.hpp"

namespace {

namespace fs = std::filesystem;
using examples::AtomicFile;
using examples::CacheError;
using examples::ReadError;
using penstock::test::TemporaryDirectory;
using resnet::test::contains;

std::string content(const fs::path& path) {
  return std::string(examples::text_of(examples::read_file(path, 1 << 24)));
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// In a process of its own, which ends with status 0 when `body` returns. Returns what waitpid
/// says.
int status_of(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

// ---- Writing ------------------------------------------------------------------------------------

TEST_CASE("an atomic file appears when it is committed, and leaves nothing otherwise") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "file";
  {
    AtomicFile file(path);
    file.write("one");
    CHECK_FALSE(fs::exists(path));
    file.commit();
    CHECK(content(path) == "one");
  }
  {
    AtomicFile file(path);
    file.write("two");
  }
  CHECK(content(path) == "one");
  CHECK(names_in(directory / "") == std::vector<std::string>{"file"});
}

TEST_CASE("an atomic file that cannot be written is told by its name") {
  const TemporaryDirectory directory;
  CHECK_THROWS_WITH(AtomicFile(directory / "none/file"), contains("none/file: No such file"));
  fs::create_directory(directory / "folder");
  AtomicFile file(directory / "folder");
  CHECK_THROWS_WITH(file.commit(), contains("folder"));
}

TEST_CASE("that a file cannot be written is told before there is something for it") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "file";
  examples::require_writable(path);
  CHECK(names_in(directory / "").empty());
  std::ofstream(path) << "mine";
  examples::require_writable(path);
  CHECK(content(path) == "mine");
  CHECK(names_in(directory / "") == std::vector<std::string>{"file"});
  CHECK_THROWS_WITH(examples::require_writable(directory / "none/file"),
                    contains("none/file: No such file"));
  CHECK_THROWS_WITH(examples::require_writable(path / "in"), contains("file/in"));
  CHECK_THROWS_WITH(examples::require_writable(directory / ""), contains("Is a directory"));
  REQUIRE(mkfifo((directory / "pipe").c_str(), 0600) == 0);
  examples::require_writable(directory / "pipe");  // and does not wait for a reader
  examples::require_writable("/dev/null");
}

TEST_CASE("two names of one file are refused") {
  using examples::require_different;
  const TemporaryDirectory directory;
  const fs::path a = directory / "a", b = directory / "b";
  CHECK_THROWS_WITH(require_different({"--save", a}, {"--json", directory / "./a"}),
                    contains("--save and --json are the same file"));
  require_different({"--save", a}, {"--json", b});
  require_different({"--save", {}}, {"--json", {}});
  std::ofstream(a) << "mine";
  fs::create_hard_link(a, b);
  fs::create_symlink("a", directory / "c");
  CHECK_THROWS_AS(require_different({"--save", a}, {"--json", b}), std::invalid_argument);
  CHECK_THROWS_AS(require_different({"--save", directory / "c"}, {"--json", a}),
                  std::invalid_argument);
  require_different({"--answers", "/dev/null"}, {"--json", "/dev/null"});
}

TEST_CASE("an atomic file follows no link, and write_file follows all") {
  const TemporaryDirectory directory;
  std::ofstream(directory / "victim") << "mine";
  fs::create_symlink("victim", directory / "link");
  examples::write_file(directory / "link", "yours");
  CHECK(content(directory / "victim") == "yours");
  AtomicFile file(directory / "link");
  file.write("new");
  file.commit();
  CHECK(content(directory / "victim") == "yours");
  CHECK(content(directory / "link") == "new");
  CHECK(fs::is_regular_file(fs::symlink_status(directory / "link")));

  REQUIRE(mkfifo((directory / "pipe").c_str(), 0600) == 0);
  std::string read;
  std::thread reader([&] { std::getline(std::ifstream(directory / "pipe"), read); });
  examples::write_file(directory / "pipe", "through\n");
  reader.join();
  CHECK(read == "through");
  CHECK(fs::is_fifo(directory / "pipe"));
}

TEST_CASE("many writers of one file: each succeeds, and readers see one of them, whole") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "file";
  constexpr std::size_t bytes = 300'000;
  examples::write_file(path, std::string(bytes, 'x'));
  std::atomic<int> failures{0}, working{4};
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer)
    writers.emplace_back([&, writer] {
      for (int i = 0; i < 30; ++i) try {
          AtomicFile file(path);
          const std::string half(bytes / 2, static_cast<char>('a' + writer));
          file.write(half);
          file.write(half);
          file.commit();
        } catch (const std::exception&) {
          ++failures;
        }
      --working;
    });
  int torn = 0, reads = 0;
  while (working > 0) {
    const std::string text = content(path);
    torn += text.size() != bytes || text.find_first_not_of(text.front()) != std::string::npos;
    ++reads;
  }
  for (std::thread& writer : writers) writer.join();
  CHECK(failures == 0);
  CHECK(torn == 0);
  CHECK(reads > 0);
  CHECK(names_in(directory / "") == std::vector<std::string>{"file"});
}

TEST_CASE("what a dead writer has left is removed, and what a living one writes is not") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "file";
  std::ofstream(directory / "file.partial-of-mine") << "no business of ours";
  AtomicFile living(path);
  const int status = status_of([&] {
    AtomicFile file(path);
    file.write("some");
    raise(SIGKILL);
  });
  CHECK(WIFSIGNALED(status));
  CHECK(names_in(directory / "").size() == 3);
  AtomicFile next(path);
  CHECK(names_in(directory / "").size() == 3);  // without the dead one's
  living.write("all");
  living.commit();
  CHECK(content(path) == "all");
  next.commit();
  CHECK(names_in(directory / "") == std::vector<std::string>{"file", "file.partial-of-mine"});
}

TEST_CASE("a full disk leaves the old file") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "file";
  examples::write_file(path, "old");
  const int status = status_of([&] {
    const rlimit limit{1000, 1000};
    std::signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    try {
      examples::write_file(path, std::string(100'000, 'x'));
    } catch (const std::system_error& error) {
      _exit(std::string(error.what()).find("file: File too large") != std::string::npos ? 7 : 2);
    }
  });
  CHECK(WEXITSTATUS(status) == 7);
  CHECK(content(path) == "old");
  CHECK(names_in(directory / "") == std::vector<std::string>{"file"});
}

// ---- Signals ------------------------------------------------------------------------------------

TEST_CASE("a second signal ends the program at once, and no partial file stays") {
  const TemporaryDirectory directory;
  const int second = GENERATE(SIGINT, SIGTERM);
  const int status = status_of([&] {
    examples::watch_interrupts();
    AtomicFile file(directory / "file"), other(directory / "other");
    file.write("some");
    raise(SIGINT);
    if (!examples::interrupted() || names_in(directory / "").size() != 2) _exit(1);
    raise(second);
    _exit(2);
  });
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == second);
  CHECK(names_in(directory / "").empty());
}

TEST_CASE("a second Ctrl-C within the writing of a data set leaves no partial file") {
  const TemporaryDirectory directory;
  const int status = status_of([&] {
    examples::watch_interrupts();
    synthetic::make(directory / "set", {.train = 5000, .test = 1}, [](std::uint64_t) {
      raise(SIGINT);
      raise(SIGINT);
      return true;
    });
  });
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGINT);
  CHECK(names_in(directory / "set").empty());
}

// ---- Caches -------------------------------------------------------------------------------------

/// A variable of the environment; at the end it is what it was.
class Variable {
 public:
  Variable(const char* name, const fs::path& value) : name_(name) {
    if (const char* before = std::getenv(name))  // NOLINT(concurrency-mt-unsafe)
      before_ = before;
    setenv(name, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): no other thread yet
  }
  ~Variable() {
    if (before_)
      setenv(name_, before_->c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    else
      unsetenv(name_);  // NOLINT(concurrency-mt-unsafe)
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

constexpr synthetic::Options small_set{.train = 5, .test = 1};

fs::perms mode_of(const fs::path& path) {
  return fs::status(path).permissions();
}

TEST_CASE("the cache is in XDG_CACHE_HOME, or below the home, and the user's alone") {
  const TemporaryDirectory directory;
  const Variable home("HOME", directory / "home");
  {
    const Variable cache("XDG_CACHE_HOME", directory / "a/b");
    CHECK(examples::cache_directory() == directory / "a/b/penstock");
    CHECK(mode_of(directory / "a/b/penstock") == fs::perms::owner_all);
    CHECK(examples::cache_directory() == directory / "a/b/penstock");
    const fs::path set = synthetic::ensure({}, small_set);
    CHECK(set.parent_path() == directory / "a/b/penstock");
    CHECK(cifar10::train_files(set).size() == 5);
  }
  const Variable relative("XDG_CACHE_HOME", "somewhere");
  CHECK(examples::cache_directory() == directory / "home/.cache/penstock");
  CHECK(mode_of(directory / "home/.cache") == fs::perms::owner_all);
}

TEST_CASE("a cache that others can write, or that is no folder of the user's, is an error") {
  const TemporaryDirectory directory;
  const Variable home("XDG_CACHE_HOME", directory / "");
  const fs::path cache = directory / "penstock";
  SECTION("open to others") {
    fs::create_directory(cache);
    fs::permissions(cache, fs::perms::all);
    CHECK_THROWS_WITH(examples::cache_directory(), contains("chmod 700 " + cache.string()));
  }
  SECTION("a link") {
    fs::create_directory(directory / "elsewhere");
    fs::create_symlink("elsewhere", cache);
    CHECK_THROWS_WITH(examples::cache_directory(), contains(cache.string()) && contains("a link"));
    CHECK_THROWS_AS(synthetic::ensure({}, small_set), CacheError);
    CHECK(fs::is_empty(directory / "elsewhere"));
  }
  SECTION("a file") {
    std::ofstream(cache) << "in the way";
    CHECK_THROWS_WITH(examples::cache_directory(), contains(cache.string()));
  }
  SECTION("another user's") {
    if (geteuid() != 0) return;  // Only root can give a folder away.
    fs::create_directory(cache);
    fs::permissions(cache, fs::perms::owner_all);
    REQUIRE(chown(cache.c_str(), 65534, 65534) == 0);
    CHECK_THROWS_WITH(examples::cache_directory(), contains("belongs to user 65534"));
  }
}

TEST_CASE("a data set's folder that somebody else has made first is not written") {
  const TemporaryDirectory directory;
  const fs::path set = synthetic::ensure(directory / "probe", small_set).filename();
  const fs::path cache = directory / "cache";
  fs::create_directory(cache);
  fs::create_directory(directory / "elsewhere");
  SECTION("as a link") {
    fs::create_symlink(directory / "elsewhere", cache / set);
    CHECK_THROWS_WITH(synthetic::ensure(cache, small_set), contains((cache / set).string()));
    CHECK(fs::is_empty(directory / "elsewhere"));
  }
  SECTION("as a folder of his own") {
    if (geteuid() != 0) return;
    fs::create_directory(cache / set);
    REQUIRE(chown((cache / set).c_str(), 65534, 65534) == 0);
    CHECK_THROWS_WITH(synthetic::ensure(cache, small_set), contains("belongs to user"));
    CHECK(fs::is_empty(cache / set));
  }
  SECTION("as one that everybody can write") {
    fs::create_directory(cache / set);
    fs::permissions(cache / set, fs::perms::all);
    CHECK_THROWS_WITH(synthetic::ensure(cache, small_set), contains("chmod o-w"));
  }
  SECTION("with links in it that lead to the user's files") {
    std::ofstream(directory / "victim") << "mine";
    fs::create_directory(cache / set);
    for (const char* name : {"data_batch_1.bin", "batches.meta.txt"})
      for (const std::string& end : {std::string(), ".partial-" + std::to_string(getpid())})
        fs::create_symlink(directory / "victim", cache / set / (name + end));
    synthetic::ensure(cache, small_set);
    CHECK(content(directory / "victim") == "mine");
    CHECK(cifar10::class_names(cache / set).size() == 10);
  }
}

TEST_CASE("of many that need a data set, one makes it, and all can read it") {
  const TemporaryDirectory directory;
  std::atomic<int> makers{0}, failures{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&] {
      bool made = false;
      try {
        const fs::path set =
            synthetic::ensure(directory / "cache", small_set, [&](std::uint64_t done) {
              made = made || done > 0;
              return true;
            });
        failures += cifar10::class_names(set).size() != 10;
      } catch (const std::exception&) {
        ++failures;
      }
      makers += made;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(makers == 1);
}

// ---- Reading ------------------------------------------------------------------------------------

TEST_CASE("reading: regular files, and no more than is asked for") {
  const TemporaryDirectory directory;
  examples::write_file(directory / "file", "12345");
  CHECK(content(directory / "file") == "12345");
  CHECK(examples::text_of(examples::read_head(directory / "file", 3)) == "123");
  CHECK(examples::text_of(examples::read_head(directory / "file", 9)) == "12345");
  CHECK(examples::read_file(directory / "file", 5).size() == 5);
  CHECK_THROWS_WITH(examples::read_file(directory / "file", 4), contains("too large: 5 bytes"));
  CHECK_THROWS_WITH(examples::read_file(directory / "none", 9), contains("No such file"));
  CHECK_THROWS_WITH(examples::read_file(directory / "", 9), contains("no regular file"));
  const fs::path longer = (directory / "file").string() + '\0' + "and more";
  CHECK_THROWS_WITH(examples::read_file(longer, 9), contains("zero byte"));
  REQUIRE(mkfifo((directory / "pipe").c_str(), 0600) == 0);  // Nobody writes: it must not wait.
  CHECK_THROWS_WITH(examples::read_file(directory / "pipe", 9), contains("no regular file"));
  // Larger than any memory, and all of it holes.
  std::ofstream(directory / "holes").close();
  fs::resize_file(directory / "holes", std::uintmax_t{1} << 42);
  CHECK_THROWS_AS(examples::read_file(directory / "holes", std::uint64_t{1} << 41), ReadError);
}

TEST_CASE("class names: a file that is something else is told") {
  const TemporaryDirectory directory;
  CHECK_THROWS_WITH(cifar10::class_names(directory / ""), contains("batches.meta.txt"));
  std::ofstream(directory / "batches.meta.txt") << "one\ntwo\n";
  CHECK_THROWS_WITH(cifar10::class_names(directory / ""), contains("2 class names"));
  fs::resize_file(directory / "batches.meta.txt", std::uintmax_t{1} << 40);
  CHECK_THROWS_WITH(cifar10::class_names(directory / ""), contains("too large"));
}

}  // namespace
