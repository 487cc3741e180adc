// SPDX-License-Identifier: Apache-2.0

// What is to be classified: lists of files, records, and paths that come on a stream; and what is
// said of answers.

#include "../../../../../examples/resnet/infer/classify/inputs.hpp"

#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

#include "../../../../../examples/resnet/infer/classify/answers.hpp"
#include "../../../../support/catch.hpp"
#include "../../../../support/temporary_directory.hpp"
#include "../../matchers.hpp"
#include "image_files.hpp"

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
