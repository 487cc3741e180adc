// SPDX-License-Identifier: Apache-2.0

#include <array>
#include <penstock/video/clip_source.hpp>

#include "clip_clock.hpp"
#include "staging.hpp"

namespace penstock::inline PENSTOCK_ABI::video {

images::View WholePicture::operator()(std::uint64_t, images::ImageSize picture) const {
  if (output.height < 1 || output.width < 1)
    throw std::invalid_argument("WholePicture: the output is empty");
  return {.region = {0, 0, picture.height, picture.width},
          .step_y = static_cast<double>(picture.height) / output.height,
          .step_x = static_cast<double>(picture.width) / output.width,
          .output = output};
}

namespace detail {

/// Two blocks of page-locked memory, used in turn: times, and then labels.
struct ClipFacts::Memory {
  struct Block {
    PinnedMemory memory;
    std::size_t bytes = 0;
    Event free{cudaEventDisableTiming | cudaEventBlockingSync};  ///< it is copied
  };
  std::array<Block, 2> blocks;
  std::size_t turn = 0;
  std::size_t samples = 0, frames = 0;

  std::size_t bytes_of_times() const { return samples * frames * sizeof(double); }
  std::byte* at(std::size_t byte) const { return blocks[turn].memory.get() + byte; }
  ~Memory() {
    for (const Block& block : blocks) cudaEventSynchronize(block.free.get());
  }
};

ClipFacts::ClipFacts() : memory_(std::make_unique<Memory>()) {}
ClipFacts::ClipFacts(ClipFacts&&) noexcept = default;
ClipFacts& ClipFacts::operator=(ClipFacts&&) noexcept = default;
ClipFacts::~ClipFacts() = default;

void ClipFacts::begin(std::size_t samples, std::size_t frames) {
  memory_->turn = 1 - memory_->turn;
  memory_->samples = samples;
  memory_->frames = frames;
  Memory::Block& block = memory_->blocks[memory_->turn];
  block.free.synchronize();
  const std::size_t needed = memory_->bytes_of_times() + samples * sizeof(std::int32_t);
  if (needed <= block.bytes) return;
  const CaptureModeGuard guard;
  block.memory.reset();
  block.bytes = 0;
  block.memory = pinned_memory(needed);
  block.bytes = needed;
}

std::int32_t& ClipFacts::label(std::size_t row) {
  return *reinterpret_cast<std::int32_t*>(
      memory_->at(memory_->bytes_of_times() + row * sizeof(std::int32_t)));
}

double* ClipFacts::times(std::size_t row) {
  return reinterpret_cast<double*>(memory_->at(row * memory_->frames * sizeof(double)));
}

void ClipFacts::copy(std::int32_t* labels, double* times, cudaStream_t stream) {
  const auto queue = [stream](void* to, const void* from, std::size_t bytes) {
    penstock::detail::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream),
                            "cudaMemcpyAsync", bytes);
  };
  if (memory_->samples == 0) return;
  try {
    queue(times, memory_->at(0), memory_->bytes_of_times());
    queue(labels, memory_->at(memory_->bytes_of_times()), memory_->samples * sizeof(std::int32_t));
    memory_->blocks[memory_->turn].free.record(stream);
  } catch (...) {
    cudaStreamSynchronize(stream);  // Nothing else indicates that the memory is in use.
    throw;
  }
}

Video ClipWorker::video(penstock::detail::FunctionRef<Video()> open) {
  const ClipClock clock(index, ClipStage::index);
  return open();
}

void ClipWorker::tell(ClipTotals& totals) {
  ClipTimes all = reader.times();
  all += index;
  ClipTimes news = all;
  news -= told;
  totals.add(news);
  told = all;
}

void throw_bad_clip(const std::string& file) {
  const std::string what = penstock::detail::what_is_handled();
  std::throw_with_nested(VideoError(what.starts_with(file) ? what : file + ": " + what));
}

}  // namespace detail
}  // namespace penstock::video
