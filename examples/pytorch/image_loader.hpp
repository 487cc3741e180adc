// SPDX-License-Identifier: Apache-2.0
#pragma once

// ImageLoader: JPEG files in folders to batches of normalised crops, as leases that tensors of
// other libraries share. It knows nothing of Python: module.cpp shows it there.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/dlpack.hpp>
#include <penstock/file_folder.hpp>
#include <penstock/images/decoded_images.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/sampler.hpp>
#include <string>
#include <vector>

namespace loader {

/// Over the emulated runtime, device memory is the CPU's, and a CPU's tensors are never behind a
/// stream: next() waits until the batch is there.
#ifdef PENSTOCK_LOADER_ON_CPU
inline constexpr bool on_cpu = true;
#else
inline constexpr bool on_cpu = false;
#endif

/// (samples, height, width, 3) floats, and labels.
using Crops = penstock::images::Images<float>;
using Batch = penstock::dlpack::SharedLease<Crops>;

struct Options {
  std::filesystem::path folder;  ///< a directory for each class
  std::int64_t batch_size = 256;
  std::int32_t size = 224;  ///< height and width of a crop
  int workers = penstock::PrefetcherOptions{}.workers;
  std::uint64_t epochs = 1;
  std::uint64_t seed = 0;
  bool train = true;  ///< shuffled random crops, flips, whole batches; or all centres, in order
  int device = 0;
  /// Batches on the device. A loop in Python still has one batch when it asks for the next.
  std::size_t device_depth = 3;
  double stall_seconds = 300;  ///< next() gives up after this wait
};

/// Any thread may call any member.
class ImageLoader {
 public:
  explicit ImageLoader(const Options& options);

  /// The next batch; nothing at the end of each epoch. While it waits, it calls `while_waiting` ten
  /// times a second, which may throw.
  std::optional<Batch> next(const std::function<void()>& while_waiting);
  /// Ends the pipeline; batches that are held stay valid. A next() on another thread throws.
  void close();

  std::uint64_t batches() const noexcept { return sampler_.batches(); }  ///< of an epoch
  const std::vector<std::string>& classes() const noexcept { return files_.classes(); }
  penstock::dlpack::Device device() const noexcept { return device_; }

 private:
  using Prefetcher = penstock::Prefetcher<Crops, penstock::images::DecodedImages>;

  penstock::Lease<Crops> wait_for_batch(const std::function<void()>& while_waiting);

  const Options options_;
  const penstock::dlpack::Device device_;
  const penstock::FileFolder files_;
  const penstock::Sampler sampler_;
  std::atomic<bool> closing_{false};
  std::mutex mutex_;                          // over what follows
  std::shared_ptr<penstock::Stream> stream_;  // shared with the batches, whose leases end on it
  std::optional<Prefetcher> prefetcher_;
  std::uint64_t epoch_ = 0;  // that next() is in
};

}  // namespace loader
