// SPDX-License-Identifier: Apache-2.0

// What is to be classified: lists of files, records, and paths that come on a stream; and what is
// said of answers.

#include "../../../../../examples/resnet/infer/classify/inputs.hpp"

#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "../../../../../examples/resnet/infer/classify/answers.hpp"
#include "../../../../../examples/resnet/infer/classify/picture_source.hpp"
#include "../../../../support/catch.hpp"
#include "../../../../support/temporary_directory.hpp"
#include "../../matchers.hpp"
#include "image_files.hpp"
#include "programs/interrupt.hpp"

namespace resnet::classify {
namespace {

using penstock::test::TemporaryDirectory;
using namespace resnet::test;
using Names = std::vector<std::string>;

void write(const std::filesystem::path& path, const classify::test::Bytes& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

Names names_of(const std::vector<Input>& inputs) {
  Names names;
  for (const Input& input : inputs) names.push_back(input.path);
  return names;
}

Names all_of(Inputs& inputs, std::size_t batch_size) {
  Names names;
  for (std::uint64_t batch = 0;; ++batch) {
    const Names some = names_of(inputs.take(batch, batch_size, {}));
    if (some.empty()) return names;
    names.insert(names.end(), some.begin(), some.end());
  }
}

TEST_CASE("inputs: files as named, directories by content and in order", "[resnet][classify]") {
  const TemporaryDirectory directory;
  const auto jpeg = classify::test::jpeg_file({1, 2, 3}, 1, 1);
  write(directory / "b/two", jpeg);
  write(directory / "b/one.JPG", {});
  write(directory / "b/a/three.txt", classify::test::png_file({1, 2, 3}, 1, 1));
  write(directory / "b/notes.txt", classify::test::Bytes(100));
  write(directory / "last.txt", classify::test::Bytes(3));
  const auto path = [&](const char* name) { return (directory / name).string(); };
  const Names wanted = {path("last.txt"), path("b/a/three.txt"), path("b/one.JPG"), path("b/two")};
  for (const std::size_t batch_size : std::initializer_list<std::size_t>{1, 3, 4, 10}) {
    const auto inputs = list_files({directory / "last.txt", directory / "b"});
    CHECK(inputs->count() == 4U);
    CHECK(all_of(*inputs, batch_size) == wanted);
  }
  std::filesystem::create_directory(directory / "none");
  CHECK_THROWS_WITH(list_files({directory / "none"}), contains("no JPEG or PNG file"));
  CHECK_THROWS_WITH(list_files({directory / "b", directory / "x"}),
                    contains("no file or directory") && contains(path("x")));
}

TEST_CASE("inputs: links that lead nowhere are told as images, and end no listing",
          "[resnet][classify]") {
  const TemporaryDirectory directory;
  write(directory / "photos/cat.jpg", classify::test::jpeg_file({1, 2, 3}, 1, 1));
  std::filesystem::create_symlink("gone", directory / "photos/gone.jpg");
  std::filesystem::create_symlink("loop.png", directory / "photos/loop.png");
  std::filesystem::create_symlink("loop.txt", directory / "photos/loop.txt");
  const auto inputs = list_files({directory / "photos"});
  Names names;
  for (const std::string& name : all_of(*inputs, 2))
    names.push_back(std::filesystem::path(name).filename());
  CHECK(names == Names{"cat.jpg", "gone.jpg", "loop.png"});
  CHECK_THROWS_AS(read_file(directory / "photos/loop.png"), ImageError);
}

/// A folder that nobody can list, root included: its path is longer than the system takes.
std::filesystem::path unlistable_folder(const std::filesystem::path& directory) {
  const std::string name(200, 'n');
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path(directory);
  std::filesystem::path path = directory;
  while (path.string().size() < PATH_MAX) {
    std::filesystem::create_directory(name);
    std::filesystem::current_path(name);
    path /= name;
  }
  std::filesystem::current_path(here);
  return path;
}

TEST_CASE("inputs: a folder that cannot be listed is told, and the others are listed",
          "[resnet][classify]") {
  const TemporaryDirectory directory;
  const auto jpeg = classify::test::jpeg_file({1, 2, 3}, 1, 1);
  write(directory / "photos/a/one.jpg", jpeg);
  write(directory / "photos/b/two.jpg", jpeg);
  write(directory / "photos/z.jpg", jpeg);
  const std::filesystem::path folder = unlistable_folder(directory / "photos/b");
  const auto inputs = list_files({directory / "photos"});
  REQUIRE(inputs->count() == 4U);
  const std::vector<Input> all = inputs->take(0, 10, {});
  CHECK(names_of(all) == Names{(directory / "photos/a/one.jpg").string(), folder.string(),
                               (directory / "photos/b/two.jpg").string(),
                               (directory / "photos/z.jpg").string()});
  CHECK(all[1].error == "cannot look into this folder: File name too long");
  CHECK(all[0].error + all[2].error + all[3].error == "");

  const auto layout = pictures_layout(4, 8);
  Ledger ledger;
  PictureSource source(layout, *inputs, {8, {8, 8}}, ledger);
  std::vector<std::byte> block(layout.bytes());
  Pictures batch = layout.bind(block.data(), 4);
  const std::array<std::uint64_t, 4> samples{0, 1, 2, 3};
  CHECK(source({.samples = samples}, batch, {}));
  const Notes notes = ledger.take(0);
  CHECK(notes.rows == 3);
  CHECK(notes.images[1].error == all[1].error);

  CHECK_THROWS_WITH(list_files({folder}), contains(folder.string()));  // named by the user
}

/// While it lives: not root, whom no permission keeps out. False: that cannot be had here.
class NotRoot {
 public:
  NotRoot() : changed_(geteuid() == 0 && seteuid(65534) == 0) {}
  ~NotRoot() {
    if (changed_ && seteuid(0) != 0) std::abort();
  }
  NotRoot(const NotRoot&) = delete;
  NotRoot& operator=(const NotRoot&) = delete;
  explicit operator bool() const { return geteuid() != 0; }

 private:
  bool changed_;
};

TEST_CASE("inputs: a folder without permission is told, and the others are listed",
          "[resnet][classify]") {
  using std::filesystem::perms;
  const TemporaryDirectory directory;
  const std::filesystem::path folder = directory / "photos/locked";
  write(directory / "photos/one.jpg", classify::test::jpeg_file({1, 2, 3}, 1, 1));
  write(directory / "photos/two/two.jpg", classify::test::jpeg_file({1, 2, 3}, 1, 1));
  std::filesystem::create_directory(folder);
  // For everybody: a process that is no longer root is still in root's group.
  std::filesystem::permissions(directory / "", perms::owner_all | perms::group_read |
                                                   perms::group_exec | perms::others_read |
                                                   perms::others_exec);
  std::filesystem::permissions(folder, perms::none);
  std::vector<Input> all;
  std::string told;
  bool could = false;
  {
    const NotRoot user;
    std::error_code error;
    could = user && std::filesystem::exists(directory / "photos", error);
    if (could) try {
        all = list_files({directory / "photos"})->take(0, 10, {});
        list_files({folder});
      } catch (const std::invalid_argument& refused) {
        told = refused.what();
      }
  }
  std::filesystem::permissions(folder, perms::owner_all);
  if (!could) {
    WARN("not checked: root cannot become another user here");
    return;
  }
  CHECK(names_of(all) == Names{folder.string(), (directory / "photos/one.jpg").string(),
                               (directory / "photos/two/two.jpg").string()});
  CHECK(all.at(0).error == "cannot look into this folder: Permission denied");
  CHECK(told == "cannot look into " + folder.string() + ": Permission denied");
}

TEST_CASE("pictures: Ctrl-C is obeyed within an image", "[resnet][classify]") {
  const TemporaryDirectory directory;
  constexpr int side = 3000;
  const std::vector<std::uint8_t> flat(std::size_t{side} * side * 3, 90);
  write(directory / "slow.jpg", classify::test::jpeg_file(flat, side, side, {.scans = 100}));
  const auto inputs = list_files({directory / "slow.jpg"});
  const auto layout = pictures_layout(1, 8);
  Ledger ledger;
  PictureSource source(layout, *inputs, {8, {8, 8}}, ledger);
  std::vector<std::byte> block(layout.bytes());
  Pictures batch = layout.bind(block.data(), 1);
  const std::array<std::uint64_t, 1> samples{0};
  const pid_t child = fork();  // An interrupt is for the rest of a process's life.
  if (child == 0) {
    penstock::programs::watch_interrupts();
    // When it has computed for 10 ms, of the 200 and more that the image takes: the machine's other
    // work does not matter.
    std::signal(SIGVTALRM, [](int) { raise(SIGINT); });
    const itimerval timer{{}, {0, 10'000}};
    if (setitimer(ITIMER_VIRTUAL, &timer, nullptr) != 0) _exit(3);
    const bool filled = source({.samples = samples}, batch, {});
    _exit(penstock::programs::interrupted() ? (filled ? 1 : 0) : 2);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("inputs: records by their files", "[resnet][classify]") {
  const TemporaryDirectory directory;
  const std::vector<std::filesystem::path> files = {
      directory.records("a.bin", 0, 5, cifar10::record_bytes),
      directory.records("b.bin", 5, 2, cifar10::record_bytes)};
  const auto inputs = list_records(files);
  CHECK(inputs->count() == 7U);
  const std::vector<Input> last = inputs->take(1, 4, {});
  REQUIRE(last.size() == 3);
  CHECK(last[0].path == files[0].string());
  CHECK(last[0].record == 4);
  CHECK(last[2].path == files[1].string());
  CHECK(last[2].record == 1);
  for (const Input& input : last)
    CHECK(penstock::test::is_record(inputs->record(input), input.number));
  CHECK(inputs->take(2, 4, {}).empty());
}

/// A pipe whose reading end is a stream of paths.
struct Pipe {
  Pipe() { REQUIRE(pipe(ends.data()) == 0); }
  ~Pipe() {
    close(ends[0]);
    end();
  }
  void send(const std::string& text) {
    REQUIRE(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  void end() {
    if (ends[1] >= 0) close(ends[1]);
    ends[1] = -1;
  }
  std::array<int, 2> ends{};
};

TEST_CASE("paths on a stream: a batch has what is there, and waits for no more",
          "[resnet][classify]") {
  Pipe pipe;
  const auto inputs = read_paths(pipe.ends[0]);
  CHECK_FALSE(inputs->count());
  pipe.send("one\n");
  CHECK(names_of(inputs->take(0, 4, {})) == Names{"one"});
  pipe.send("two\r\n\nthree\nfour\nfi");
  CHECK(names_of(inputs->take(1, 2, {})) == Names{"two", "three"});
  CHECK(names_of(inputs->take(2, 2, {})) == Names{"four"});
  pipe.send("ve\nsix");
  CHECK(names_of(inputs->take(3, 1, {})) == Names{"five"});
  pipe.end();
  CHECK(names_of(inputs->take(4, 4, {})) == Names{"six"});
  CHECK(inputs->take(5, 4, {}).empty());
  CHECK(inputs->take(6, 4, {}).empty());
}

TEST_CASE("paths on a stream: a line without end takes no memory, and is told",
          "[resnet][classify]") {
  Pipe pipe;
  const auto inputs = read_paths(pipe.ends[0]);
  std::vector<Input> taken;
  std::jthread reader([&] { taken = inputs->take(0, 1, {}); });
  for (int i = 0; i < 100; ++i) pipe.send(std::string(10'000, 'x'));
  pipe.send("\none\n");
  reader.join();
  REQUIRE(taken.size() == 1);
  CHECK(taken[0].path.size() == PATH_MAX + 1);
  CHECK_THROWS_WITH(read_file(taken[0].path), contains("File name too long"));
  CHECK(names_of(inputs->take(1, 1, {})) == Names{"one"});
}

TEST_CASE("paths on a stream: batches take them in their own order", "[resnet][classify]") {
  Pipe pipe;
  const auto inputs = read_paths(pipe.ends[0]);
  std::array<Names, 6> taken;
  {
    std::vector<std::jthread> threads;
    for (const std::size_t batch : {5U, 2U, 4U, 0U, 3U, 1U})
      threads.emplace_back([&, batch] { taken[batch] = names_of(inputs->take(batch, 2, {})); });
    pipe.send("0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    pipe.end();
  }
  Names all;
  for (const Names& names : taken) all.insert(all.end(), names.begin(), names.end());
  CHECK(all == Names{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"});
}

TEST_CASE("paths on a stream: who waits gives up when he is asked to", "[resnet][classify]") {
  Pipe pipe;
  const auto inputs = read_paths(pipe.ends[0]);
  std::array<std::size_t, 2> taken{9, 9};
  {
    std::array<std::jthread, 2> waiting;  // one for a path, one for his turn; stopped at the end
    for (std::size_t batch = 0; batch < 2; ++batch)
      waiting[batch] = std::jthread([&, batch](const std::stop_token& stop) {
        taken[batch] = inputs->take(batch, 4, stop).size();
      });
  }
  CHECK(taken == std::array<std::size_t, 2>{0, 0});
}

TEST_CASE("answers: the most probable classes", "[resnet][classify]") {
  const std::vector<float> logits = {1, 3, -200, 3, 2};
  const auto guesses = best_guesses(logits, 3);
  REQUIRE(guesses.size() == 3);
  CHECK(guesses[0].index == 1);
  CHECK(guesses[1].index == 3);
  CHECK(guesses[2].index == 4);
  const double sum = std::exp(-2.0) + 2 + std::exp(-1.0);
  CHECK(guesses[0].probability == Approx(1 / sum));
  CHECK(guesses[2].probability == Approx(std::exp(-1.0) / sum));
  CHECK(best_guesses(logits, 100).size() == 5);
  CHECK(best_guesses(std::vector<float>{1e30f, -1e30f}, 1)[0].probability == Approx(1));
  CHECK(best_guesses(std::vector<float>{1, NAN}, 1).empty());
}

TEST_CASE("answers: an image whose answer is no number is skipped, and not answered besides",
          "[resnet][classify]") {
  Answers answers({}, 2, Clock::now());
  Notes notes;
  for (const char* path : {"a.jpg", "b.jpg", "c.jpg"}) notes.images.push_back({{path}, {}});
  notes.images.back().error = "broken";
  notes.rows = 2;
  answers.tell(notes, std::vector<float>{1, NAN, NAN, 1});
  CHECK(answers.answered() == 0);
  CHECK(answers.skipped() == 3);
  CHECK(answers.summary() == "0 images, 3 skipped\n");
  answers.tell(notes, std::vector<float>{1, 2, NAN, 1});
  CHECK(answers.answered() == 1);
  CHECK(answers.skipped() == 5);
}

TEST_CASE("answers: class names, a line each", "[resnet][classify]") {
  const TemporaryDirectory directory;
  std::ofstream(directory / "names") << "cat\r\nred fox\n\n\n";
  CHECK(class_names(directory / "names") == Names{"cat", "red fox"});
  CHECK_THROWS_WITH(class_names(directory / "none"), contains("none"));
}

}  // namespace
}  // namespace resnet::classify
