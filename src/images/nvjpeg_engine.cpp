// SPDX-License-Identifier: Apache-2.0

// Implements JpegEngine with nvJPEG's hardware backend. The library is loaded at run time: a
// program needs it only if there are engines, and a program over the emulated runtime never loads
// it.

#include <penstock/images/jpeg_engine.hpp>

#ifndef PENSTOCK_IMAGES_WITH_NVJPEG

namespace penstock::inline PENSTOCK_ABI::images {

std::unique_ptr<JpegEngine> make_nvjpeg_engine(const EngineOptions&, std::string& why_not) {
  why_not = "penstock::images was built without nvjpeg.h";
  return nullptr;
}

}  // namespace penstock::images

#else

#include <nvjpeg.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <penstock/cuda.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "nvjpeg_library.hpp"

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

/// The statuses that a bad image may cause.
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

/// A decoder of a nvjpegHandle_t. It keeps two images in flight on each of the GPU's engines, and
/// is busy until its batch is done. It takes a third of a second to create, and has 14 streams,
/// which share the device's connections with the streams of the program.
class State {
 public:
  State(const NvjpegLibrary& library, nvjpegHandle_t handle, const EngineOptions& options)
      : library_(library), handle_(handle) {
    check_nvjpeg(library.nvjpegJpegStateCreate(handle, &state_), "nvjpegJpegStateCreate");
    try {
      // Without this, each image that is larger than all before it frees memory, which waits for
      // all work of the device. Most files are 4:2:0; the memory for 4:4:4 is freed by the first
      // batch.
      check_nvjpeg(
          library.nvjpegDecodeBatchedPreAllocate(handle, state_, options.batch, options.image.width,
                                                 options.image.height, NVJPEG_CSS_420, kOutput),
          "nvjpegDecodeBatchedPreAllocate");
    } catch (...) {
      library.nvjpegJpegStateDestroy(state_);
      throw;
    }
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    cudaEventSynchronize(done_.get());
    library_.nvjpegJpegStateDestroy(state_);
  }

  /// Any thread may call this, one at a time.
  nvjpegStatus_t decode(std::span<const unsigned char* const> files,
                        std::span<const std::size_t> lengths, std::span<nvjpegImage_t> outputs,
                        std::span<nvjpegDecodeParams_t> parts, cudaStream_t stream) {
    done_.synchronize();
    initialize(static_cast<int>(files.size()));
    const nvjpegStatus_t status = library_.nvjpegDecodeBatchedEx(
        handle_, state_, files.data(), lengths.data(), outputs.data(), parts.data(), stream);
    if (status != NVJPEG_STATUS_SUCCESS) initialized_ = 0;  // The next batch initialises again.
    done_.record(stream);
    return status;
  }

  static constexpr nvjpegOutputFormat_t kOutput = NVJPEG_OUTPUT_RGBI;

 private:
  void initialize(int batch) {
    if (initialized_ == batch) return;
    constexpr int kThreads = 1;
    check_nvjpeg(library_.nvjpegDecodeBatchedInitialize(handle_, state_, batch, kThreads, kOutput),
                 "nvjpegDecodeBatchedInitialize");
    initialized_ = batch;
  }

  const NvjpegLibrary& library_;
  const nvjpegHandle_t handle_;
  nvjpegJpegState_t state_ = nullptr;
  Event done_{cudaEventDisableTiming | cudaEventBlockingSync};
  int initialized_ = 0;
};

/// The part that the engines of a device share. nvJPEG says that any thread may use a handle.
class Handle {
 public:
  Handle(const NvjpegLibrary& library, const EngineOptions& options) : library_(library) {
    const nvjpegStatus_t status = library.nvjpegCreateEx(NVJPEG_BACKEND_HARDWARE, nullptr, nullptr,
                                                         NVJPEG_FLAGS_DEFAULT, &handle_);
    if (status == NVJPEG_STATUS_ARCH_MISMATCH ||
        status == NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED)
      return;  // There are no engines, so get() is nullptr.
    check_nvjpeg(status, "nvjpegCreateEx");
    try {
      for (int i = 0; i < options.decoders; ++i)
        states_.push_back(std::make_unique<State>(library, handle_, options));
    } catch (...) {
      states_.clear();
      library_.nvjpegDestroy(handle_);
      throw;
    }
    for (const auto& state : states_) free_.push_back(state.get());
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    const CaptureModeGuard guard;
    states_.clear();
    if (handle_ != nullptr) library_.nvjpegDestroy(handle_);
  }

  nvjpegHandle_t get() const { return handle_; }
  const NvjpegLibrary& library() const { return library_; }

  /// Calls f(state) with the decoder that has been free for the longest time, and waits for one if
  /// necessary. Any thread may call this.
  template <class F>
  nvjpegStatus_t with_state(F&& f) {
    struct Back {
      Handle& handle;
      State* state;
      ~Back() {
        {
          const std::lock_guard lock(handle.mutex_);
          handle.free_.push_back(state);
        }
        handle.returned_.notify_one();
      }
    };
    const Back taken{*this, take()};
    return f(*taken.state);
  }

  /// Returns the handle of the current device. The `options` of the first caller apply.
  static std::shared_ptr<Handle> shared(const NvjpegLibrary& library,
                                        const EngineOptions& options) {
    static std::mutex mutex;
    static std::map<int, std::weak_ptr<Handle>> handles;
    const std::lock_guard lock(mutex);
    std::weak_ptr<Handle>& known = handles[current_device()];
    if (std::shared_ptr<Handle> handle = known.lock()) return handle;
    auto handle = std::make_shared<Handle>(library, options);
    known = handle;
    return handle;
  }

 private:
  State* take() {
    std::unique_lock lock(mutex_);
    returned_.wait(lock, [&] { return !free_.empty(); });
    State* const state = free_.front();
    free_.erase(free_.begin());
    return state;
  }

  const NvjpegLibrary& library_;
  nvjpegHandle_t handle_ = nullptr;
  std::vector<std::unique_ptr<State>> states_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<State*> free_;  // the first has been free for the longest time
};

class NvjpegEngine final : public JpegEngine {
 public:
  NvjpegEngine(std::shared_ptr<Handle> handle, const EngineOptions& options)
      : handle_(std::move(handle)), library_(handle_->library()) {
    const auto batch = static_cast<std::size_t>(options.batch);
    files_.reserve(batch);
    lengths_.reserve(batch);
    outputs_.reserve(batch);
    try {
      check_nvjpeg(library_.nvjpegJpegStreamCreate(handle_->get(), &header_),
                   "nvjpegJpegStreamCreate");
      parts_.reserve(batch);
      while (parts_.size() < batch) add_part();
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
      set_part(parts_[outputs_.size()], image);
      files_.push_back(reinterpret_cast<const unsigned char*>(image.file.data()));
      lengths_.push_back(image.file.size());
      nvjpegImage_t& output = outputs_.emplace_back();
      output.channel[0] = image.pixels;
      output.pitch[0] = static_cast<std::size_t>(image.stride);
    }
    const nvjpegStatus_t status = handle_->with_state(
        [&](State& state) { return state.decode(files_, lengths_, outputs_, parts_, stream); });
    if (status == NVJPEG_STATUS_SUCCESS) return true;
    if (!may_be_an_image(status)) check_nvjpeg(status, "nvjpegDecodeBatched");
    return false;
  }

 private:
  void add_part() {
    nvjpegDecodeParams_t part = nullptr;
    check_nvjpeg(library_.nvjpegDecodeParamsCreate(handle_->get(), &part),
                 "nvjpegDecodeParamsCreate");
    parts_.push_back(part);
    check_nvjpeg(library_.nvjpegDecodeParamsSetOutputFormat(part, State::kOutput),
                 "nvjpegDecodeParamsSetOutputFormat");
  }
  /// The engines decode the whole image; a kernel then converts only this part.
  void set_part(nvjpegDecodeParams_t to, const Image& image) {
    const Region& part = image.part;
    const bool is_all = part == Region{0, 0, image.size.height, image.size.width};
    check_nvjpeg(library_.nvjpegDecodeParamsSetROI(
                     to, part.left, part.top, is_all ? -1 : part.width, is_all ? -1 : part.height),
                 "nvjpegDecodeParamsSetROI");
  }
  void destroy() {
    for (nvjpegDecodeParams_t part : parts_) library_.nvjpegDecodeParamsDestroy(part);
    if (header_ != nullptr) library_.nvjpegJpegStreamDestroy(header_);
  }

  std::shared_ptr<Handle> handle_;
  const NvjpegLibrary& library_;
  nvjpegJpegStream_t header_ = nullptr;
  std::vector<const unsigned char*> files_;
  std::vector<std::size_t> lengths_;
  std::vector<nvjpegImage_t> outputs_;
  std::vector<nvjpegDecodeParams_t> parts_;
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
  const std::shared_ptr<Handle> handle = Handle::shared(*library, options);
  if (handle->get() == nullptr) {
    why_not = "this GPU has no JPEG engines that nvJPEG can use";
    return nullptr;
  }
  return std::make_unique<NvjpegEngine>(handle, options);
}

}  // namespace penstock::images

#endif
