// SPDX-License-Identifier: Apache-2.0
#pragma once

// Makes a whole data set of JPEG files: a folder for each class, as ImageNet's readers expect it,
// or tar shards, as WebDataset's do.
//
//   picture_set::make("pictures", {.train = 10'000, .validation = 1'000});
//
//   pictures/train/disc/train_00000000.JPEG           or  pictures/train-000000.tar, in which
//   pictures/val/ring/val_00000001.JPEG                   train_00000000.jpg, train_00000000.cls, ...
//   pictures/classes.txt                                  a class on each line, in label order
//
// Or of binary PPM files, which need no decoding: .ppm in place of .JPEG and .jpg.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stdexcept>

#include "pictures.hpp"

namespace picture_set {

struct Options {
  std::uint64_t train = 10'000, validation = 1'000;  ///< pictures
  std::uint64_t pictures_in_shard = 0;               ///< 0: folders
  bool ppm = false;  ///< PPM files, all of them upright and in colour
  pictures::Options pictures;
};

/// Called on the calling thread, about 20 times a second, with the number of pictures that are
/// done, of train + validation. Returning false gives up.
using Progress = std::function<bool(std::uint64_t done)>;

/// What `make` throws when its progress function returned false.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

/// Writes the data set to `directory`, which must not exist: it appears whole or not at all. The
/// pixels depend on `options` alone. Uses all cores. Throws std::invalid_argument for options
/// without sense, std::runtime_error, which names the file, when writing fails.
void make(const std::filesystem::path& directory, const Options& options,
          const Progress& progress = {});

}  // namespace picture_set
