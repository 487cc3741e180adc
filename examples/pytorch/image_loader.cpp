// SPDX-License-Identifier: Apache-2.0

#include "image_loader.hpp"

#include <chrono>
#include <cstddef>
#include <penstock/images/crop.hpp>
#include <penstock/source.hpp>
#include <stdexcept>
#include <utility>

namespace loader {
namespace {

namespace images = penstock::images;
using namespace std::chrono_literals;

/// Decodes what a crop needs of each file. Each worker has a decoder and memory of its own.
auto make_source(const penstock::FileFolder& files, const Options& options) {
  const images::ImageSize output{options.size, options.size};
  const images::ResizeCenterCrop centre{.resize = options.size * 8 / 7, .output = output};
  return penstock::per_sample(penstock::per_worker(
      [files, train = options.train, crop = images::RandomResizedCrop{.output = output}, centre] {
        return [=, decode = images::RowDecoder(), scratch = std::vector<std::byte>()](
                   const penstock::Sample& sample, images::DecodedImages& batch) mutable {
          const auto view = [&](images::ImageSize size) {
            return train ? images::RandomHorizontalFlip{}(sample.seed, crop(sample.seed, size))
                         : centre(size);
          };
          const auto file = files.read(sample.index, scratch);
          try {
            decode(file, view, sample.row, batch);
          } catch (const std::exception& error) {
            throw std::runtime_error(files.name(sample.index) + ": " + error.what());
          }
          batch.labels(sample.row) = files.label(sample.index);
        };
      }));
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
      make_source(files_, options),
      images::resize_images<float>(options.batch_size, make_format(options)),
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
