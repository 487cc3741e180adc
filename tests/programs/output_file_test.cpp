// SPDX-License-Identifier: Apache-2.0

// src/programs/output_file.hpp: whole or not at all, by many writers, over links, devices and
// pipes; and what signals and limits do to it.

#include "programs/output_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "../support/temporary_directory.hpp"
#include "programs/interrupt.hpp"
#include "support.hpp"

namespace {

namespace fs = std::filesystem;
using penstock::programs::OutputFile;
using penstock::programs::require_writable;
using penstock::programs::write_file;
using penstock::test::content;
using penstock::test::has;
using penstock::test::message_of;
using penstock::test::names_in;
using penstock::test::status_of;
using penstock::test::TemporaryDirectory;

using Names = std::vector<std::string>;

/// A device of our own, like /dev/null. False: this user may make none.
bool make_null_device(const fs::path& path) {
  return mknod(path.c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0;
}

// ---- Regular files
// --------------------------------------------------------------------------------

TEST_CASE("an output file appears when it is committed, and leaves nothing otherwise") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "file";
  {
    OutputFile file(path);
    file.write("one");
    CHECK_FALSE(fs::exists(path));
    file.commit();
    CHECK(content(path) == "one");
  }
  {
    OutputFile file(path);
    file.write("two");
  }
  CHECK(content(path) == "one");
  CHECK(names_in(directory / "") == Names{"file"});
}

TEST_CASE("small and large pieces come in their order") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "file";
  const std::string large(3'000'000, 'l'), middle(600'000, 'm');
  OutputFile file(path);
  for (const std::string& piece : {std::string("a"), large, middle, middle, std::string("z")})
    file.write(piece);
  file.commit();
  CHECK(content(path) == "a" + large + middle + middle + "z");
}

TEST_CASE("an output file that cannot be written is told by its name") {
  const TemporaryDirectory directory;
  CHECK(has(message_of([&] { OutputFile(directory / "none/file"); }), "none/file: No such file"));
  fs::create_directory(directory / "folder");
  CHECK(has(message_of([&] { OutputFile(directory / "folder"); }), "folder: Is a directory"));
  CHECK(names_in(directory / "") == Names{"folder"});
}

TEST_CASE("that a file cannot be written is told before there is something for it") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "file";
  require_writable(path);
  CHECK(names_in(directory / "").empty());
  std::ofstream(path) << "mine";
  require_writable(path);
  CHECK(content(path) == "mine");
  CHECK(names_in(directory / "") == Names{"file"});
  CHECK(has(message_of([&] { require_writable(directory / "none/file"); }),
            "none/file: No such file"));
  CHECK(has(message_of([&] { require_writable(path / "in"); }), "file/in"));
  CHECK(has(message_of([&] { require_writable(directory / ""); }), "Is a directory"));
  REQUIRE(mkfifo((directory / "pipe").c_str(), 0600) == 0);
  require_writable(directory / "pipe");  // and does not wait for a reader
  fs::create_symlink("none/file", directory / "link");
  CHECK(has(message_of([&] { require_writable(directory / "link"); }), "link: No such file"));
}

TEST_CASE("many writers of one file: each succeeds, and readers see one of them, whole") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "file";
  constexpr std::size_t bytes = 300'000;
  write_file(path, std::string(bytes, 'x'));
  std::atomic<int> failures{0}, working{4};
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer)
    writers.emplace_back([&, writer] {
      for (int i = 0; i < 30; ++i) try {
          OutputFile file(path);
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
  CHECK(names_in(directory / "") == Names{"file"});
}

TEST_CASE("what a dead writer has left is removed, and what a living one writes is not") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "file";
  std::ofstream(directory / "file.partial-of-mine") << "no business of ours";
  OutputFile living(path);
  const int status = status_of([&] {
    OutputFile file(path);
    file.write("some");
    raise(SIGKILL);
  });
  CHECK(WIFSIGNALED(status));
  CHECK(names_in(directory / "").size() == 3);
  OutputFile next(path);
  CHECK(names_in(directory / "").size() == 3);  // without the dead one's
  living.write("all");
  living.commit();
  CHECK(content(path) == "all");
  next.commit();
  CHECK(names_in(directory / "") == Names{"file", "file.partial-of-mine"});
}

// ---- What is no regular file
// ------------------------------------------------------------------------

TEST_CASE("a link stays, and the file that it leads to is replaced, whole") {
  const TemporaryDirectory directory;
  fs::create_directory(directory / "there");
  std::ofstream(directory / "there/file") << "old";
  fs::create_symlink("there/file", directory / "near");
  fs::create_symlink(directory / "near", directory / "far");
  for (const char* name : {"near", "far"}) {
    const fs::path link = directory / name;
    std::ifstream reader(link);  // has the old one for as long as it wants
    const std::string before = content(link);
    OutputFile file(link);
    file.write(name);
    CHECK(names_in(directory / "there").size() == 2);  // The partial file is on its file system.
    CHECK(content(link) == before);
    file.commit();
    CHECK(fs::is_symlink(link));
    CHECK(content(directory / "there/file") == name);
    std::string read;
    std::getline(reader, read);
    CHECK(read == before);
  }
  CHECK(names_in(directory / "there") == Names{"file"});
}

TEST_CASE("a link to what is not there yet makes it, and a circle of links is told") {
  const TemporaryDirectory directory;
  fs::create_directory(directory / "there");
  fs::create_symlink("there/file", directory / "link");
  write_file(directory / "link", "new");
  CHECK(fs::is_symlink(directory / "link"));
  CHECK(content(directory / "there/file") == "new");
  fs::create_symlink("b", directory / "a");
  fs::create_symlink("a", directory / "b");
  CHECK(has(message_of([&] { write_file(directory / "a", "new"); }),
            "a: Too many levels of symbolic links"));
  CHECK(fs::is_symlink(directory / "a"));
}

TEST_CASE("a link is replaced where that is asked for") {
  const TemporaryDirectory directory;
  std::ofstream(directory / "victim") << "mine";
  fs::create_symlink("victim", directory / "link");
  write_file(directory / "link", "new", {.follow_links = false});
  CHECK(content(directory / "victim") == "mine");
  CHECK(content(directory / "link") == "new");
  CHECK_FALSE(fs::is_symlink(directory / "link"));
}

TEST_CASE("a device is written, and stays a device") {
  const TemporaryDirectory directory;
  const fs::path null = directory / "null";
  if (!make_null_device(null)) return;
  require_writable(null);
  write_file(null, "nothing");
  fs::create_symlink("null", directory / "link");
  write_file(directory / "link", "nothing");
  write_file(null, "nothing", {.follow_links = false});
  CHECK(fs::is_character_file(null));
  CHECK(fs::is_symlink(directory / "link"));
  CHECK(names_in(directory / "") == Names{"link", "null"});
}

TEST_CASE("a device of blocks is refused: a file would be written over what it holds") {
  const TemporaryDirectory directory;
  const fs::path disk = directory / "disk";
  if (mknod(disk.c_str(), S_IFBLK | 0600, makedev(7, 250)) != 0) return;
  CHECK(has(message_of([&] { require_writable(disk); }), "disk: Operation not supported"));
  CHECK(has(message_of([&] { write_file(disk, "x"); }), "disk: Operation not supported"));
}

TEST_CASE("a pipe is written, however much it is, and stays a pipe") {
  const TemporaryDirectory directory;
  const fs::path pipe = directory / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const std::string text(3'000'000, 'x');
  std::string read;
  std::thread reader([&] { read = content(pipe); });
  write_file(pipe, text);
  reader.join();
  CHECK(read == text);
  CHECK(fs::is_fifo(pipe));
}

TEST_CASE("the program's own standard output takes it behind what was printed") {
  const TemporaryDirectory directory;
  for (const char* name : {"/dev/stdout", "/proc/self/fd/1", "printed"}) {
    const int status = status_of([&] {
      const int file = open((directory / "printed").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      if (file < 0 || dup2(file, STDOUT_FILENO) < 0 || chdir((directory / "").c_str()) != 0)
        _exit(1);
      if (write(STDOUT_FILENO, "first ", 6) != 6) _exit(2);
      write_file(name, "second");
      if (write(STDOUT_FILENO, " third", 6) != 6) _exit(3);
    });
    CHECK(status == 0);
    CHECK(content(directory / "printed") == "first second third");
  }
}

TEST_CASE("a standard output that cannot be written is not taken for the target") {
  const TemporaryDirectory directory;
  const fs::path null = directory / "null";
  if (!make_null_device(null)) return;
  const int status = status_of([&] {
    const int file = open(null.c_str(), O_RDONLY);
    if (file < 0 || dup2(file, STDOUT_FILENO) < 0) _exit(1);
    write_file(null, "nothing");
  });
  CHECK(status == 0);
}

// ---- Signals and limits
// -----------------------------------------------------------------------------

TEST_CASE("a second signal ends the program at once, and no partial file stays") {
  const TemporaryDirectory directory;
  const int first = GENERATE(SIGINT, SIGHUP), second = GENERATE(SIGINT, SIGTERM, SIGHUP);
  const int status = status_of([&] {
    penstock::programs::watch_interrupts();
    OutputFile file(directory / "file"), other(directory / "other");
    file.write("some");
    raise(first);
    if (!penstock::programs::interrupted() || names_in(directory / "").size() != 2) _exit(1);
    if (penstock::programs::interrupted_exit_code() != 128 + first) _exit(2);
    raise(second);
    _exit(3);
  });
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == second);
  CHECK(names_in(directory / "").empty());
}

TEST_CASE("SIGHUP stays ignored where it was, as nohup has it") {
  const int status = status_of([] {
    std::signal(SIGHUP, SIG_IGN);
    penstock::programs::watch_interrupts();
    raise(SIGHUP);
    raise(SIGHUP);
    _exit(penstock::programs::interrupted() ? 1 : 7);
  });
  CHECK(WEXITSTATUS(status) == 7);
}

/// A signal that comes while `body` waits for a pipe.
void interrupt_meanwhile(const fs::path& pipe, const std::function<void()>& body) {
  const int status = status_of([&] {
    penstock::programs::watch_interrupts();
    if (fork() == 0) {
      usleep(300'000);
      kill(getppid(), SIGTERM);
      _exit(0);
    }
    alarm(60);
    _exit(has(message_of(body), pipe.string() + ": Interrupted system call") ? 7 : 1);
  });
  CHECK(WEXITSTATUS(status) == 7);
}

TEST_CASE("a signal ends the wait for a pipe's reader, and for one that does not read") {
  const TemporaryDirectory directory;
  const fs::path pipe = directory / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  interrupt_meanwhile(pipe, [&] { write_file(pipe, "some"); });
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  interrupt_meanwhile(pipe, [&] { write_file(pipe, std::string(3'000'000, 'x')); });
  close(reader);
}

TEST_CASE("the limit on file sizes is an error that names it, and leaves the old file") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "file";
  write_file(path, "old");
  const int status = status_of([&] {
    const rlimit limit{1000, 1000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    const std::string why = message_of([&] { write_file(path, std::string(100'000, 'x')); });
    _exit(has(why, "file, since files may have 1000 bytes (ulimit -f): File too large") ? 7 : 2);
  });
  CHECK(WEXITSTATUS(status) == 7);
  CHECK(content(path) == "old");
  CHECK(names_in(directory / "") == Names{"file"});
}

TEST_CASE("the signal of that limit is the program's own all the same, before and after") {
  const TemporaryDirectory directory;
  const int own = GENERATE(0, 1);
  const int status = status_of([&] {
    const rlimit limit{1000, 1000};
    if (own != 0) std::signal(SIGXFSZ, [](int) { _exit(9); });
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    message_of([&] { write_file(directory / "file", std::string(100'000, 'x')); });
    const int file = open((directory / "own").c_str(), O_WRONLY | O_CREAT, 0600);
    const std::string much(2000, 'x');
    while (write(file, much.data(), much.size()) > 0) continue;
    _exit(2);
  });
  const bool by_handler = WIFEXITED(status) && WEXITSTATUS(status) == 9;
  const bool by_default = WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ;
  CHECK((own != 0 ? by_handler : by_default));
}

}  // namespace
