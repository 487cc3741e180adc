// SPDX-License-Identifier: Apache-2.0
#pragma once

// clip_source: a source that reads clips of video files into batches in device memory.
//
//   namespace video = penstock::video;
//   const video::VideoFiles files(paths, labels);
//   const penstock::images::OutputFormat format{.size = {112, 112}};
//   penstock::Prefetcher<video::Clips<float>> prefetcher{
//       video::clips_layout<float>(8, 16, format),            // 8 clips of 16 frames
//       {.samples = files.size(), .shuffle = true, .seed = 7},
//       video::clip_source<float>(files, video::RandomClip{.frames = 16, .stride = 2},
//                                 penstock::images::RandomResizedCrop{.output = format.size}, format)};

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <penstock/detail/function_ref.hpp>
#include <penstock/error.hpp>
#include <penstock/images/image_error.hpp>
#include <penstock/images/resize_batch.hpp>
#include <penstock/images/view.hpp>
#include <penstock/layout.hpp>
#include <penstock/source.hpp>
#include <penstock/tensor.hpp>
#include <penstock/video/clip.hpp>
#include <penstock/video/clip_reader.hpp>
#include <penstock/video/video_error.hpp>
#include <penstock/video/video_files.hpp>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::video {

/// A batch of clips in device memory.
template <images::OutputElement T>
struct Clips {
  Tensor<T, 5> pixels;  ///< (samples, frames, height, width, channels), or (..., channels, ...)
  Tensor<std::int32_t, 1> labels;  ///< (samples): of the files; -1: none, or a bad clip
  Tensor<double, 2> times;         ///< (samples, frames): seconds from the file's first frame
};

/// The layout of batches of clips of `frames` outputs of `format`. Throws std::invalid_argument for
/// a format that convert_frames cannot write.
template <images::OutputElement T>
Layout<Clips<T>> clips_layout(std::int64_t batch_size, std::int64_t frames,
                              const images::OutputFormat& format) {
  images::detail::check_format<T>(format);
  const int height = format.size.height, width = format.size.width, channels = format.channels;
  const bool nhwc = format.order == images::PixelOrder::nhwc;
  Layout<Clips<T>> layout(batch_size);
  layout.field(&Clips<T>::pixels,
               {frames, nhwc ? height : channels, nhwc ? width : height, nhwc ? channels : width});
  layout.field(&Clips<T>::labels, {});
  layout.field(&Clips<T>::times, {frames});
  return layout;
}

/// A clip that could not be read.
struct BadClip {
  std::uint64_t sample = 0;            ///< number of the sample
  std::uint64_t epoch = 0, batch = 0;  ///< where it was read
  std::string what;                    ///< names the file, and the frame and its time
};

/// The settings of clip_source.
struct ClipSourceOptions {
  std::uint64_t clips_per_file = 1;  ///< sample s is clip s % clips_per_file of a file
  ClipReaderOptions reader{};        ///< how clips are decoded
  /// What is done with a clip that cannot be read. Not set: the batch fails, and a FailurePolicy
  /// decides. Set: the clip becomes zeros with the label -1, and this is called, by any worker.
  std::function<void(const BadClip&)> on_bad_clip = {};
  /// Each worker adds here what it has done for a batch; nullptr: nowhere. It outlives the
  /// pipeline.
  ClipTotals* totals = nullptr;
};

/// The view that resizes the whole picture to one size, whatever its proportions are.
struct WholePicture {
  images::ImageSize output{224, 224};  ///< size of the output in pixels

  /// The view of a picture; the seed is ignored.
  images::View operator()(std::uint64_t seed, images::ImageSize picture) const;
};

namespace detail {

/// The requirements of clip_source for its files.
template <class Files>
concept ClipFiles = requires(const Files& files, std::uint64_t i) {
  { files.video(i) } -> std::convertible_to<Video>;
  { files.name(i) } -> std::convertible_to<std::string>;
  { files.label(i) } -> std::convertible_to<std::int32_t>;
};

/// The labels and times of a batch, on their way to the device.
class ClipFacts {
 public:
  ClipFacts();
  ClipFacts(ClipFacts&&) noexcept;
  ClipFacts& operator=(ClipFacts&&) noexcept;
  ~ClipFacts();  ///< waits for its copies

  /// Begins a batch. Waits until the memory of the batch before the last one is copied.
  void begin(std::size_t samples, std::size_t frames);
  std::int32_t& label(std::size_t row);
  double* times(std::size_t row);
  /// Queues the copies to the fields of the batch.
  void copy(std::int32_t* labels, double* times, cudaStream_t stream);

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

/// The state of a worker.
struct ClipWorker {
  explicit ClipWorker(const ClipReaderOptions& options) : reader(options) {}

  /// Returns what `open` returns, which loads or makes an index, and measures it.
  Video video(penstock::detail::FunctionRef<Video()> open);
  /// Adds what was done since the last call.
  void tell(ClipTotals& totals);

  ClipReader reader;
  ClipFacts facts;
  std::vector<std::uint64_t> frames;
  ClipTimes index{}, told{};  ///< of the indexes; what was added to the totals
};

/// Throws a VideoError that names the file, with the exception that is being handled nested.
[[noreturn]] void throw_bad_clip(const std::string& file);

/// Reads the clips of a batch.
template <class T, class Files, class Choose, class ViewOf>
struct ReadClips {
  const Files* files;
  Choose choose;
  ViewOf view;
  images::OutputFormat format;
  ClipSourceOptions options;

  void operator()(ClipWorker& worker, const Ticket& ticket, Clips<T>& batch, cudaStream_t stream,
                  const std::stop_token& stop) {
    const std::size_t samples = ticket.samples.size();
    const auto frames = static_cast<std::size_t>(batch.pixels.extent(1));
    worker.facts.begin(samples, frames);
    for (std::size_t row = 0; row < samples; ++row) try {
        read(worker, ticket, row, batch, stream, stop);
      } catch (const VideoError& error) {
        if (!options.on_bad_clip) throw;
        clear(worker, row, batch, stream);
        options.on_bad_clip({ticket.samples[row], ticket.epoch, ticket.batch, error.what()});
      }
    worker.facts.copy(batch.labels.data_handle(), batch.times.data_handle(), stream);
    if (options.totals != nullptr) worker.tell(*options.totals);
  }

 private:
  T* pixels_of(const Clips<T>& batch, std::size_t row) const {
    return batch.pixels.data_handle() +
           static_cast<std::int64_t>(row) * batch.pixels.extent(1) * format.values();
  }

  void read(ClipWorker& worker, const Ticket& ticket, std::size_t row, const Clips<T>& batch,
            cudaStream_t stream, const std::stop_token& stop) {
    const std::uint64_t sample = ticket.samples[row], file = sample / options.clips_per_file;
    const std::uint64_t seed = ticket.sample_seed(row);
    try {
      const Video video = worker.video([&] { return files->video(file); });
      choose(ClipChoice{seed, sample % options.clips_per_file, options.clips_per_file},
             *video.index, worker.frames);
      if (static_cast<std::int64_t>(worker.frames.size()) != batch.pixels.extent(1))
        throw std::invalid_argument(
            "clip_source: a clip has " + std::to_string(worker.frames.size()) +
            " frames, and the layout of the batch " + std::to_string(batch.pixels.extent(1)));
      const images::View part = view(seed, video.index->stream().display());
      worker.reader.read(video, worker.frames, part, format, pixels_of(batch, row), stream, stop);
      worker.facts.label(row) = static_cast<std::int32_t>(files->label(file));
      for (std::size_t k = 0; k < worker.frames.size(); ++k)
        worker.facts.times(row)[k] = video.index->time(worker.frames[k]);
    } catch (const VideoError&) {
      throw_bad_clip(files->name(file));
    }
  }

  void clear(ClipWorker& worker, std::size_t row, const Clips<T>& batch, cudaStream_t stream) {
    const auto frames = static_cast<std::size_t>(batch.pixels.extent(1));
    const std::size_t bytes = frames * static_cast<std::size_t>(format.values()) * sizeof(T);
    penstock::detail::check(cudaMemsetAsync(pixels_of(batch, row), 0, bytes, stream),
                            "cudaMemsetAsync", bytes);
    worker.facts.label(row) = -1;
    for (std::size_t k = 0; k < frames; ++k) worker.facts.times(row)[k] = 0;
  }
};

}  // namespace detail

/// Returns an on_device source of Clips<T>. For sample s, it takes clip s % clips_per_file of file
/// s / clips_per_file: `choose(ClipChoice, const FrameIndex&, std::vector<std::uint64_t>& frames)`
/// sets the numbers of its frames, and `view(seed, size)` returns the View of the displayed
/// pictures, one for all frames of a clip. So the sampler needs files.size() * clips_per_file
/// samples. The frames are decoded on the worker's thread.
///
/// `choose` is a RandomClip, a DenseClips, a UniformFrames, or any such function; `view` is a
/// WholePicture, a crop of penstock::images, or any such function; each worker has copies of both.
/// `files` is a VideoFiles, or any type with video(i), name(i) and label(i), all const. All workers
/// use the given object by reference, so it has to outlive the pipeline. The layout of the batch
/// has to be that of clips_layout with this format.
///
/// A failure is a VideoError whose text names the file, and the frame and its time, see
/// ClipSourceOptions::on_bad_clip. A stop of the pipeline ends the decoding within a frame.
template <images::OutputElement T, class Files, class Choose, class ViewOf>
auto clip_source(const Files& files, Choose choose, ViewOf view, const images::OutputFormat& format,
                 const ClipSourceOptions& options = {}) {
  static_assert(
      detail::ClipFiles<Files>,
      "clip_source takes a VideoFiles, or a type with video(i), name(i) and label(i), all "
      "const");
  static_assert(std::is_invocable_v<Choose&, const ClipChoice&, const FrameIndex&,
                                    std::vector<std::uint64_t>&>,
                "the choice of clip_source is a function of (const penstock::video::ClipChoice&, "
                "const penstock::video::FrameIndex&, std::vector<std::uint64_t>& frames)");
  static_assert(std::is_invocable_r_v<images::View, ViewOf&, std::uint64_t, images::ImageSize>,
                "the view of clip_source is a function of (std::uint64_t seed, "
                "penstock::images::ImageSize picture) that returns a penstock::images::View");
  if (options.clips_per_file < 1)
    throw std::invalid_argument("clip_source: clips_per_file is 0: it must be at least 1");
  images::detail::check_format<T>(format);
  using Read = detail::ReadClips<T, Files, Choose, ViewOf>;
  return on_device(per_worker([reader = options.reader] { return detail::ClipWorker(reader); },
                              Read{&files, std::move(choose), std::move(view), format, options}));
}
// clang-format off
/// With temporary files, the source would keep a dangling reference.
template <images::OutputElement T, class Files, class Choose, class ViewOf>
auto clip_source(const Files&&, Choose, ViewOf, const images::OutputFormat&, const ClipSourceOptions& = {}) = delete;  // the source keeps a reference to the files, which are a temporary here: give them a name
// clang-format on

}  // namespace penstock::video
