// SPDX-License-Identifier: Apache-2.0

// The synthetic data set: same bytes for the same seed, the format, and that it is no set for a
// linear model.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "../../examples/data/cifar10.hpp"
#include "../../examples/data/shapes.hpp"
#include "../../examples/data/synthetic.hpp"
#include "../support/catch.hpp"

namespace {

namespace fs = std::filesystem;
using shapes::Split;

/// A directory that does not exist yet, and is gone with everything in it at the end.
struct TemporaryDirectory {
  TemporaryDirectory() {
    std::string name = (fs::temp_directory_path() / "make_cifar10_test.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    parent = name;
  }
  ~TemporaryDirectory() { fs::remove_all(parent); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  fs::path parent;
  fs::path path() const { return parent / "set"; }
};

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::uint64_t fnv1a(const std::string& bytes) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
  return hash;
}

std::string drawn(std::uint64_t seed, Split split, std::uint64_t records) {
  std::array<std::byte, cifar10::record_bytes> record;
  std::string bytes;
  for (std::uint64_t i = 0; i < records; ++i) {
    shapes::draw(seed, split, i, record);
    bytes.append(reinterpret_cast<const char*>(record.data()), record.size());
  }
  return bytes;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// ---- A linear model
// -------------------------------------------------------------------------------

constexpr std::size_t inputs = cifar10::pixel_bytes + 1;  // the last one is always 1

struct Samples {
  std::vector<std::array<float, inputs>> images;
  std::vector<std::size_t> labels;
};

Samples samples(Split split, std::uint64_t count) {
  Samples result;
  std::array<std::byte, cifar10::record_bytes> record;
  for (std::uint64_t i = 0; i < count; ++i) {
    shapes::draw(1, split, i, record);
    result.labels.push_back(static_cast<std::size_t>(cifar10::label_of(record)));
    std::array<float, inputs>& image = result.images.emplace_back();
    for (std::size_t p = 0; p < cifar10::pixel_bytes; ++p)
      image[p] = static_cast<float>(std::to_integer<int>(record[p + 1]) - 128) / 64;
    image.back() = 1;
  }
  return result;
}

/// Softmax regression on raw pixels, by stochastic gradient descent with a falling rate.
class LinearModel {
 public:
  void train(const Samples& data, int epochs) {
    float rate = 1e-3f;
    for (int epoch = 0; epoch < epochs; ++epoch, rate *= 0.7f)
      for (std::size_t i = 0; i < data.images.size(); ++i)
        learn(data.images[i], data.labels[i], rate);
  }

  double accuracy(const Samples& data) const {
    std::size_t right = 0;
    for (std::size_t i = 0; i < data.images.size(); ++i) {
      const auto scores = score(data.images[i]);
      const auto best = std::max_element(scores.begin(), scores.end()) - scores.begin();
      right += static_cast<std::size_t>(best) == data.labels[i] ? 1 : 0;
    }
    return static_cast<double>(right) / static_cast<double>(data.images.size());
  }

 private:
  using Scores = std::array<float, cifar10::classes>;

  Scores score(const std::array<float, inputs>& image) const {
    Scores scores{};
    for (std::size_t p = 0; p < inputs; ++p)
      for (std::size_t c = 0; c < scores.size(); ++c) scores[c] += image[p] * weights_[p][c];
    return scores;
  }

  void learn(const std::array<float, inputs>& image, std::size_t label, float rate) {
    Scores step = score(image);
    const float highest = *std::max_element(step.begin(), step.end());
    for (float& value : step) value = std::exp(value - highest);
    const float sum = std::accumulate(step.begin(), step.end(), 0.0f);
    for (std::size_t c = 0; c < step.size(); ++c)
      step[c] = rate * ((c == label ? 1.0f : 0.0f) - step[c] / sum);
    for (std::size_t p = 0; p < inputs; ++p)
      for (std::size_t c = 0; c < step.size(); ++c) weights_[p][c] += image[p] * step[c];
  }

  std::vector<Scores> weights_ = std::vector<Scores>(inputs);
};

double accuracy_of_linear_model(const Samples& train, const Samples& test) {
  LinearModel model;
  model.train(train, 4);
  return model.accuracy(test);
}

}  // namespace

TEST_CASE("the same seed draws the same bytes, on every machine") {
  // Recorded once. When the drawing changes on purpose, record again and raise shapes::version.
  CHECK(fnv1a(drawn(1, Split::train, 200)) == 0xE1EA214294364D63u);
  CHECK(fnv1a(drawn(1, Split::test, 200)) == 0x00BCFEF3733725B6u);
  CHECK(fnv1a(drawn(0xFFFFFFFFFFFFFFFFu, Split::train, 200)) == 0xB3C05ED533F6E5D6u);
}

TEST_CASE("a record depends on its seed, its split and its number") {
  const std::string records = drawn(1, Split::train, 2);
  CHECK(records.substr(0, cifar10::record_bytes) != records.substr(cifar10::record_bytes));
  CHECK(records != drawn(2, Split::train, 2));
  CHECK(records != drawn(1, Split::test, 2));
}

TEST_CASE("every ten records hold each class once, in changing order") {
  std::vector<std::vector<int>> orders;
  for (std::uint64_t group = 0; group < 20; ++group) {
    std::vector<int> order;
    for (std::uint64_t i = 0; i < 10; ++i)
      order.push_back(shapes::label(1, Split::train, 10 * group + i));
    orders.push_back(order);
    std::sort(order.begin(), order.end());
    CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  }
  std::sort(orders.begin(), orders.end());
  CHECK(std::unique(orders.begin(), orders.end()) == orders.end());
}

TEST_CASE("a data directory has the files and sizes of CIFAR-10's binary version") {
  const TemporaryDirectory directory;
  synthetic::make(directory.path(), {.seed = 1, .train = 53, .test = 11});

  CHECK(names_in(directory.path()) ==
        std::vector<std::string>{"batches.meta.txt", "data_batch_1.bin", "data_batch_2.bin",
                                 "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin",
                                 "test_batch.bin"});
  std::string train;
  for (const fs::path& file : cifar10::train_files(directory.path())) {
    const std::string bytes = read(file);
    CHECK((bytes.size() == 11 * 3073 || bytes.size() == 10 * 3073));
    train += bytes;
  }
  CHECK(train == drawn(1, Split::train, 53));
  CHECK(read(cifar10::test_file(directory.path())) == drawn(1, Split::test, 11));
  const std::vector<std::string> names = cifar10::class_names(directory.path());
  CHECK(std::equal(names.begin(), names.end(), shapes::names.begin(), shapes::names.end()));
}

TEST_CASE("giving up leaves no half file, and a set that is not whole is made again") {
  const TemporaryDirectory directory;
  const synthetic::Options options{.seed = 1, .train = 10'000, .test = 10};
  std::uint64_t calls = 0;
  const auto stop_in_second_file = [&](std::uint64_t) {
    return ++calls < 4;
  };  // a call for each 1000
  CHECK_THROWS_AS(synthetic::ensure(directory.path(), options, stop_in_second_file),
                  synthetic::Interrupted);
  const fs::path set = fs::directory_iterator(directory.path())->path();
  CHECK(names_in(set) == std::vector<std::string>{"data_batch_1.bin"});

  CHECK(synthetic::ensure(directory.path(), options) == set);
  CHECK(names_in(set).size() == 7);
  const auto never = [](std::uint64_t) { return false; };
  CHECK_NOTHROW(synthetic::ensure(directory.path(), options, never));  // whole: nothing to do
  fs::resize_file(set / "test_batch.bin", 3073);
  CHECK_THROWS_AS(synthetic::ensure(directory.path(), options, never), synthetic::Interrupted);
}

TEST_CASE("too few records and directories that cannot be made are refused") {
  const TemporaryDirectory directory;
  CHECK_THROWS_AS(synthetic::make(directory.path(), {.train = 4}), std::invalid_argument);
  CHECK_THROWS_AS(synthetic::make(directory.path(), {.test = 0}), std::invalid_argument);
  std::ofstream(directory.parent / "file") << "in the way";
  CHECK_THROWS_AS(synthetic::make(directory.parent / "file", {.train = 5, .test = 1}),
                  std::runtime_error);
}

TEST_CASE("decode turns planes into height x width x channel") {
  std::array<std::byte, cifar10::record_bytes> record;
  for (std::size_t i = 1; i < record.size(); ++i) record[i] = static_cast<std::byte>(i * 7 % 251);
  std::array<std::uint8_t, cifar10::pixel_bytes> pixels;
  cifar10::decode(record, pixels.data());
  for (std::size_t y = 0; y < 32; ++y)
    for (std::size_t x = 0; x < 32; ++x)
      for (std::size_t c = 0; c < 3; ++c)
        REQUIRE(pixels[(y * 32 + x) * 3 + c] ==
                std::to_integer<std::uint8_t>(record[1 + c * 1024 + y * 32 + x]));
}

TEST_CASE("labels are checked") {
  std::array<std::byte, cifar10::record_bytes> record{};
  record[0] = std::byte{9};
  CHECK(cifar10::label_of(record) == 9);
  record[0] = std::byte{10};
  CHECK_THROWS_AS(cifar10::label_of(record), cifar10::DataError);
}

TEST_CASE("a linear model stays under 60 % on shapes") {
  CHECK(accuracy_of_linear_model(samples(Split::train, 1500), samples(Split::test, 1000)) < 0.6);
}

TEST_CASE("the same linear model learns what a linear model can") {
  const auto mark = [](Samples data) {  // brighter at a place that tells the class
    for (std::size_t i = 0; i < data.images.size(); ++i)
      for (std::size_t p = 0; p < 24; ++p) data.images[i][24 * data.labels[i] + p] += 1;
    return data;
  };
  CHECK(accuracy_of_linear_model(mark(samples(Split::train, 1500)),
                                 mark(samples(Split::test, 1000))) > 0.9);
}
