// SPDX-License-Identifier: Apache-2.0

// Files that the examples read; caches that other users have been at.

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

#include "../../examples/common/cache_directory.hpp"
#include "../../examples/common/different_files.hpp"
#include "../../examples/common/read_file.hpp"
#include "../../examples/data/cifar10.hpp"
#include "../../examples/data/synthetic.hpp"
#include "../programs/support.hpp"
#include "../support/temporary_directory.hpp"
#include "programs/interrupt.hpp"
#include "programs/output_file.hpp"
#include "resnet/matchers.hpp"

namespace {

namespace fs = std::filesystem;
using examples::CacheError;
using examples::ReadError;
using penstock::test::content;
using penstock::test::names_in;
using penstock::test::status_of;
using penstock::test::TemporaryDirectory;
using resnet::test::contains;

// ---- Names, and a data set that is not finished -------------------------------------------------

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

TEST_CASE("a second Ctrl-C within the writing of a data set leaves no partial file") {
  const TemporaryDirectory directory;
  const int status = status_of([&] {
    penstock::programs::watch_interrupts();
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
  penstock::programs::write_file(directory / "file", "12345");
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
