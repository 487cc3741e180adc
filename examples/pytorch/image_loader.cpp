// SPDX-License-Identifier: Apache-2.0

#include "image_loader.hpp"

#include <chrono>
#include <cstdint>
#include <penstock/images/crop.hpp>
#include <penstock/images/image_source.hpp>
#include <stdexcept>
#include <utility>

namespace loader {
namespace {

namespace images = penstock::images;
using namespace std::chrono_literals;

/// What becomes of an image: a random crop, maybe mirrored, or the centre.
auto make_view(const Options& options) {
  const images::ImageSize output{options.size, options.size};
  return [train = options.train, crop = images::RandomResizedCrop{.output = output},
          centre = images::ResizeCenterCrop{.resize = options.size * 8 / 7, .output = output}](
             std::uint64_t seed, images::ImageSize image) {
    return train ? images::RandomHorizontalFlip{}(seed, crop(seed, image)) : centre(image);
  };
}

/// torchvision's normalisation.
images::OutputFormat make_format(const Options& options) {
  return {.size = {options.size, options.size},
          .mean = {0.485f, 0.456f, 0.406f},
          .standard_deviation = {0.229f, 0.224f, 0.225f}};
}

}  // namespace

ImageLoader::ImageLoader(const Options& options)
    : options_(options),
      device_(on_cpu
                  ? penstock::dlpack::Device{penstock::dlpack::DeviceType::cpu, 0}
                  : penstock::dlpack::Device{penstock::dlpack::DeviceType::cuda, options.device}),
      files_(options.folder, {".jpg", ".jpeg"}),
      sampler_({.samples = files_.size(),
                .batch_size = options.batch_size,
                .shuffle = options.train,
                .seed = options.seed,
                .drop_last = options.train}) {
  const penstock::DeviceGuard guard(options.device);
  stream_ = std::make_shared<penstock::Stream>();
  prefetcher_.emplace(
      images::decoded_images_layout(options.batch_size, {options.size, options.size}), sampler_,
      images::image_source(files_, make_view(options)),
      images::resize_images<float>(make_format(options)),
      penstock::PrefetcherOptions{.workers = options.workers,
                                  .device_depth = options.device_depth,
                                  .epochs = options.epochs,
                                  .stall_timeout = 100ms,
                                  .read_ahead = penstock::read_ahead(files_, 4)});
}

std::optional<Batch> ImageLoader::next(const std::function<void()>& while_waiting) {
  const std::lock_guard lock(mutex_);
  if (!prefetcher_) throw std::runtime_error("the loader is closed");
  if (const std::uint64_t epoch = prefetcher_->state().epoch; epoch != epoch_) {
    epoch_ = epoch;
    return std::nullopt;
  }
  penstock::Lease<Crops> lease = wait_for_batch(while_waiting);
  if (!lease) return std::nullopt;
  if (on_cpu) stream_->synchronize();
  return Batch(std::move(lease), device_, stream_);
}

/// next() of the prefetcher, in waits that are short: a StallError takes no batch.
penstock::Lease<Crops> ImageLoader::wait_for_batch(const std::function<void()>& while_waiting) {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    try {
      return prefetcher_->next(stream_->get());
    } catch (const penstock::StallError& error) {
      while_waiting();
      if (closing_) throw std::runtime_error("the loader was closed");
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
      if (waited.count() > options_.stall_seconds)
        throw std::runtime_error(std::string(error.what()) + "; for " +
                                 std::to_string(waited.count()) + " s in all");
    }
  }
}

void ImageLoader::close() {
  closing_ = true;
  const std::lock_guard lock(mutex_);
  prefetcher_.reset();
}

}  // namespace loader
