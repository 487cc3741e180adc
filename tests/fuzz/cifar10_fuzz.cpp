// SPDX-License-Identifier: Apache-2.0

// CIFAR-10's records and class names: a DataError, or labels and names that are in their ranges.

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <string_view>

#include "data/cifar10.hpp"
#include "directory.hpp"
#include "fuzz.hpp"

using penstock::test::require;

namespace {

void look_at_record(const std::array<std::byte, cifar10::record_bytes>& record) {
  std::array<std::uint8_t, cifar10::pixel_bytes> pixels{};
  try {
    const int label = cifar10::label_of(record);
    require(label >= 0 && label < cifar10::classes, "a label is one of ten");
  } catch (const cifar10::DataError&) {
    require(std::to_integer<int>(record[0]) >= cifar10::classes, "good labels are not refused");
  }
  cifar10::decode(record, pixels.data());
  require(pixels[2] == std::to_integer<int>(record[1 + 2 * cifar10::plane_bytes]),
          "the third byte is the first pixel's blue");
}

void look_at_names(std::string_view text) {
  static const penstock::test::Directory directory;
  std::ofstream(directory / cifar10::class_names_name, std::ios::binary) << text;
  try {
    require(cifar10::class_names(directory.path()).size() == cifar10::classes,
            "there are ten names");
  } catch (const cifar10::DataError& error) {
    require(std::string_view(error.what()).size() < 1000, "a message is short");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::array<std::byte, cifar10::record_bytes> record{};
  if (size > 0) std::memcpy(record.data(), data, std::min(size, record.size()));
  look_at_record(record);
  look_at_names({reinterpret_cast<const char*>(data), size});
  return 0;
}
