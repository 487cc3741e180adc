// SPDX-License-Identifier: Apache-2.0

// Server: contexts with batches of every size, each request answered once and with what its image
// has alone, on whatever schedule; and what becomes of a context that fails.

#include "../../../../../examples/resnet/infer/latency/server.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <penstock/emulation.hpp>
#include <stdexcept>
#include <thread>
#include <vector>

#include "../../../../../examples/resnet/infer/latency/load.hpp"
#include "../../../../support/catch.hpp"
#include "../../matchers.hpp"
#include "../models.hpp"

namespace resnet::latency {
namespace {

namespace emulation = penstock::emulation;
using resnet::test::contains;
using std::chrono::milliseconds;

constexpr std::size_t image_count = 24;
constexpr std::int64_t side = 12;

Model model_in(Precision precision) {
  Model model = test::Unfolded("resnet8", {2, 3, side, side}).folded();
  model.precision = precision;
  return model;
}

ImageInput input_of(const InferenceNetwork& network) {
  return {.images = network.image(),
          .format = Format::nhwc,
          .factor = {1 / 64.f, 1 / 64.f, 1 / 64.f, 0},
          .offset = {-2, -2, -2, 0}};
}

/// Each image's logits, of a network that has no batches but those of one image.
std::vector<std::vector<float>> logits_alone(const Model& model, const Images& images) {
  const penstock::Stream stream;
  const InferenceNetwork network(model, {.batches = {1}}, stream.get());
  ServingContext context(network, input_of(network));
  std::vector<std::vector<float>> all;
  for (std::uint64_t image = 0; image < images.size(); ++image) {
    const Request request = images.request(image, {});
    const std::span<const float> logits = context.infer({&request, 1});
    all.emplace_back(logits.begin(), logits.end());
  }
  return all;
}

/// Counts answers, by request, and those that are not the image's.
struct Checked {
  explicit Checked(const std::vector<std::vector<float>>& wanted, std::size_t requests)
      : alone(wanted), answers(requests) {}

  void operator()(const Answer& answer) {
    const std::vector<float>& wanted = alone[answer.request.image];
    const std::lock_guard lock(mutex);
    ++answers[answer.request.number];
    ++sizes[answer.batch];
    wrong += !std::equal(answer.logits.begin(), answer.logits.end(), wanted.begin(), wanted.end());
  }

  const std::vector<std::vector<float>>& alone;
  std::mutex mutex;
  std::vector<int> answers;
  std::map<std::size_t, int> sizes;
  int wrong = 0;
};

TEST_CASE("server: each request has its own answer, whatever its batch and context",
          "[resnet][latency]") {
  const auto precision = GENERATE(Precision::fp32, Precision::fp16);
  const Model model = model_in(precision);
  const Images images(image_count, side);
  const auto alone = logits_alone(model, images);
  for (std::size_t i = 1; i < alone.size(); ++i) REQUIRE(alone[i] != alone[i - 1]);

  const penstock::Stream stream;
  const InferenceNetwork network(model, {.batches = {1, 2, 5}}, stream.get());
  Server server(network, input_of(network), 3);
  server.warm_up();
  // They are there before anybody takes one: so many batches of five, and one of what is left.
  for (const std::size_t requests : {1UL, 4UL, 23UL, 58UL}) {
    RequestQueue<Request> queue(5, milliseconds(0));
    for (std::uint64_t i = 0; i < requests; ++i) queue.push(images.request(i, Clock::now()));
    Checked checked(alone, requests);
    Serving serving(server, queue, std::ref(checked));
    queue.close();
    serving.finish();
    CHECK(checked.answers == std::vector<int>(requests, 1));
    CHECK(checked.wrong == 0);
    CHECK(checked.sizes[5] == static_cast<int>(requests / 5 * 5));
    if (requests % 5 != 0) CHECK(checked.sizes[requests % 5] == static_cast<int>(requests % 5));
  }
}

TEST_CASE("server: requests that come from several threads", "[resnet][latency]") {
  const Model model = model_in(Precision::fp32);
  const Images images(image_count, side);
  const auto alone = logits_alone(model, images);
  const penstock::Stream stream;
  const InferenceNetwork network(model, {.batches = {1, 4}}, stream.get());
  Server server(network, input_of(network), 2);
  server.warm_up();
  constexpr std::uint64_t each = 60;
  constexpr std::uint64_t senders = 3;
  RequestQueue<Request> queue(4, std::chrono::microseconds(50));
  Checked checked(alone, each * senders);
  Serving serving(server, queue, std::ref(checked));
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t sender = 0; sender < senders; ++sender)
      threads.emplace_back([&, sender] {
        for (std::uint64_t i = 0; i < each; ++i)
          queue.push(images.request(sender * each + i, Clock::now()));
      });
  }
  queue.close();
  serving.finish();
  CHECK(checked.answers == std::vector<int>(each * senders, 1));
  CHECK(checked.wrong == 0);
  CHECK(queue.waiting() == 0);
}

TEST_CASE("server: a batch makes one graph launch, and allocates and creates nothing",
          "[resnet][latency][traffic]") {
  const Model model = model_in(Precision::fp32);
  const Images images(image_count, side);
  const penstock::Stream stream;
  const InferenceNetwork network(model, {.batches = {1, 4}}, stream.get());
  ServingContext context(network, input_of(network));
  context.warm_up();
  const emulation::CallClasses before = emulation::call_classes();
  const std::uint64_t launches = emulation::calls("cudaGraphLaunch");
  for (std::uint64_t i = 0; i < 10; ++i) {
    const Request requests[] = {images.request(i, {}), images.request(i + 1, {})};
    static_cast<void>(context.infer({requests, 1 + i % 2}));
  }
  const emulation::CallClasses after = emulation::call_classes();
  CHECK(emulation::calls("cudaGraphLaunch") == launches + 10);
  CHECK(after.allocating == before.allocating);
  CHECK(after.creating == before.creating);
}

TEST_CASE("server: the error of a context ends the run, and is thrown", "[resnet][latency]") {
  const Model model = model_in(Precision::fp32);
  const Images images(image_count, side);
  const penstock::Stream stream;
  const InferenceNetwork network(model, {.batches = {1, 4}}, stream.get());
  Server server(network, input_of(network), 2);
  server.warm_up();
  RequestQueue<Request> queue(4, milliseconds(0));
  for (std::uint64_t i = 0; i < 40; ++i) queue.push(images.request(i, Clock::now()));
  const auto tell = [](const Answer& answer) {
    if (answer.request.number == 9) throw std::runtime_error("nobody listens");
  };
  {
    Serving serving(server, queue, tell);
    CHECK_THROWS_WITH(serving.finish(), contains("nobody listens"));  // nobody closed the queue
    CHECK(serving.failed());
  }
  // Not an error that every later call returns too: then the other context may be the first to
  // tell.
  emulation::fail_call("cudaGraphLaunch", cudaErrorLaunchOutOfResources, 3);
  CHECK_THROWS_WITH(run(server, images, {.clients = 6, .requests = 100, .max_batch = 4}),
                    contains("cudaGraphLaunch"));
}

}  // namespace
}  // namespace resnet::latency
