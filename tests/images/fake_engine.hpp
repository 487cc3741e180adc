// SPDX-License-Identifier: Apache-2.0
#pragma once

// A JpegEngine over libjpeg that decodes in its stream, as nvJPEG does, and misbehaves where a test
// wants it to.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <penstock/images/jpeg_engine.hpp>
#include <penstock/launch.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "images/jpeg_files.hpp"

namespace penstock::inline PENSTOCK_ABI::images::test {

/// How the engines of one test behave, and what they saw. Shared by all of them.
struct FakeEngines {
  using File = std::span<const std::byte>;
  std::function<bool(File)> takes = [](File) { return true; };
  std::function<bool(File)> decodes = [](File) { return true; };  ///< false: the batch fails
  std::atomic<bool> throws{false};
  std::chrono::milliseconds delay{0};

  std::atomic<int> engines{0}, calls{0}, images{0};
  std::atomic<int> called_while_busy{0};
  std::atomic<std::int64_t> pixels{0};  ///< of the parts that were asked for
};

class FakeEngine final : public JpegEngine {
 public:
  explicit FakeEngine(FakeEngines& all) : all_(all) { ++all_.engines; }

  std::string name() const override { return "fake"; }
  bool takes(std::span<const std::byte> file) override { return all_.takes(file); }

  bool decode(std::span<const Image> images, cudaStream_t stream) override {
    ++all_.calls;
    if (busy_->exchange(true)) ++all_.called_while_busy;
    if (all_.throws) {
      *busy_ = false;
      throw std::runtime_error("the engine is broken");
    }
    bool good = true;
    for (const Image& image : images) {
      good = good && all_.decodes(image.file);
      all_.pixels += std::int64_t{image.part.height} * image.part.width;
    }
    if (all_.delay.count() > 0) std::this_thread::sleep_for(all_.delay);
    const std::vector<Image> batch(images.begin(), images.end());
    try {
      queue(batch, good, stream);
    } catch (...) {
      *busy_ = false;
      throw;
    }
    if (good) all_.images += static_cast<int>(images.size());
    return good;
  }

 private:
  void queue(const std::vector<Image>& batch, bool good, cudaStream_t stream) {
    // Some of them even if the batch fails, and it is busy until then.
    for_each(stream, std::ssize(batch), [batch, good, busy = busy_](std::int64_t i) {
      const bool last = i + 1 == std::ssize(batch);
      if (good || !last) write(batch[static_cast<std::size_t>(i)]);
      if (last) *busy = false;
    });
  }
  static void write(const Image& image) {
    const DecodedFile file = decode_all(Bytes(image.file.begin(), image.file.end()));
    for (std::int64_t y = 0; y < image.part.height; ++y)
      std::memcpy(image.pixels + y * image.stride,
                  file.pixels.data() + 3 * ((image.part.top + y) * file.width + image.part.left),
                  3 * static_cast<std::size_t>(image.part.width));
  }

  FakeEngines& all_;
  // Its work may end after it does.
  std::shared_ptr<std::atomic<bool>> busy_ = std::make_shared<std::atomic<bool>>(false);
};

inline MakeEngine make_fake(FakeEngines& all) {
  return [&all](const EngineOptions&, std::string&) { return std::make_unique<FakeEngine>(all); };
}

}  // namespace penstock::images::test
