// SPDX-License-Identifier: Apache-2.0
#pragma once

// image_source: a source that reads JPEG files from a store. The workers decode the parts that the
// views of the images need.
//
//   namespace images = penstock::images;
//   const penstock::FileFolder files("imagenet/train");
//   const images::OutputFormat format{.size = {224, 224}};
//   penstock::Prefetcher<images::Images<float>, images::DecodedImages> prefetcher{
//       images::decoded_images_layout(256, format.size),             // batch size
//       {.samples = files.size(), .shuffle = true, .seed = 7},
//       images::image_source(files, images::RandomResizedCrop{.output = format.size}),
//       images::resize_images<float>(format)};

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <penstock/error.hpp>
#include <penstock/images/decoded_images.hpp>
#include <penstock/images/image_error.hpp>
#include <penstock/images/jpeg_decoder.hpp>
#include <penstock/images/view.hpp>
#include <penstock/source.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::images {

namespace detail {

/// The requirements of image_source for a store.
template <class Files>
concept ImageFiles = requires(const Files& files, std::uint64_t i, std::vector<std::byte>& memory) {
  { files.read(i, memory) } -> std::convertible_to<std::span<const std::byte>>;
  { files.name(i) } -> std::convertible_to<std::string>;
};

template <class Files>
concept HasLabels = requires(Files& files, std::uint64_t i) {
  files.label(i);
};

/// The state of a worker.
struct ImageWorker {
  RowDecoder decode;
  std::vector<std::byte> file{};
};

}  // namespace detail

/// Returns a per_sample source of DecodedImages. For each sample it reads file `sample.index` of
/// `files`, calls `view(sample.seed, size)` with the image's size, decodes what that View needs
/// (see RowDecoder), and sets the label to files.label(sample.index), or to -1 if the type of
/// `files` has no such member.
///
/// `files` is a Store, or any type with read(i, scratch), name(i) and optionally label(i), all
/// const. All workers use the given object by reference, so it has to outlive the pipeline. `view`
/// is a RandomResizedCrop, a ResizeCenterCrop or any function that returns a View; each worker has
/// its own copy. Its output must be that of the transform. After its largest file and image a
/// worker allocates nothing, unless `files` does.
///
/// A failure is an ImageError whose text begins with files.name(sample.index), with the original
/// exception (of the store, the decoder or `view`) nested. A stop of the pipeline ends the decoding
/// within a few rows.
template <class Files, class ViewOf>
auto image_source(const Files& files, ViewOf view, const JpegOptions& options = {}) {
  static_assert(detail::ImageFiles<Files>,
                "image_source takes a store: read(i, scratch) returns the bytes of file i, and "
                "name(i) what it is called, both const");
  static_assert(detail::HasLabels<const Files> || !detail::HasLabels<Files>,
                "label(i) of the store has to be const: the workers call it at the same time");
  static_assert(std::is_invocable_r_v<View, ViewOf&, std::uint64_t, ImageSize>,
                "the view of image_source is a function of (std::uint64_t sample_seed, "
                "penstock::images::ImageSize image) that returns a penstock::images::View");
  return per_sample(per_worker(
      [options] { return detail::ImageWorker{RowDecoder(options)}; },
      [&files, view = std::move(view)](detail::ImageWorker& worker, const Sample& sample,
                                       DecodedImages& batch, const std::stop_token& stop) mutable {
        try {
          worker.decode(
              files.read(sample.index, worker.file),
              [&](ImageSize size) -> View { return view(sample.seed, size); }, sample.row, batch,
              stop);
          if constexpr (detail::HasLabels<const Files>)
            batch.labels(sample.row) = static_cast<std::int32_t>(files.label(sample.index));
          else
            batch.labels(sample.row) = -1;
        } catch (const DecodeStopped&) {
          throw;
        } catch (...) {
          std::throw_with_nested(ImageError(std::string(files.name(sample.index)) + ": " +
                                            penstock::detail::what_is_handled()));
        }
      }));
}
// clang-format off
/// With a temporary store, the source would keep a dangling reference.
template <class Files, class ViewOf>
auto image_source(const Files&&, ViewOf, const JpegOptions& = {}) = delete;  // the source keeps a reference to the store, which is a temporary here: give it a name
// clang-format on

}  // namespace penstock::images
