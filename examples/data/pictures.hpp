// SPDX-License-Identifier: Apache-2.0
#pragma once

// Pictures for data sets of JPEG files: ten forms (forms.hpp) in up to 100 colours over a
// background whose power falls with the square of the frequency, as that of photographs does. So
// they compress like photographs, and a network can learn their classes.
//
//   const pictures::Options options{.classes = 10};
//   const pictures::Look look = pictures::look(options, pictures::Split::train, index);
//   const pictures::Picture picture = pictures::paint(options, pictures::Split::train, index);
//
// Everything is a pure function of (options, split, index). Pixels are computed in integers: the
// same on every machine, whichever thread paints them.

#include <cstdint>
#include <string>
#include <vector>

#include "jpeg_writer.hpp"

namespace pictures {

using jpeg_writer::Picture;

enum class Split : std::uint64_t { train = 0, validation = 1 };

struct Options {
  std::uint64_t seed = 1;
  int classes = 10;           ///< 1 to 1000
  int quality = 88;           ///< of the JPEG files
  int width = 0, height = 0;  ///< of all pictures; 0: sizes vary
  bool plain = false;         ///< only baseline files of 4:2:0, upright: what hardware decodes
};

/// Size and format of a picture. Sizes: half of them 500 x 375, as in ImageNet, the others between
/// 120 and 2,000 pixels, upright ones too. Formats: 3 % progressive, 2 % grey, 1 % in inks (CMYK),
/// 2 % turned, with the EXIF tag that says so; 15 % with more colour than 4:2:0.
struct Look {
  std::int32_t width, height;  ///< upright
  jpeg_writer::Format format;
};
Look look(const Options& options, Split split, std::uint64_t index);

/// Index modulo the number of classes.
int label(const Options& options, std::uint64_t index);

/// The name of a class, such as "disc_03": its form, and the number of its colour.
std::string class_name(const Options& options, int label);

/// The picture, upright.
Picture paint(const Options& options, Split split, std::uint64_t index);

}  // namespace pictures
