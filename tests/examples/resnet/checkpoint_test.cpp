// SPDX-License-Identifier: Apache-2.0

// Checkpoints: what is saved comes back, bit for bit and in either format; training goes on as if
// nothing had been; and files that are wrong are told apart, with the network left alone.

#include "../../../examples/resnet/model/checkpoint.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "../../../examples/resnet/model/safetensors.hpp"
#include "../../support/temporary_directory.hpp"
#include "matchers.hpp"
#include "training.hpp"

namespace resnet::test {
namespace {

namespace fs = std::filesystem;
using penstock::test::TemporaryDirectory;
using safetensors::FormatError;

NetworkOptions saved_network() {
  return {architecture_of("resnet8", 10), {4, 3, 12, 12}};
}

void save(const fs::path& path, const Training& training, const CheckpointNotes& notes = {}) {
  save_checkpoint(path, training.network, notes, training.stream.get());
}
CheckpointNotes load(const fs::path& path, Training& training) {
  return load_checkpoint(path, training.network, training.stream.get());
}

TEST_CASE("checkpoint: resumed training equals uninterrupted training, bit for bit") {
  const TemporaryDirectory directory;
  NetworkOptions options = saved_network();
  options.loss_scale = true;
  SgdOptions sgd = test_sgd;
  sgd.schedule = {Decay::cosine, 0.1f, 2, 8};
  Training whole(options), first(options), second(options);
  for (int i = 0; i < 5; ++i) whole.step(sgd);
  for (int i = 0; i < 2; ++i) first.step(sgd);
  save(directory / "a.safetensors", first, {sgd, {{"prefetcher", "epoch=3 \"x\" \n"}}});
  for (int i = 0; i < 4; ++i) second.step();  // all of it is overwritten
  const CheckpointNotes notes = load(directory / "a.safetensors", second);
  CHECK(same_bits(second.state(), first.state()));
  REQUIRE(notes.sgd.has_value());
  for (int i = 0; i < 3; ++i) second.step(*notes.sgd);
  CHECK(same_bits(second.state(), whole.state()));
  CHECK(notes.texts.at("prefetcher") == "epoch=3 \"x\" \n");
  CHECK(notes.sgd->schedule.decay == Decay::cosine);
  CHECK(notes.sgd->weight_decay == sgd.weight_decay);
  CHECK(std::distance(fs::directory_iterator(directory / ""), {}) == 1);  // no partial file
}

TEST_CASE("checkpoint: the file is the same whatever the format in memory") {
  const TemporaryDirectory directory;
  Training planes(saved_network()), pixels(saved_network(), Settings{.format = Format::nhwc});
  planes.step();
  pixels.step();
  save(directory / "planes", planes);
  save(directory / "pixels", pixels);
  const auto bytes = [&](const char* name) {
    std::ifstream file(directory / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  CHECK(bytes("planes") == bytes("pixels"));
  load(directory / "planes", pixels);
  planes.infer();
  pixels.infer();
  CHECK(same_bits(planes.logits(), pixels.logits()));
}

// ---- Files of others, and files that are wrong --------------------------------------------------

/// A saved checkpoint, taken apart, to be written again with changes.
struct Parts {
  explicit Parts(const fs::path& from) : file(safetensors::read(from)) {
    for (const auto& [name, tensor] : file.tensors) tensors.push_back(tensor);
  }
  safetensors::Tensor& operator[](const std::string& name) {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const auto& tensor) { return tensor.name == name; });
    REQUIRE(found != tensors.end());
    return *found;
  }
  void drop_prefix(const std::string& prefix) {
    std::erase_if(tensors, [&](const auto& t) { return t.name.starts_with(prefix); });
  }
  template <class T>
  void replace(const std::string& name, const char* dtype, const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    kept.emplace_back(bytes.begin(), bytes.end());
    (*this)[name].dtype = dtype;
    (*this)[name].bytes = kept.back();
  }

  safetensors::File file;
  std::vector<safetensors::Tensor> tensors;
  std::deque<std::vector<std::byte>> kept;
};

TEST_CASE("checkpoint: a file without momenta and notes, with other floating-point types") {
  const TemporaryDirectory directory;
  Training saved(saved_network()), loaded(saved_network());
  for (int i = 0; i < 2; ++i) {
    saved.step();
    loaded.step();
  }
  save(directory / "ours", saved);
  Parts parts(directory / "ours");
  parts.drop_prefix("momentum.");
  // 1, -2, the smallest and the largest half; 1 and -1.5 as bfloat16.
  std::vector<std::uint16_t> halves(16, 0x3C00), bfloats(16, 0x3F80);
  halves[1] = 0xC000;
  halves[2] = 0x0001;
  halves[3] = 0x7BFF;
  bfloats[1] = 0xBFC0;
  parts.replace("bn1.weight", "F16", halves);
  parts.replace("bn1.bias", "BF16", bfloats);
  parts.replace("bn1.running_mean", "F64", std::vector<double>(16, 0.1));
  safetensors::write(directory / "theirs", parts.tensors, {});
  CHECK_FALSE(load(directory / "theirs", loaded).sgd.has_value());
  const NetworkState state = loaded.state();
  const ParameterTable& table = loaded.network.table();
  const float* weight = &state.parameters[size(table.parameter("bn1.weight").offset)];
  CHECK(std::vector(weight, weight + 4) == std::vector{1.0f, -2.0f, 0x1p-24f, 65504.0f});
  CHECK(state.parameters[size(table.parameter("bn1.bias").offset) + 1] == -1.5f);
  CHECK(state.statistics[size(table.statistic("bn1.running_mean").offset)] == 0.1f);
  CHECK(state.step == 0);
  CHECK(state.batches_tracked == 2);
  CHECK(state.momenta == std::vector<float>(state.momenta.size()));
}

TEST_CASE("checkpoint: a file that does not fit is told, and leaves the network as it was") {
  const TemporaryDirectory directory;
  Training training(saved_network());
  save(directory / "good", training);
  const NetworkState before = training.state();
  const auto refused = [&](const std::function<void(Parts&)>& change, const std::string& why) {
    Parts parts(directory / "good");
    change(parts);
    safetensors::write(directory / "bad", parts.tensors, parts.file.metadata);
    CHECK_THROWS_WITH(load(directory / "bad", training), contains(why) && contains("bad"));
    CHECK(same_bits(training.state(), before));
  };
  refused([](Parts& p) { p.drop_prefix("layer2.0.conv1.weight"); },
          "has no \"layer2.0.conv1.weight\"");
  refused([](Parts& p) { p.drop_prefix("momentum.fc.bias"); }, "has no \"momentum.fc.bias\"");
  refused([](Parts& p) { p.drop_prefix("bn1.num_batches_tracked"); }, "num_batches_tracked");
  refused([](Parts& p) { p["fc.bias"].name = "head.bias"; }, "\"head.bias\"");
  refused([](Parts& p) { p["fc.weight"].shape = {64, 10}; }, "64 x 10, and 10 x 64 is wanted");
  refused([](Parts& p) { p["fc.bias"].dtype = "I32"; }, "I32");
  refused([](Parts& p) { p["bn1.num_batches_tracked"].dtype = "F64"; }, "I64 is wanted");
  refused([](Parts& p) { p.file.metadata["penstock"] = "{\"step\": 1}"; }, "notes");
}

TEST_CASE("checkpoint: a value that is not finite is told by its tensor, in reading and writing") {
  const TemporaryDirectory directory;
  Training training(saved_network());
  save(directory / "good", training);
  const NetworkState before = training.state();
  const auto refused = [&](const std::string& name, const auto& change) {
    Parts parts(directory / "good");
    change(parts, name);
    safetensors::write(directory / "bad", parts.tensors, parts.file.metadata);
    CHECK_THROWS_WITH(load(directory / "bad", training),
                      contains("bad: \"" + name + "\"") &&
                          (contains("not finite, its element 3") || contains("below 0")));
    CHECK(same_bits(training.state(), before));
  };
  const auto with = [](auto value, const char* dtype) {
    return [value, dtype](Parts& parts, const std::string& name) {
      std::vector<decltype(value)> values(parts[name].bytes.size() / sizeof(float), 1);
      values[3] = value;
      parts.replace(name, dtype, values);
    };
  };
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const char* name : {"conv1.weight", "bn1.weight", "fc.bias", "layer1.0.bn1.running_mean",
                           "bn1.running_var", "momentum.fc.weight"})
    refused(name, with(nan, "F32"));
  refused("fc.bias", with(-infinity, "F32"));
  refused("fc.bias", with(1e300, "F64"));
  refused("fc.bias", with(std::uint16_t{0x7C00}, "F16"));
  refused("fc.bias", with(std::uint16_t{0xFFC0}, "BF16"));
  refused("bn1.running_var", with(-1.0f, "F32"));

  NetworkState bad = before;
  const ParameterTable& table = training.network.table();
  bad.parameters[size(table.place(table.parameter("layer2.0.conv1.weight"), 7))] = nan;
  training.network.set_state(bad, training.stream.get());
  CHECK_THROWS_WITH(save(directory / "good", training), contains("layer2.0.conv1.weight"));
  load(directory / "good", training);
  CHECK(same_bits(training.state(), before));
}

TEST_CASE("checkpoint: every field of the notes is in its range, or told") {
  const TemporaryDirectory directory;
  Training training(saved_network());
  training.step();
  save(directory / "good", training, {test_sgd, {{"a", "b"}}});
  const NetworkState before = training.state();
  const auto refused = [&](const std::string& key, const std::string& value) {
    INFO(key << ": " << value);
    Parts parts(directory / "good");
    std::string& notes = parts.file.metadata.at("penstock");
    const std::size_t begin = notes.find('"' + key + "\":") + key.size() + 3;
    REQUIRE(begin > key.size() + 3);
    const std::size_t end = notes.find_first_of(",}", begin);
    notes.replace(begin, end - begin, value);
    safetensors::write(directory / "bad", parts.tensors, parts.file.metadata);
    CHECK_THROWS_WITH(load(directory / "bad", training),
                      contains("bad: the metadata's notes cannot be") && contains(key));
    CHECK(same_bits(training.state(), before));
  };
  for (const char* value : {"3", "-1", "0.5", "4294967296", R"("cosine")", "null", "[0]"})
    refused("decay", value);
  for (const char* key :
       {"step", "good_steps", "skipped", "warmup_steps", "total_steps", "growth_interval"})
    for (const char* value :
         {"-1", "1.5", "1e300", "9223372036854775808", "18446744073709551615", R"("1")", "true"})
      refused(key, value);
  for (const char* key : {"good_steps", "skipped", "growth_interval"}) refused(key, "2147483648");
  refused("growth_interval", "0");
  for (const char* key : {"base", "momentum", "weight_decay", "scale"})
    for (const char* value : {"-1", "1e300", "null", R"("nan")"}) refused(key, value);
  refused("scale", "0");
  refused("momentum", "1.5");
}

// ---- The format ---------------------------------------------------------------------------------

std::string with_length(const std::string& header, const std::string& data) {
  const std::uint64_t size = header.size();
  std::string length(8, '\0');
  std::memcpy(length.data(), &size, 8);
  return length + header + data;
}

TEST_CASE("safetensors: every rule of the format") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "file";
  const auto read = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return safetensors::read(path);
  };
  const std::string tensor = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  CHECK(read(with_length(tensor + "  ", "1234")).tensor("a").bytes.size() == 4);
  CHECK(read(with_length("{}", "")).tensors.empty());
  CHECK(read(with_length(R"({"__metadata__":{"k":"v"}})", "")).metadata.at("k") == "v");

  const std::vector<std::pair<std::string, const char*>> bad = {
      {"", "too short"},
      {"1234567", "too short"},
      {with_length(tensor, "123"), "cut short"},
      {with_length(tensor, "12345"), "behind"},
      {with_length(tensor, "1234").substr(0, 30), "within its header"},
      {std::string(8, '\xff') + "{}", "too long"},
      {with_length("", ""), "begin"},
      {with_length(" {}", ""), "begin"},
      {with_length("{\"a\"", ""), "JSON"},
      {with_length(R"({"a":1})", ""), "dtype"},
      {with_length(R"({"__metadata__":{"k":1}})", ""), "text"},
      {with_length(R"({"__metadata__":1})", ""), "no object"},
      {with_length(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", "1234"), "F31"},
      {with_length(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234"), "shape"},
      {with_length(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234"), "shape"},
      {with_length(R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", "1234"), "shape"},
      {with_length(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "1234"),
       "data_offsets"},
      {with_length(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", "1234"),
       "data_offsets"},
      {with_length(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "12345678"),
       "begins"},
      {with_length(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                   R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                   "1234"),
       "begins"},
      {with_length(
           R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,0]}})", ""),
       "shape"},
      {with_length(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                   R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                   "1"),
       "twice"},
      {with_length(R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", "1"),
       "twice"},
      {with_length(R"({"__metadata__":{"k":"v","k":"w"}})", ""), "twice"},
      {with_length(R"({"a":{"dtype":"F32","shape":[9223372036854775807,9223372036854775807],)"
                   R"("data_offsets":[0,4]}})",
                   "1234"),
       "shape"},
      {with_length(R"({"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]}})",
                   "1234"),
       "shape"},
      {with_length(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", "1234"), "shape"},
      {with_length(
           R"({"a":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]}})",
           "1"),
       "cut short"},
      {with_length("{\"a\":" + std::string(100'000, '['), ""), "too deep"},
      {with_length("{\"" + std::string(1000, 'x') + "\\n\":1}", ""), "xxx...\" has no dtype"},
      {with_length(R"({"a\u001b[2J":1})", ""), "a?[2J"}};
  for (const auto& [bytes, why] : bad) {
    INFO(bytes);
    CHECK_THROWS_WITH(read(bytes), contains(why));
  }
  CHECK_THROWS_AS(safetensors::read(directory / "missing"), FormatError);
}

TEST_CASE("safetensors: memory is not taken for what the header does not describe") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "file";
  const auto header = [](const std::string& size) {
    return with_length(
        R"({"a":{"dtype":"U8","shape":[)" + size + R"(],"data_offsets":[0,)" + size + "]}}", "");
  };
  std::ofstream(path) << header("4");
  fs::resize_file(path, std::uintmax_t{1} << 42);  // all holes, and more than any memory
  CHECK_THROWS_WITH(safetensors::read(path), contains("behind its last tensor"));
  const std::string claims = header("4398046511104");
  std::ofstream(path, std::ios::binary | std::ios::trunc) << claims;
  fs::resize_file(path, claims.size() + (std::uintmax_t{1} << 42));
  CHECK_THROWS_WITH(safetensors::read(path), contains("there is no memory"));
  CHECK_THROWS_WITH(safetensors::read(directory / ""), contains("no regular file"));
  const std::string good = header("4") + "1234";
  const auto bytes = std::as_bytes(std::span(good));
  CHECK(safetensors::parse({bytes.begin(), bytes.end()}, "name").tensor("a").bytes.size() == 4);
  CHECK_THROWS_WITH(safetensors::parse({bytes.begin(), bytes.end() - 1}, "name"),
                    contains("name: is cut short"));
}

TEST_CASE("safetensors: a bit that is another is told, wherever it is") {
  const TemporaryDirectory directory;
  const std::vector<float> one{1, 2, 3}, two{4, 5};
  safetensors::write(directory / "file",
                     {{"a", "F32", {3}, std::as_bytes(std::span(one))},
                      {"b", "F32", {1, 2}, std::as_bytes(std::span(two))}},
                     {{"format", "pt"}, {"notes", "{\"step\": 17}"}});
  const safetensors::File good = safetensors::read(directory / "file");
  REQUIRE(good.has_checksum);
  CHECK(good.metadata == safetensors::Metadata{{"format", "pt"}, {"notes", "{\"step\": 17}"}});
  int told = 0, without = 0;
  for (std::size_t place = 0; place < good.data.size(); ++place)
    for (int bit = 0; bit < 8; ++bit) {
      INFO("byte " << place << ", bit " << bit);
      std::vector<std::byte> bytes = good.data;
      bytes[place] ^= static_cast<std::byte>(1 << bit);
      try {
        const safetensors::File file = safetensors::parse(std::move(bytes), "name");
        // The checksum's own name, or a blank between what the header says.
        CHECK(file.floats(file.tensor("a")) == one);
        CHECK(file.floats(file.tensor("b")) == two);
        CHECK(file.metadata.at("notes") == good.metadata.at("notes"));
        ++without;
      } catch (const FormatError&) {
        ++told;
      }
    }
  CHECK(told > 1000);
  CHECK(without < 8 * 20);
}

TEST_CASE("safetensors: tensors in another order, and other places, have the same checksum") {
  const TemporaryDirectory directory;
  const std::vector<float> one{1, 2, 3}, two{4, 5};
  const safetensors::Tensor a{"a", "F32", {3}, std::as_bytes(std::span(one))},
      b{"b", "F32", {2}, std::as_bytes(std::span(two))};
  const auto checksum = [&](const std::vector<safetensors::Tensor>& tensors) {
    safetensors::write(directory / "file", tensors, {{"format", "pt"}});
    const safetensors::File file = safetensors::read(directory / "file");
    const std::string text(reinterpret_cast<const char*>(file.data.data()), file.data.size());
    return text.substr(text.find("penstock.crc32c"), 30);
  };
  CHECK(checksum({a, b}) == checksum({b, a}));
  CHECK(checksum({a, b}) != checksum({a}));
}

TEST_CASE("safetensors: several writers of one file, and whoever reads it") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "file";
  const auto write = [&](float value) {
    const std::vector<float> values(100'000, value);
    safetensors::write(path, {{"a", "F32", {100'000}, std::as_bytes(std::span(values))}}, {});
  };
  write(0);
  std::atomic<int> failures{0}, working{3};
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 3; ++writer)
    writers.emplace_back([&, writer] {
      for (int i = 0; i < 30; ++i) try {
          write(static_cast<float>(writer));
        } catch (const std::exception&) {
          ++failures;
        }
      --working;
    });
  std::string told;
  while (working > 0) try {
      const safetensors::File file = safetensors::read(path);
      const std::vector<float> values = file.floats(file.tensor("a"));
      if (std::count(values.begin(), values.end(), values.front()) != 100'000) told = "mixed";
    } catch (const FormatError& error) {
      told = error.what();
    }
  for (std::thread& writer : writers) writer.join();
  CHECK(failures == 0);
  CHECK(told == "");
}

TEST_CASE("safetensors: a write that fails leaves the old file") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "file";
  const std::vector<float> one{1}, two{2};
  safetensors::write(path, {{"a", "F32", {1}, std::as_bytes(std::span(one))}}, {});
  fs::create_directory(directory / "folder");
  CHECK_THROWS_AS(safetensors::write(directory / "folder",
                                     {{"a", "F32", {1}, std::as_bytes(std::span(two))}}, {}),
                  std::system_error);
  CHECK(std::distance(fs::directory_iterator(directory / ""), {}) == 2);  // no partial file
  const safetensors::File file = safetensors::read(path);
  CHECK(file.floats(file.tensor("a")) == one);
}

}  // namespace
}  // namespace resnet::test
