// SPDX-License-Identifier: Apache-2.0

// Records to images: crop, flip, resize, normalise, pack.

#include "../../../../examples/resnet/data/input.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <set>
#include <tuple>
#include <vector>

#include "../../../../examples/data/cifar10.hpp"
#include "../../../../examples/resnet/data/augment.hpp"
#include "../../../../examples/resnet/data/image_writer.hpp"
#include "../../../../examples/resnet/ops/reference/rounding.hpp"
#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/temporary_directory.hpp"

namespace resnet {
namespace {

using namespace penstock::test;

constexpr std::uint64_t kRecords = 6;

/// A label and pixels that tell channel, row and column apart.
std::vector<std::uint8_t> record_of(std::uint64_t number) {
  std::vector<std::uint8_t> record(cifar10::record_bytes);
  record[0] = static_cast<std::uint8_t>(number % cifar10::classes);
  for (std::size_t i = 1; i < record.size(); ++i)
    record[i] = static_cast<std::uint8_t>((i * 37 + number * 101) % 256);
  return record;
}

float raw(const std::vector<std::uint8_t>& record, int c, int y, int x) {
  const int at = 1 + (c * 32 + y) * 32 + x;
  return record[static_cast<std::size_t>(at)];
}

float normalised(float value, int c) {
  return (value - detail::mean_of(c)) * detail::inverse_deviation_of(c);
}

TEST_CASE("an image as it is, is its pixels, normalised", "[resnet][input]") {
  const auto record = record_of(3);
  for (int c = 0; c < 3; ++c)
    for (int y : {0, 13, 31})
      for (int x : {0, 7, 31})
        CHECK(normalised_pixel(record.data(), {}, 32, c, y, x) ==
              normalised(raw(record, c, y, x), c));
}

TEST_CASE("a crop moves the image and leaves black behind; a flip mirrors it", "[resnet][input]") {
  const auto record = record_of(1);
  const View crop{.dx = 3, .dy = -2};
  CHECK(normalised_pixel(record.data(), crop, 32, 1, 10, 5) == normalised(raw(record, 1, 8, 8), 1));
  CHECK(normalised_pixel(record.data(), crop, 32, 1, 1, 5) == normalised(0, 1));
  CHECK(normalised_pixel(record.data(), crop, 32, 1, 5, 29) == normalised(0, 1));
  const View flip{.dx = 1, .dy = 0, .flip = true};
  CHECK(normalised_pixel(record.data(), flip, 32, 2, 4, 10) ==
        normalised(raw(record, 2, 4, 31 - 10 + 1), 2));
}

TEST_CASE("resizing interpolates between the centres of pixels", "[resnet][input]") {
  const auto record = record_of(2);
  // 64: output 5 lies at 5.5 / 2 - 0.5 = 2.25.
  const auto value = normalised_pixel(record.data(), {}, 64, 0, 5, 5);
  const auto row = [&](int y) {
    return 0.75f * raw(record, 0, y, 2) + 0.25f * raw(record, 0, y, 3);
  };
  CHECK(value == Approx(normalised(0.75f * row(2) + 0.25f * row(3), 0)).margin(1e-5));
  // The edges are the edges' pixels.
  CHECK(normalised_pixel(record.data(), {}, 64, 0, 0, 0) == normalised(raw(record, 0, 0, 0), 0));
  CHECK(normalised_pixel(record.data(), {}, 64, 0, 63, 63) ==
        normalised(raw(record, 0, 31, 31), 0));
  // A constant image stays constant at any size.
  std::vector<std::uint8_t> flat(cifar10::record_bytes, 200);
  for (int size : {8, 20, 33, 224})
    CHECK(normalised_pixel(flat.data(), {}, size, 1, size / 3, size - 1) == normalised(200, 1));
}

TEST_CASE("views are a pure function of seed, epoch and sample, and all there are come",
          "[resnet][input]") {
  const auto key = [](const View& view) { return std::tuple(view.dx, view.dy, view.flip); };
  std::set<std::tuple<int, int, bool>> all;
  int flips = 0;
  for (std::uint64_t sample = 0; sample < 4000; ++sample) {
    const View view = random_view(7, 2, sample);
    CHECK(key(view) == key(random_view(7, 2, sample)));
    all.insert(key(view));
    flips += view.flip;
    REQUIRE(std::max(std::abs(view.dx), std::abs(view.dy)) <= crop_margin);
  }
  CHECK(all.size() == 9 * 9 * 2);
  CHECK(std::abs(flips - 2000) < 200);
  int same = 0;
  for (std::uint64_t sample = 0; sample < 1000; ++sample)
    same += key(random_view(7, 2, sample)) == key(random_view(7, 3, sample));
  CHECK(same < 30);
}

/// All there are in a coarser grid, with the farthest to each side.
std::vector<View> many_views() {
  std::vector<View> views;
  for (std::int32_t dy : {-crop_margin, -1, 0, 3, crop_margin})
    for (std::int32_t dx : {-crop_margin, -3, 0, 1, crop_margin})
      for (bool flip : {false, true}) views.push_back({.dx = dx, .dy = dy, .flip = flip});
  return views;
}

/// What ImageWriter is to write, by the definition.
std::vector<float> image_by_pixel(const std::uint8_t* record, const View& view, std::int32_t size) {
  std::vector<float> image;
  for (std::int32_t c = 0; c < 3; ++c)
    for (std::int32_t y = 0; y < size; ++y)
      for (std::int32_t x = 0; x < size; ++x)
        image.push_back(normalised_pixel(record, view, size, c, y, x));
  return image;
}

TEST_CASE("a whole image is, bit for bit, its pixels one by one", "[resnet][input]") {
  const std::int32_t size = GENERATE(1, 8, 31, 32, 33, 64, 128, 224, 225);
  const auto record = record_of(5);
  const ImageWriter write(size);
  constexpr float kUntouched = -1e9f;
  for (const View& view : many_views()) {
    const std::vector<float> expected = image_by_pixel(record.data(), view, size);
    std::vector<float> image(expected.size() + 1, kUntouched);
    CHECK(write(record.data(), view, image.data()) == &image.back());
    CAPTURE(size, view.dx, view.dy, view.flip);
    CHECK(std::memcmp(image.data(), expected.data(), expected.size() * sizeof(float)) == 0);
    CHECK(image.back() == kUntouched);
  }
}

class DataSet {
 public:
  DataSet() {
    std::ofstream file(directory_ / "records", std::ios::binary);
    for (std::uint64_t number = 0; number < kRecords; ++number) {
      const auto record = record_of(number);
      file.write(reinterpret_cast<const char*>(record.data()),
                 static_cast<std::streamsize>(record.size()));
    }
  }
  penstock::RecordFile open() const {
    return penstock::RecordFile({directory_ / "records"}, cifar10::record_bytes);
  }

 private:
  TemporaryDirectory directory_;
};

TEST_CASE("images made on the CPU and records decoded on the device are the same",
          "[resnet][input]") {
  const DataSet data;
  const penstock::RecordFile records = data.open();
  const std::int32_t size = GENERATE(8, 32, 40, 225);
  const auto format = GENERATE(Format::nchw, Format::nhwc);
  const std::int64_t channels = GENERATE(3, 4);
  const std::vector<std::uint64_t> samples = {4, 0, 5};
  const Augmentation augmentation{.seed = 9, .size = size};
  const penstock::Ticket ticket{.epoch = 6, .samples = samples};
  const InputFormat input{{4, channels, size, size}, Precision::fp32, format};
  const auto numbers = static_cast<std::size_t>(3 * channels * size * size);

  const auto images_in = images_layout(4, size);
  const PinnedMemory<std::byte> images_block(images_in.bytes());
  const auto records_in = records_layout(4);
  const PinnedMemory<std::byte> records_block(records_in.bytes());
  const PinnedMemory<float> from_images(numbers), from_records(numbers);
  const PinnedMemory<std::int32_t> labels(3);
  {
    Images images = images_in.bind(images_block.data(), 3);
    ImageSource{&records, augmentation}(ticket, images);
    Records raw_records = records_in.bind(records_block.data(), 3);
    RecordSource{&records}(ticket, raw_records);
    CHECK(images.labels(0) == 4);
    CHECK(images.labels(2) == 5);

    const TestStream stream;  // Pinned memory is the device's too.
    pack_images(images.pixels.data_handle(), 3, input, from_images.data(), stream);
    pack_records(raw_records, 6, augmentation, input, from_records.data(), labels.data(), stream);
    REQUIRE_CUDA(cudaStreamSynchronize(stream));

    std::size_t differences = 0;
    for (std::size_t i = 0; i < numbers; ++i) differences += from_images[i] != from_records[i];
    CHECK(differences == 0);
    CHECK(labels[0] == 4);
    CHECK(labels[1] == 0);
    const auto at = [&](std::int64_t n, std::int64_t c, std::int64_t y, std::int64_t x) {
      return from_images[static_cast<std::size_t>(
          format == Format::nhwc ? ((n * size + y) * size + x) * channels + c
                                 : ((n * channels + c) * size + y) * size + x)];
    };
    const auto record = record_of(5);
    CHECK(at(2, 1, 5, 7) == normalised_pixel(record.data(), random_view(9, 6, 5), size, 1, 5, 7));
    if (channels == 4) CHECK(at(2, 3, 5, 7) == 0.0f);
  }
}

TEST_CASE("images as bytes are the images, each value rounded", "[resnet][input]") {
  const std::int32_t size = GENERATE(8, 32, 33, 224);
  const auto record = record_of(5);
  const ImageWriter write(size);
  for (const View& view : {View{}, View{.dx = -4, .dy = 3, .flip = true}}) {
    const auto count = static_cast<std::size_t>(3 * size * size);
    std::vector<float> image(count);
    std::vector<std::uint8_t> bytes(count + 1, 77);
    write(record.data(), view, image.data());
    CHECK(write(record.data(), view, bytes.data()) == &bytes.back());
    CHECK(bytes.back() == 77);
    float farthest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto channel = static_cast<std::int32_t>(i / static_cast<std::size_t>(size * size));
      const float value =
          image[i] / detail::inverse_deviation_of(channel) + detail::mean_of(channel);
      farthest = std::max(farthest, std::abs(value - static_cast<float>(bytes[i])));
    }
    CHECK(farthest < 0.501f);
    CHECK((size == 32) == (farthest < 0.001f));
  }
}

TEST_CASE("images as bytes are normalised on the device as they are on the CPU",
          "[resnet][input]") {
  const DataSet data;
  const penstock::RecordFile records = data.open();
  const auto format = GENERATE(Format::nchw, Format::nhwc);
  const auto precision = GENERATE(Precision::fp32, Precision::fp16);
  const std::vector<std::uint64_t> samples = {4, 0, 5};
  const Augmentation augmentation{.seed = 9, .size = 32};  // nothing is resized
  const penstock::Ticket ticket{.epoch = 6, .samples = samples};
  const InputFormat input{{3, 3, 32, 32}, precision, format};
  constexpr std::size_t kNumbers = 3 * 3 * 32 * 32;

  const auto floats_in = images_layout(3, 32);
  const auto bytes_in = byte_images_layout(3, 32);
  CHECK(bytes_in.bytes() < floats_in.bytes() / 3);
  const PinnedMemory<std::byte> floats(floats_in.bytes()), bytes(bytes_in.bytes());
  const PinnedMemory<float> from_floats(kNumbers), from_bytes(kNumbers);
  Images images = floats_in.bind(floats.data(), 3);
  ByteImages byte_images = bytes_in.bind(bytes.data(), 3);
  ImageSource{&records, augmentation}(ticket, images);
  ByteImageSource{&records, augmentation}(ticket, byte_images);
  CHECK(byte_images.labels(0) == 4);
  CHECK(byte_images.labels(2) == 5);

  const TestStream stream;  // Pinned memory is the device's too.
  pack_images(images.pixels.data_handle(), 3, input, from_floats.data(), stream);
  pack_images(byte_images.pixels.data_handle(), 3, input, from_bytes.data(), stream);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  std::size_t differences = 0, rounded = 0;
  for (std::size_t i = 0; i < kNumbers; ++i) {
    differences += from_floats[i] != from_bytes[i];
    rounded += reference::rounded(Precision::fp16, from_bytes[i]) == from_bytes[i];
  }
  CHECK(differences == 0);
  CHECK((rounded == kNumbers) == (precision == Precision::fp16));
}

TEST_CASE("a label that is none is told, with the record", "[resnet][input]") {
  const TemporaryDirectory directory;
  auto record = record_of(1);
  record[0] = 10;
  std::ofstream(directory / "bad", std::ios::binary)
      .write(reinterpret_cast<const char*>(record.data()),
             static_cast<std::streamsize>(record.size()));
  const penstock::RecordFile records({directory / "bad"}, cifar10::record_bytes);
  const std::vector<std::uint64_t> samples = {0};
  std::vector<float> pixels(3 * 32 * 32);
  std::int32_t label = 0;
  CHECK_THROWS_AS((ImageSource{&records, {}}.fill(0, samples, pixels.data(), &label)),
                  cifar10::DataError);
}

}  // namespace
}  // namespace resnet
