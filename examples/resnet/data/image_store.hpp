// SPDX-License-Identifier: Apache-2.0
#pragma once

// ImageStore: the JPEG files of a data set, wherever they are: a folder for each class, tar shards,
// or a packed file.
//
//   const ImageStore images = open_images("imagenet", Split::train);

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <penstock/store.hpp>
#include <span>
#include <string>
#include <vector>

#include "../../common/image_files.hpp"

namespace resnet {

/// A store of penstock's, with labels. Any number of threads may use one.
class ImageStore {
 public:
  /// `classes`: their number; 0: one more than the largest label, for which all labels are read.
  explicit ImageStore(examples::ImageFiles files, std::int32_t classes = 0);

  std::uint64_t size() const;
  /// 0 to classes() - 1. Throws std::invalid_argument, which names the sample, for another label.
  std::int32_t label(std::uint64_t index) const;
  std::int32_t classes() const { return classes_; }
  std::string name(std::uint64_t index) const;
  std::span<const std::byte> read(std::uint64_t index, std::vector<std::byte>& scratch) const;
  void will_need(std::span<const std::uint64_t> indices,
                 std::chrono::steady_clock::time_point due) const noexcept;
  void will_need(std::span<const std::uint64_t> indices) const noexcept { will_need(indices, {}); }

 private:
  std::int32_t any_label(std::uint64_t index) const;

  examples::ImageFiles files_;
  std::int32_t classes_;
};

static_assert(penstock::Store<ImageStore>);

enum class Split { train, validation };

/// Opens the training or the validation part of `path`: a directory with the folders train and val,
/// with shards train-*.tar and val-*.tar, or with train.pack and val.pack; or a URL that ends in a
/// slash, with the folders or the packed files. Of the training part, `path` may also be the folder
/// of classes itself, a tar file or a packed file. Throws std::invalid_argument if there is nothing
/// of it, and what the stores throw.
ImageStore open_images(const std::filesystem::path& path, Split split, std::int32_t classes = 0);

}  // namespace resnet
