// SPDX-License-Identifier: Apache-2.0

#include "server.hpp"

#include <algorithm>
#include <cstring>

#include "../../../common/check.hpp"

namespace resnet::latency {

// ---- ServingContext -----------------------------------------------------------------------------

ServingContext::ServingContext(const InferenceNetwork& network, const ImageInput& input)
    : network_(network),
      input_(input),
      image_bytes_(static_cast<std::size_t>(network.image().count() / network.image().n)),
      pixels_(network.image().count()),
      logits_(network.image().n * network.classes()),
      context_(network) {
  host_pixels_ = pool_.acquire(pixels_.bytes());
  host_logits_ = pool_.acquire(logits_.bytes());
  std::memset(host_pixels_.data(), 0, pixels_.bytes());
}

/// A kernel may be loaded when it runs for the first time, and that must not happen in a capture.
void ServingContext::warm_up() {
  for (const std::int64_t size : network_.batches()) {
    queue(size);
    launch(size);
    launch(size);
  }
  stream_.synchronize();
}

std::span<const float> ServingContext::infer(std::span<const Request> batch) {
  // What lies behind them is of batches before: finite, and read by nobody.
  for (std::size_t i = 0; i < batch.size(); ++i)
    std::memcpy(host_pixels_.data() + i * image_bytes_, batch[i].pixels, image_bytes_);
  launch(network_.batch_for(static_cast<std::int64_t>(batch.size())));
  stream_.synchronize();
  return {reinterpret_cast<const float*>(host_logits_.data()),
          batch.size() * static_cast<std::size_t>(network_.classes())};
}

void ServingContext::launch(std::int64_t size) {
  const std::vector<std::int64_t>& sizes = network_.batches();
  const auto profile = std::lower_bound(sizes.begin(), sizes.end(), size) - sizes.begin();
  graphs_.launch_numbered(static_cast<std::size_t>(profile), stream_.get(), [&] { queue(size); });
}

void ServingContext::queue(std::int64_t size) {
  const auto images = static_cast<std::size_t>(size);
  const auto classes = static_cast<std::size_t>(network_.classes());
  examples::check(cudaMemcpyAsync(pixels_.data(), host_pixels_.data(), images * image_bytes_,
                                  cudaMemcpyHostToDevice, stream_.get()),
                  "cudaMemcpyAsync");
  input_.images = network_.image();
  input_.images.n = size;
  context_.run(input_, pixels_.data(), logits_.data(), stream_.get());
  examples::check(
      cudaMemcpyAsync(host_logits_.data(), logits_.data(), images * classes * sizeof(float),
                      cudaMemcpyDeviceToHost, stream_.get()),
      "cudaMemcpyAsync");
}

// ---- Server -------------------------------------------------------------------------------------

Server::Server(const InferenceNetwork& network, const ImageInput& input, int contexts)
    : network_(network) {
  for (int i = 0; i < contexts; ++i)
    contexts_.push_back(std::make_unique<ServingContext>(network, input));
}

void Server::warm_up() {
  for (const auto& context : contexts_) context->warm_up();
}

// ---- Serving ------------------------------------------------------------------------------------

Serving::Serving(Server& server, RequestQueue<Request>& queue, Tell tell)
    : queue_(queue), tell_(std::move(tell)) {
  for (const auto& context : server.contexts())
    threads_.emplace_back([this, &context] { serve(*context); });
}

Serving::~Serving() {
  queue_.close();
  threads_.clear();
}

void Serving::serve(ServingContext& context) {
  try {
    for (std::vector<Request> batch; queue_.pop(batch);) {
      const std::span<const float> logits = context.infer(batch);
      const Clock::time_point now = Clock::now();
      const std::size_t classes = logits.size() / batch.size();
      for (std::size_t i = 0; i < batch.size(); ++i)
        tell_({batch[i], logits.subspan(i * classes, classes), i, batch.size(), now});
    }
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
    queue_.close();
  }
}

bool Serving::failed() const {
  const std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

void Serving::finish() {
  threads_.clear();
  if (error_) std::rethrow_exception(error_);
}

}  // namespace resnet::latency
