// SPDX-License-Identifier: Apache-2.0

// nvJPEG's hardware backend as a JpegEngine. The library is loaded at run time: a program needs it
// only where there are engines, and one over the emulated runtime never loads it.

#include <penstock/images/jpeg_engine.hpp>

#ifndef PENSTOCK_IMAGES_WITH_NVJPEG

namespace penstock::images {

std::unique_ptr<JpegEngine> make_nvjpeg_engine(const EngineOptions&, std::string& why_not) {
  why_not = "penstock::images was built without nvjpeg.h";
  return nullptr;
}

EngineMemoryStats nvjpeg_memory() {
  return {};
}

}  // namespace penstock::images

#else

#include <nvjpeg.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <penstock/cuda.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "engine_memory.hpp"
#include "nvjpeg_library.hpp"

namespace penstock::images {
namespace {

/// Statuses of which an image may be the reason.
bool may_be_an_image(nvjpegStatus_t status) {
  switch (status) {
    case NVJPEG_STATUS_BAD_JPEG:
    case NVJPEG_STATUS_JPEG_NOT_SUPPORTED:
    case NVJPEG_STATUS_INCOMPLETE_BITSTREAM:
    case NVJPEG_STATUS_EXECUTION_FAILED:
    case NVJPEG_STATUS_INTERNAL_ERROR:
      return true;
    default:
      return false;
  }
}

void check_nvjpeg(nvjpegStatus_t status, const char* call) {
  if (status != NVJPEG_STATUS_SUCCESS)
    throw std::runtime_error(std::string(call) + ": status " + std::to_string(status) +
                             " (nvjpegStatus_t)");
}

/// A nvjpegHandle_t of one device and what it allocates. Its engines share it; nvJPEG says that any
/// thread may use one.
class Handle {
 public:
  explicit Handle(const NvjpegLibrary& library) : library_(library) {
    nvjpegDevAllocatorV2_t device{&take, &give, &device_memory_};
    nvjpegPinnedAllocatorV2_t pinned{&take, &give, &pinned_memory_};
    const nvjpegStatus_t status = library.nvjpegCreateExV2(NVJPEG_BACKEND_HARDWARE, &device,
                                                           &pinned, NVJPEG_FLAGS_DEFAULT, &handle_);
    if (status == NVJPEG_STATUS_ARCH_MISMATCH ||
        status == NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED)
      return;  // no engines: get() is nullptr
    check_nvjpeg(status, "nvjpegCreateExV2");
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (handle_ != nullptr) library_.nvjpegDestroy(handle_);
  }

  nvjpegHandle_t get() const { return handle_; }
  const NvjpegLibrary& library() const { return library_; }
  EngineMemoryStats memory() const {
    return {device_memory_.allocations(), pinned_memory_.allocations(), device_memory_.bytes(),
            pinned_memory_.bytes()};
  }

 private:
  // Called by nvJPEG, through C.
  static int take(void* memory, void** block, std::size_t bytes, cudaStream_t stream) noexcept {
    try {
      *block = static_cast<EngineMemory*>(memory)->take(bytes, stream);
      return 0;
    } catch (...) {
      return 1;
    }
  }
  static int give(void* memory, void* block, std::size_t, cudaStream_t stream) noexcept {
    return block == nullptr || static_cast<EngineMemory*>(memory)->give(block, stream) ? 0 : 1;
  }

  const NvjpegLibrary& library_;
  EngineMemory device_memory_{EngineMemory::Kind::device};
  EngineMemory pinned_memory_{EngineMemory::Kind::pinned};
  nvjpegHandle_t handle_ = nullptr;
};

/// The handles of all devices, as long as an engine has them.
class Handles {
 public:
  static Handles& instance() {
    static Handles handles;
    return handles;
  }

  std::shared_ptr<Handle> of_current_device(const NvjpegLibrary& library) {
    const std::lock_guard lock(mutex_);
    std::weak_ptr<Handle>& known = handles_[current_device()];
    if (std::shared_ptr<Handle> handle = known.lock()) return handle;
    auto handle = std::make_shared<Handle>(library);
    known = handle;
    return handle;
  }

  EngineMemoryStats memory() {
    const std::lock_guard lock(mutex_);
    EngineMemoryStats sum;
    for (const auto& [device, known] : handles_) {
      const std::shared_ptr<Handle> handle = known.lock();
      if (handle == nullptr) continue;
      const EngineMemoryStats one = handle->memory();
      sum.device_allocations += one.device_allocations;
      sum.pinned_allocations += one.pinned_allocations;
      sum.device_bytes += one.device_bytes;
      sum.pinned_bytes += one.pinned_bytes;
    }
    return sum;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::weak_ptr<Handle>> handles_;
};

class NvjpegEngine final : public JpegEngine {
 public:
  NvjpegEngine(std::shared_ptr<Handle> handle, const EngineOptions& options)
      : handle_(std::move(handle)), library_(handle_->library()) {
    check_nvjpeg(library_.nvjpegJpegStateCreate(handle_->get(), &state_), "nvjpegJpegStateCreate");
    try {
      check_nvjpeg(library_.nvjpegJpegStreamCreate(handle_->get(), &header_),
                   "nvjpegJpegStreamCreate");
      prepare(options);
    } catch (...) {
      destroy();
      throw;
    }
  }
  ~NvjpegEngine() override { destroy(); }

  std::string name() const override { return "nvjpeg"; }

  bool takes(std::span<const std::byte> file) override {
    const CaptureModeGuard guard;
    int is_refused = 1;
    return library_.nvjpegJpegStreamParseHeader(handle_->get(),
                                                reinterpret_cast<const unsigned char*>(file.data()),
                                                file.size(), header_) == NVJPEG_STATUS_SUCCESS &&
           library_.nvjpegDecodeBatchedSupported(handle_->get(), header_, &is_refused) ==
               NVJPEG_STATUS_SUCCESS &&
           is_refused == 0;
  }

  bool decode(std::span<const Image> images, cudaStream_t stream) override {
    const CaptureModeGuard guard;
    files_.clear();
    lengths_.clear();
    outputs_.clear();
    for (const Image& image : images) {
      files_.push_back(reinterpret_cast<const unsigned char*>(image.file.data()));
      lengths_.push_back(image.file.size());
      nvjpegImage_t& output = outputs_.emplace_back();
      output.channel[0] = image.pixels;
      output.pitch[0] = static_cast<std::size_t>(image.stride);
    }
    initialize(static_cast<int>(images.size()));
    const nvjpegStatus_t status = library_.nvjpegDecodeBatched(
        handle_->get(), state_, files_.data(), lengths_.data(), outputs_.data(), stream);
    if (status == NVJPEG_STATUS_SUCCESS) return true;
    if (!may_be_an_image(status)) check_nvjpeg(status, "nvjpegDecodeBatched");
    initialized_ = 0;  // The next batch starts anew.
    return false;
  }

 private:
  /// Allocates what images of this size need, at the sampling that needs most.
  void prepare(const EngineOptions& options) {
    check_nvjpeg(library_.nvjpegDecodeBatchedPreAllocate(handle_->get(), state_, options.batch,
                                                         options.image.width, options.image.height,
                                                         NVJPEG_CSS_444, NVJPEG_OUTPUT_RGBI),
                 "nvjpegDecodeBatchedPreAllocate");
    const auto batch = static_cast<std::size_t>(options.batch);
    files_.reserve(batch);
    lengths_.reserve(batch);
    outputs_.reserve(batch);
    initialize(options.batch);
  }
  void initialize(int batch) {
    if (initialized_ == batch) return;
    constexpr int kThreads = 1;
    check_nvjpeg(library_.nvjpegDecodeBatchedInitialize(handle_->get(), state_, batch, kThreads,
                                                        NVJPEG_OUTPUT_RGBI),
                 "nvjpegDecodeBatchedInitialize");
    initialized_ = batch;
  }
  void destroy() noexcept {
    const CaptureModeGuard guard;
    if (header_ != nullptr) library_.nvjpegJpegStreamDestroy(header_);
    library_.nvjpegJpegStateDestroy(state_);
  }

  std::shared_ptr<Handle> handle_;
  const NvjpegLibrary& library_;
  nvjpegJpegState_t state_ = nullptr;
  nvjpegJpegStream_t header_ = nullptr;
  int initialized_ = 0;
  std::vector<const unsigned char*> files_;
  std::vector<std::size_t> lengths_;
  std::vector<nvjpegImage_t> outputs_;
};

bool is_emulated() {
  cudaDeviceProp properties{};
  penstock::detail::check(cudaGetDeviceProperties(&properties, current_device()),
                          "cudaGetDeviceProperties");
  return std::string_view(properties.name) == "penstock emulated device";
}

}  // namespace

std::unique_ptr<JpegEngine> make_nvjpeg_engine(const EngineOptions& options, std::string& why_not) {
  if (is_emulated()) {
    why_not = "the CUDA runtime is emulated";
    return nullptr;
  }
  const NvjpegLibrary* const library = NvjpegLibrary::load(why_not);
  if (library == nullptr) return nullptr;
  const CaptureModeGuard guard;
  const std::shared_ptr<Handle> handle = Handles::instance().of_current_device(*library);
  if (handle->get() == nullptr) {
    why_not = "this GPU has no JPEG engines that nvJPEG can use";
    return nullptr;
  }
  return std::make_unique<NvjpegEngine>(handle, options);
}

EngineMemoryStats nvjpeg_memory() {
  return Handles::instance().memory();
}

}  // namespace penstock::images

#endif
