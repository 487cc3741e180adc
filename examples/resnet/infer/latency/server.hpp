// SPDX-License-Identifier: Apache-2.0
#pragma once

// Server: contexts that take batches of requests from a queue and answer them. Each has a host
// thread, a stream, pinned memory, activations, and a graph for each batch size that plans were
// made for: copy of the pixels, inference, copy of the logits. All share the weights.
//
//   Server server(network, input, 2);                         // two contexts
//   server.warm_up();
//   RequestQueue<Request> queue(32, 2ms);
//   Serving serving(server, queue, [&](const Answer& answer) { ... });    // threads start
//   queue.push({.pixels = image, .arrival = Clock::now()});
//   queue.close();
//   serving.finish();                                         // all are answered; throws

#include <penstock/cuda.hpp>
#include <penstock/pinned_pool.hpp>
#include <penstock/step_graph.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "../network.hpp"
#include "request_queue.hpp"

namespace resnet::latency {

struct Request {
  std::uint64_t number = 0;
  std::size_t image = 0;                 ///< of the caller's, to know it by
  const std::uint8_t* pixels = nullptr;  ///< height x width x channel; valid until the answer
  Clock::time_point arrival{};
};

struct Answer {
  const Request& request;
  std::span<const float> logits;  ///< valid during the call
  std::size_t place, batch;       ///< in its batch, and the batch's size
  Clock::time_point at;
};

/// What one thread infers with.
class ServingContext {
 public:
  /// `input`: how images become what the network reads; its extents are those of one image.
  ServingContext(const InferenceNetwork& network, const ImageInput& input);

  /// Runs, captures and runs again every batch size. Waits.
  void warm_up();
  /// Logits of as many images as `batch` has, until the next call. Waits for them. At most the
  /// network's largest batch.
  std::span<const float> infer(std::span<const Request> batch);

 private:
  void queue(std::int64_t size);
  void launch(std::int64_t size);

  const InferenceNetwork& network_;
  ImageInput input_;
  const std::size_t image_bytes_;
  penstock::Stream stream_;
  penstock::PinnedPool pool_;
  penstock::PinnedBlock host_pixels_, host_logits_;
  DeviceArray<std::uint8_t> pixels_;
  DeviceArray<float> logits_;
  InferenceContext context_;
  penstock::StepGraph graphs_;  // by batch size
};

class Server {
 public:
  Server(const InferenceNetwork& network, const ImageInput& input, int contexts);

  void warm_up();
  const InferenceNetwork& network() const { return network_; }
  std::vector<std::unique_ptr<ServingContext>>& contexts() { return contexts_; }

 private:
  const InferenceNetwork& network_;
  std::vector<std::unique_ptr<ServingContext>> contexts_;
};

/// The threads of one run. The queue's batches are not larger than the network's.
class Serving {
 public:
  /// Called for each request, by the threads of the contexts, several at a time.
  using Tell = std::function<void(const Answer&)>;

  /// Server and queue outlive it.
  Serving(Server& server, RequestQueue<Request>& queue, Tell tell);
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;
  /// Closes the queue, and waits as finish() does.
  ~Serving();

  /// A context has failed; no more answers come from it, and the queue is closed.
  bool failed() const;
  /// Once the queue is closed: waits until what was pushed is answered. Throws the first error of a
  /// context, with which it ended.
  void finish();

 private:
  void serve(ServingContext& context);

  RequestQueue<Request>& queue_;
  const Tell tell_;
  mutable std::mutex mutex_;
  std::exception_ptr error_;
  std::vector<std::jthread> threads_;
};

}  // namespace resnet::latency
