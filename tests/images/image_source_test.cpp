// SPDX-License-Identifier: Apache-2.0

#include <penstock/images/image_source.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <penstock/file_folder.hpp>
#include <penstock/images/crop.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/tar_shards.hpp>
#include <set>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "images/jpeg_files.hpp"
#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/handles.hpp"
#include "support/tar_writer.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

using namespace penstock::test;
using penstock::images::test::Bytes;
using penstock::images::test::jpeg_file;
using penstock::images::test::smooth_pixels;

constexpr ImageSize kSmall{12, 9};

Bytes image(int number) {
  const int width = 20 + number, height = 30 + 2 * number;
  return jpeg_file(smooth_pixels(width, height, 3, number), width, height);
}

/// A store in memory.
struct Memory {
  std::vector<Bytes> files;

  explicit Memory(int count) {
    for (int i = 0; i < count; ++i) files.push_back(image(i));
  }
  std::span<const std::byte> read(std::uint64_t i, std::vector<std::byte>&) const {
    return files.at(i);
  }
  std::string name(std::uint64_t i) const { return "file-" + std::to_string(i); }
};
struct Labelled : Memory {
  using Memory::Memory;
  std::int32_t label(std::uint64_t i) const {
    if (i == 3) throw std::range_error("nobody knows what it shows");
    return static_cast<std::int32_t>(100 + i);
  }
};

/// One row of DecodedImages, and its memory.
struct Row {
  std::vector<std::byte> block;
  DecodedImages batch;

  Row() {
    const auto layout = decoded_images_layout(1, kSmall);
    block.resize(layout.bytes());
    batch = layout.bind(block.data(), 1);
  }
};

std::unique_ptr<penstock::detail::WorkerSource> worker_of(AnySource<DecodedImages> source) {
  return std::move(source).erased().make();
}

const RandomResizedCrop kCropToSmall{.output = kSmall};

TEST_CASE("image_source writes what a RowDecoder writes, and the label", "[images][image_source]") {
  const Labelled files(3);
  const auto worker = worker_of(image_source(files, kCropToSmall));
  RowDecoder decode;
  for (std::uint64_t i = 0; i < 3; ++i) {
    Row row, expected;
    worker->fill_row({.index = i, .row = 0, .seed = 5 + i}, &row.batch, {});
    decode(
        files.files[i], [&](ImageSize size) { return kCropToSmall(5 + i, size); }, 0,
        expected.batch);
    expected.batch.labels(0) = static_cast<std::int32_t>(100 + i);
    const auto pixels = static_cast<std::size_t>(row.batch.pixels.extent(1));
    CHECK(std::memcmp(row.batch.pixels.data_handle(), expected.batch.pixels.data_handle(),
                      pixels) == 0);
    const ImageGeometry &made = row.batch.geometry(0), &meant = expected.batch.geometry(0);
    CHECK(made.offset == meant.offset);
    CHECK(made.stride == meant.stride);
    CHECK(made.view.region == meant.view.region);
    CHECK(made.view.origin_x == meant.view.origin_x);
    CHECK(made.view.step_y == meant.view.step_y);
    CHECK(row.batch.labels(0) == expected.batch.labels(0));
  }
}

TEST_CASE("image_source: a store without labels has the label -1", "[images][image_source]") {
  const Memory files(1);
  Row row;
  row.batch.labels(0) = 5;
  worker_of(image_source(files, kCropToSmall))->fill_row({}, &row.batch, {});
  CHECK(row.batch.labels(0) == -1);
}

TEST_CASE("image_source: the options are those of the decoder, and each worker has its own view",
          "[images][image_source]") {
  const Memory files(2);
  Row row;
  CHECK_THAT(thrown<ImageError>([&] {
               worker_of(image_source(files, kCropToSmall, {.max_pixels = 100}))
                   ->fill_row({.index = 1}, &row.batch, {});
             }),
             Mentions("file-1: ") && Mentions("100"));
  std::set<int> calls;
  const auto view = [&calls, own = 0](std::uint64_t, ImageSize size) mutable {
    calls.insert(++own);
    return ResizeCenterCrop{.resize = 12, .output = kSmall}(size);
  };
  const AnySource<DecodedImages> source = image_source(files, view);
  const auto first = worker_of(source), second = worker_of(source);
  first->fill_row({}, &row.batch, {});
  first->fill_row({}, &row.batch, {});
  second->fill_row({}, &row.batch, {});
  CHECK(calls == std::set<int>{1, 2});
}

TEST_CASE("image_source: every error begins with the name, and nests its cause",
          "[images][image_source]") {
  Labelled files(4);
  files.files[1].resize(files.files[1].size() / 2);
  files.files[2] = Bytes(40, std::byte{'x'});
  const auto view = [](std::uint64_t seed, ImageSize size) {
    if (seed == 1) throw std::domain_error("no such crop");
    if (seed == 2) throw 7;
    return kCropToSmall(seed, size);
  };
  const auto worker = worker_of(image_source(files, view));
  Row row;
  const auto check = [&](std::uint64_t index, std::uint64_t seed, const std::string& why,
                         auto is_cause) {
    try {
      worker->fill_row({.index = index, .row = 0, .seed = seed}, &row.batch, {});
      FAIL("nothing was thrown");
    } catch (const ImageError& error) {
      const std::string what = error.what(), name = files.name(index) + ": ";
      INFO(what);
      CHECK(what.substr(0, name.size()) == name);
      CHECK_THAT(what, Mentions(why));
      try {
        std::rethrow_if_nested(error);
        FAIL("there is no cause");
      } catch (...) {
        is_cause();
      }
    }
  };
  const auto is = [](auto* example) {
    return [example] {
      using Cause = std::remove_pointer_t<decltype(example)>;
      CHECK_THROWS_AS(std::rethrow_exception(std::current_exception()), Cause);
    };
  };
  check(1, 0, "", is(static_cast<ImageError*>(nullptr)));
  check(2, 0, "", is(static_cast<ImageError*>(nullptr)));
  check(0, 1, "no such crop", is(static_cast<std::domain_error*>(nullptr)));
  check(0, 2, "an exception that is no std::exception", is(static_cast<int*>(nullptr)));
  check(3, 0, "nobody knows what it shows", is(static_cast<std::range_error*>(nullptr)));
  // The decoder is ready for the next image.
  worker->fill_row({.index = 0, .row = 0, .seed = 3}, &row.batch, {});
  CHECK(row.batch.labels(0) == 100);
}

TEST_CASE("image_source: a stop ends the decoding, and is no error of the image",
          "[images][image_source]") {
  const Memory files(1);
  std::stop_source stop;
  stop.request_stop();
  Row row;
  CHECK(thrown<DecodeStopped>([&] {
          worker_of(image_source(files, kCropToSmall))->fill_row({}, &row.batch, stop.get_token());
        }) == "stopped");
}

/// Everything that a pipeline delivers: the label of each sample, in order.
template <class Store>
std::vector<std::int32_t> delivered_labels(const Store& files, std::vector<Failure>& failures) {
  const OutputFormat format{.size = kSmall};
  Prefetcher<Images<float>, DecodedImages> prefetcher{
      decoded_images_layout(4, format.size),
      {.samples = files.size()},
      image_source(files, RandomResizedCrop{.output = format.size}),
      resize_images<float>(format),
      {.workers = 3, .on_failure = FailurePolicy::skip(), .read_ahead = read_ahead(files, 2)}};
  const TestStream stream;
  std::vector<std::int32_t> labels;
  while (auto batch = prefetcher.next(stream)) {
    CHECK(batch->pixels.extent(0) == batch->labels.extent(0));
    CHECK(batch->pixels.extent(1) == kSmall.height);
    std::vector<std::int32_t> found(static_cast<std::size_t>(batch->labels.extent(0)));
    REQUIRE_CUDA(cudaMemcpyAsync(found.data(), batch->labels.data_handle(), found.size() * 4,
                                 cudaMemcpyDeviceToHost, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    labels.insert(labels.end(), found.begin(), found.end());
  }
  failures = prefetcher.failures();
  return labels;
}

std::string as_string(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_CASE("image_source over a folder: what cannot be read is named", "[images][image_source]") {
  const TemporaryDirectory directory;
  for (int i = 0; i < 10; ++i)
    write_file(directory / "images" / (i < 6 ? "cat" : "dog") / (std::to_string(i) + ".jpg"),
               as_string(image(i)));
  const FileFolder files(directory / "images");
  std::vector<Failure> failures;
  CHECK(delivered_labels(files, failures) ==
        std::vector<std::int32_t>{0, 0, 0, 0, 0, 0, 1, 1, 1, 1});
  CHECK(failures.empty());

  std::filesystem::remove(directory / "images/cat/2.jpg");
  write_file(directory / "images/dog/7.jpg", "no image");
  CHECK(delivered_labels(files, failures) == std::vector<std::int32_t>{0, 0, 0, 0, 0, 1, 1, 1});
  REQUIRE(failures.size() == 2);
  std::sort(failures.begin(), failures.end(),
            [](const Failure& a, const Failure& b) { return a.samples < b.samples; });
  CHECK_THAT(failures[0].what, Mentions("sample 2: images/cat/2.jpg: FileFolder: ") &&
                                   Mentions("No such file or directory"));
  CHECK_THAT(failures[1].what, Mentions("sample 7: images/dog/7.jpg: "));
}

TEST_CASE("image_source over shards has the labels of their members", "[images][image_source]") {
  const TemporaryDirectory directory;
  TarWriter tar;
  for (int i = 0; i < 6; ++i) {
    const std::string name = std::to_string(i);
    tar.add(name + ".jpg", as_string(image(i)));
    if (i != 4) tar.add(name + ".cls", std::to_string(10 * i));
  }
  tar.save(directory / "a.tar");
  const TarShards files({directory / "a.tar"});
  std::vector<Failure> failures;
  CHECK(delivered_labels(files, failures) == std::vector<std::int32_t>{0, 10, 20, 30, 50});
  REQUIRE(failures.size() == 1);
  CHECK_THAT(failures[0].what, Mentions("sample 4: a.tar/4.jpg: ") && Mentions("cls"));
}

}  // namespace
}  // namespace penstock::images
