// SPDX-License-Identifier: Apache-2.0

// Contexts: several threads on one set of weights, batches of every size in memory that is there
// from the start, no allocation and no wait in a run, and runs in graphs.

#include <cstdint>
#include <memory>
#include <penstock/emulation.hpp>
#include <string>
#include <thread>
#include <vector>

#include "../../../../examples/resnet/infer/quantisation.hpp"
#include "../../../support/catch.hpp"
#include "../../../support/graphs.hpp"
#include "models.hpp"

namespace resnet::test {
namespace {

constexpr std::int64_t image_count = 12;
constexpr Extents all_images{image_count, 3, 12, 12};

Model model_in(Precision precision) {
  Unfolded unfolded("resnet8", {4, 3, 12, 12});
  Model model = unfolded.folded();
  if (precision == Precision::int8)
    model = quantise(model, std::vector<float>(model.convolutions.size(), 4.0f));
  model.precision = precision;
  return model;
}

/// Images of this test, on the device, and the logits that each has alone.
struct Answers {
  explicit Answers(const Model& model) : images(test_images(all_images, 7)) {
    const std::int64_t image = all_images.count() / image_count;
    for (std::int64_t i = 0; i < image_count; ++i) {
      const auto first = images.begin() + i * image;
      logits.push_back(run(model, {.batches = {1}}, {first, first + image}, 1));
    }
  }
  std::vector<float> images;
  std::vector<std::vector<float>> logits;
};

/// Runs images first ... first + n - 1, and says whether each has its own answer.
class Client {
 public:
  Client(const InferenceNetwork& network, const Answers& answers)
      : context_(network),
        answers_(answers),
        pixels_(all_images.count()),
        logits_(image_count * 10) {
    pixels_.set(answers.images, stream_.get());
  }

  void enqueue(std::int64_t first, std::int64_t n) {
    const std::int64_t image = all_images.count() / image_count;
    context_.run({{n, 3, 12, 12}}, pixels_.data() + first * image, logits_.data(), stream_.get());
  }
  bool right(std::int64_t first, std::int64_t n) {
    const std::vector<float> got = logits_.get(stream_.get());
    for (std::int64_t i = 0; i < n; ++i)
      if (!same_bits({got.begin() + i * 10, got.begin() + (i + 1) * 10},
                     answers_.logits[size(first + i)]))
        return false;
    return true;
  }
  InferenceContext& context() { return context_; }
  cudaStream_t stream() const { return stream_.get(); }

 private:
  penstock::Stream stream_;
  InferenceContext context_;
  const Answers& answers_;
  DeviceArray<float> pixels_, logits_;
};

TEST_CASE("contexts: each thread's requests get their own answers") {
  const auto precision = GENERATE(Precision::fp32, Precision::fp16, Precision::int8);
  const Model model = model_in(precision);
  const Answers answers(model);
  const penstock::Stream stream;
  const InferenceNetwork network(model, {.batches = {1, 4}}, stream.get());
  constexpr std::size_t threads = 3;
  std::vector<int> wrong(threads);
  std::vector<std::thread> running;
  for (std::size_t t = 0; t < threads; ++t)
    running.emplace_back([&, t] {
      Client client(network, answers);
      for (std::int64_t step = 0; step < 6; ++step) {
        // Batches of 1 to 4: of a size that is there, and padded ones.
        const auto request =
            static_cast<std::int64_t>(mix(t * 100 + static_cast<std::uint64_t>(step)) >> 1);
        const std::int64_t n = 1 + request % 4, first = request / 4 % (image_count - n + 1);
        client.enqueue(first, n);
        wrong[t] += !client.right(first, n);
      }
    });
  for (std::thread& thread : running) thread.join();
  CHECK(wrong == std::vector<int>(threads));
}

TEST_CASE("contexts: a run neither allocates nor waits, at any batch size") {
  const auto precision = GENERATE(Precision::fp32, Precision::int8);
  const Model model = model_in(precision);
  const Answers answers(model);
  const penstock::Stream stream;
  const InferenceNetwork network(model, {.batches = {2, 5}}, stream.get());
  Client client(network, answers);
  client.context().warm_up(client.stream());
  penstock::emulation::reset_counters();
  for (const std::int64_t n : {5, 1, 2, 4, 3}) client.enqueue(0, n);
  const penstock::emulation::CallClasses calls = penstock::emulation::call_classes();
  CHECK(calls.launching > 0);
  CHECK(calls.allocating == 0);
  CHECK(calls.creating == 0);
  CHECK(calls.blocking == 0);
  CHECK(client.right(0, 3));
}

TEST_CASE("contexts: a graph of a run gives the answers of whatever images are there") {
  const Model model = model_in(Precision::fp16);
  const Answers answers(model);
  const penstock::Stream stream;
  const InferenceNetwork network(model, {.batches = {4}}, stream.get());
  Client client(network, answers);
  client.context().warm_up(client.stream());
  const std::int64_t image = all_images.count() / image_count;
  DeviceArray<float> pixels(4 * image), logits(40);
  const penstock::test::TestGraph graph = penstock::test::capture(client.stream(), [&] {
    client.context().run({{4, 3, 12, 12}}, pixels.data(), logits.data(), client.stream());
  });
  const penstock::test::TestGraphExec exec(graph);
  for (const std::int64_t first : {0, 8, 3}) {
    const auto begin = answers.images.begin() + first * image;
    pixels.set({begin, begin + 4 * image}, client.stream());
    REQUIRE_CUDA(cudaGraphLaunch(exec, client.stream()));
    const std::vector<float> got = logits.get(client.stream());
    for (std::int64_t i = 0; i < 4; ++i)
      CHECK(same_bits({got.begin() + i * 10, got.begin() + (i + 1) * 10},
                      answers.logits[size(first + i)]));
  }
}

TEST_CASE("contexts: packed input, and uint8 images, are the same as floats") {
  const Model model = model_in(Precision::fp32);
  const penstock::Stream stream;
  const InferenceNetwork network(model, {.batches = {3}}, stream.get());
  InferenceContext context(network);
  const std::int64_t count = 3 * 3 * 12 * 12;
  std::vector<std::uint8_t> bytes;
  std::vector<float> floats;
  for (std::int64_t i = 0; i < count; ++i) {
    bytes.push_back(static_cast<std::uint8_t>(mix(static_cast<std::uint64_t>(i))));
    floats.push_back(static_cast<float>(bytes.back()) * 0.0078125f - 1);
  }
  DeviceArray<std::uint8_t> device_bytes(count);
  DeviceArray<float> device_floats(count), a(30), b(30), c(30);
  device_bytes.set(bytes, stream.get());
  device_floats.set(floats, stream.get());
  ImageInput input{{3, 3, 12, 12}};
  context.run(input, device_floats.data(), a.data(), stream.get());
  input.factor.fill(0.0078125f);
  input.offset.fill(-1);
  context.run(input, device_bytes.data(), b.data(), stream.get());
  context.run_packed(device_floats.data(), 3, c.data(), stream.get());  // nchw, fp32: as it is
  CHECK(same_bits(a.get(stream.get()), b.get(stream.get())));
  CHECK(same_bits(a.get(stream.get()), c.get(stream.get())));
}

}  // namespace
}  // namespace resnet::test
