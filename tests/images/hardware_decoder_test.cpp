// SPDX-License-Identifier: Apache-2.0

#include <penstock/images/hardware_decoder.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/emulation.hpp>
#include <penstock/images/crop.hpp>
#include <penstock/images/decoded_images.hpp>
#include <penstock/prefetcher.hpp>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "images/fake_engine.hpp"
#include "images/jpeg_files.hpp"
#include "images/view_reference.hpp"
#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

using namespace penstock::test;
using namespace penstock::images::test;
using File = FakeEngines::File;

constexpr ImageSize kOutput{10, 14};
constexpr std::size_t kValues = 10 * 14 * 3;
const OutputFormat kFormat{.size = kOutput};
const RandomResizedCrop kCrop{.output = kOutput};

/// Options with which both decoders give the same pixels.
HardwareOptions exact_options(int threads = 1) {
  HardwareOptions options{.cpu_threads = threads,
                          .device_bytes = 1 << 20,
                          .staging_bytes = 1 << 20,
                          .engine = {.batch = 64}};
  options.cpu.scaled_dct = false;
  return options;
}

/// A good file of its own size for each number.
Bytes good_file(int number) {
  const int width = 20 + number * 7 % 31, height = 16 + number * 5 % 23;
  return jpeg_file(noisy_pixels(width, height, 3), width, height, {.across = 1 + number % 2});
}
std::vector<Bytes> good_files(int count) {
  std::vector<Bytes> files;
  for (int i = 0; i < count; ++i) files.push_back(good_file(i));
  return files;
}
Bytes progressive_file() {
  return jpeg_file(noisy_pixels(31, 22, 3), 31, 22, {.progressive = true});
}
std::vector<JpegItem> items_of(const std::vector<Bytes>& files) {
  std::vector<JpegItem> items;
  for (const Bytes& file : files) items.push_back({file, 1000 + items.size()});
  return items;
}

/// Whether `made`, an output in bytes, is what kCrop makes of the file, decoded whole.
bool is_right(const std::uint8_t* made, const JpegItem& item) {
  const DecodedFile file = decode_all(Bytes(item.file.begin(), item.file.end()));
  const TestImage image{{file.height, file.width}, std::int64_t{3} * file.width, file.pixels};
  const std::vector<double> expected = reference_of(image, kCrop(item.seed, image.size));
  for (std::size_t i = 0; i < kValues; ++i)
    if (std::abs(made[i] - expected[i]) > 1.01) return false;
  return true;
}
bool is_black(const std::uint8_t* made) {
  return std::all_of(made, made + kValues, [](std::uint8_t value) { return value == 0; });
}

/// Decodes a batch, and keeps what came of it.
struct Batch {
  Batch(HardwareDecoder& decoder, std::vector<JpegItem> of) : items(std::move(of)) {
    const TestStream stream;
    const DeviceMemory<std::uint8_t> out(items.size() * kValues + 1);
    fill_async(out, 99, stream);
    const auto images = decoder.decode(items, kCrop, kFormat, out.data(), stream);
    results.assign(images.begin(), images.end());
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    pixels = out.read();
    CHECK(pixels.back() == 99);
  }

  bool right(std::size_t row) const { return is_right(&pixels[row * kValues], items[row]); }
  bool black(std::size_t row) const { return is_black(&pixels[row * kValues]); }
  bool all_right() const {
    for (std::size_t row = 0; row < items.size(); ++row)
      if (!right(row)) return false;
    return true;
  }
  std::vector<DecodedBy> by() const {
    std::vector<DecodedBy> all;
    for (const ImageResult& result : results) all.push_back(result.by);
    return all;
  }

  std::vector<JpegItem> items;
  std::vector<ImageResult> results;
  std::vector<std::uint8_t> pixels;
};

TEST_CASE("HardwareDecoder: the engine decodes what it takes", "[images][hardware_decoder]") {
  FakeEngines engines;
  HardwareDecoder decoder(exact_options(), make_fake(engines));
  CHECK(decoder.backend() == "fake");
  CHECK(decoder.why_no_engine().empty());
  CHECK(engines.engines == 2);
  const auto files = good_files(9);
  for (int repeat = 0; repeat < 3; ++repeat) {
    const Batch batch(decoder, items_of(files));
    CHECK(batch.all_right());
    CHECK(batch.by() == std::vector<DecodedBy>(9, DecodedBy::hardware));
  }
  CHECK(engines.calls == 3);
  CHECK(decoder.stats().hardware == 27);
  CHECK(decoder.stats().cpu == 0);
  CHECK(decoder.stats().refused == 0);
}

TEST_CASE("HardwareDecoder: the engine is asked for what the crops need",
          "[images][hardware_decoder]") {
  FakeEngines engines;
  HardwareDecoder decoder(exact_options(), make_fake(engines));
  const int width = 120, height = 90;
  const Bytes file = jpeg_file(noisy_pixels(width, height, 3), width, height);
  const std::vector<JpegItem> items{{file, 0}};
  const TestStream stream;
  const DeviceMemory<std::uint8_t> out(kValues);
  const auto asked_for = [&](const View& view) {
    engines.pixels = 0;
    const auto view_of = [&](std::uint64_t, ImageSize) { return view; };
    const auto results = decoder.decode(items, view_of, kFormat, out.data(), stream);
    CHECK(results[0].by == DecodedBy::hardware);
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    const DecodedFile decoded = decode_all(file);
    const TestImage image{{height, width}, std::int64_t{3} * width, decoded.pixels};
    const std::vector<double> expected = reference_of(image, view);
    const auto made = out.read();
    for (std::size_t i = 0; i < kValues; ++i) {
      if (std::abs(made[i] - expected[i]) <= 1.01) continue;
      FAIL_CHECK("value " << i << " is " << int{made[i]} << ", not " << expected[i]);
      break;
    }
    return engines.pixels.load();
  };
  CHECK(asked_for(crop_view({0, 0, height, width}, kOutput)) == height * width);
  CHECK(asked_for(crop_view({7, 13, 31, 50}, kOutput)) == 31 * 50);
  CHECK(asked_for(crop_view({89, 119, 1, 1}, kOutput)) == 1);
  // Of a region that is resized as a whole, the crop's pixels and those that its filter reaches.
  View centre = ResizeCenterCrop{.resize = 30, .output = kOutput}({height, width});
  REQUIRE(centre.region == Region{0, 0, height, width});
  const std::int64_t some = asked_for(centre);
  CHECK(some >= 30 * 42);
  CHECK(some < 45 * 60);
}

TEST_CASE("HardwareDecoder: the CPU decodes what the engine refuses",
          "[images][hardware_decoder]") {
  FakeEngines engines;
  const int threads = GENERATE(0, 1, 3);
  HardwareOptions options = exact_options(threads);
  options.cpu.apply_orientation = true;
  std::vector<Bytes> files = good_files(10);
  files[0] = progressive_file();
  files[3] = jpeg_file(noisy_pixels(31, 22, 4), 31, 22, {.channels = 4});  // inks
  files[6] = jpeg_file(noisy_pixels(700, 600, 3), 700, 600);               // more than the memory
  files[9] = progressive_file();
  engines.takes = [&](File file) {
    return !std::equal(file.begin(), file.end(), files[5].begin());
  };
  HardwareDecoder decoder(options, make_fake(engines));
  const Batch batch(decoder, items_of(files));
  for (std::size_t row = 0; row < 10; ++row) {
    INFO("row " << row);
    const bool by_cpu = row == 0 || row == 3 || row == 5 || row == 6 || row == 9;
    CHECK(batch.results[row].by == (by_cpu ? DecodedBy::cpu : DecodedBy::hardware));
    if (row != 3) CHECK(batch.right(row));
  }
  CHECK_FALSE(batch.black(3));
  CHECK(decoder.stats().hardware == 5);
  CHECK(decoder.stats().cpu == 5);
  CHECK(decoder.stats().refused == 5);
  CHECK(engines.images == 5);
}

TEST_CASE("HardwareDecoder: turned images go to the CPU if they are to be turned",
          "[images][hardware_decoder]") {
  FakeEngines engines;
  const bool apply = GENERATE(false, true);
  HardwareOptions options = exact_options();
  options.cpu.apply_orientation = apply;
  const std::vector<std::uint8_t> exif{'E', 'x', 'i', 'f', 0, 0, 'M',  'M', 0, 42, 0,
                                       0,   0,   8,   0,   1, 1, 0x12, 0,   3, 0,  0,
                                       0,   1,   0,   6,   0, 0, 0,    0,   0, 0};
  const std::vector<Bytes> files{jpeg_file(noisy_pixels(30, 20, 3), 30, 20, {.app1 = exif}),
                                 good_file(1)};
  HardwareDecoder decoder(options, make_fake(engines));
  const Batch batch(decoder, items_of(files));
  CHECK(batch.results[0].by == (apply ? DecodedBy::cpu : DecodedBy::hardware));
  CHECK(batch.right(0) == !apply);
  CHECK(batch.right(1));
}

TEST_CASE("HardwareDecoder: a damaged file fails alone", "[images][hardware_decoder]") {
  FakeEngines engines;
  std::vector<Bytes> files = good_files(6);
  files[0] = Bytes(50);
  files[2].resize(files[2].size() / 2);
  files[5].clear();
  HardwareTotals totals;
  HardwareOptions options = exact_options();
  options.totals = &totals;
  HardwareDecoder decoder(options, make_fake(engines));
  for (int repeat = 0; repeat < 2; ++repeat) {
    const Batch batch(decoder, items_of(files));
    for (std::size_t row = 0; row < 6; ++row) {
      INFO("row " << row);
      const bool damaged = row == 0 || row == 2 || row == 5;
      CHECK((batch.results[row].by == DecodedBy::nobody) == damaged);
      CHECK(batch.results[row].error.empty() == !damaged);
      CHECK((damaged ? batch.black(row) : batch.right(row)));
    }
  }
  CHECK(decoder.stats().failed == 6);
  CHECK(totals.failed == 6);
  CHECK(totals.hardware == 6);
  CHECK(totals.refused == 6);
}

TEST_CASE("HardwareDecoder: what an engine cannot decode goes to the CPU, and nothing else",
          "[images][hardware_decoder]") {
  FakeEngines engines;
  const auto files = good_files(16);
  engines.decodes = [&](File file) {
    return !std::equal(file.begin(), file.end(), files[5].begin()) &&
           !std::equal(file.begin(), file.end(), files[15].begin());
  };
  HardwareDecoder decoder(exact_options(), make_fake(engines));
  const Batch batch(decoder, items_of(files));
  CHECK(batch.all_right());
  for (std::size_t row = 0; row < 16; ++row)
    CHECK(batch.results[row].by == (row == 5 || row == 15 ? DecodedBy::cpu : DecodedBy::hardware));
  CHECK(decoder.stats().returned == 2);
  CHECK(decoder.stats().hardware == 14);
  CHECK(engines.images == 14);
  CHECK(engines.calls <= 1 + 2 * 2 * 4);  // halves, four deep
  CHECK(engines.called_while_busy == 0);
}

TEST_CASE("HardwareDecoder: what neither decodes becomes zeros", "[images][hardware_decoder]") {
  FakeEngines engines;
  auto files = good_files(5);
  Bytes& damaged = files[4];
  SECTION("its data are damaged") {  // It still ends as a file should.
    const auto cut = static_cast<std::ptrdiff_t>(damaged.size() / 3);
    damaged.erase(damaged.end() - cut, damaged.end() - 2);
  }
  SECTION("its header is damaged") {  // a sampling factor of 0
    damaged[find_marker(damaged, {0xc0}) + 11] = std::byte{0};
  }
  engines.decodes = [&](File file) { return file.size() != damaged.size(); };
  HardwareOptions options = exact_options();
  options.cpu.warnings_are_errors = true;
  HardwareDecoder decoder(options, make_fake(engines));
  const Batch batch(decoder, items_of(files));
  CHECK(decoder.stats().returned == 1);
  CHECK(decoder.stats().failed == 1);
  CHECK_FALSE(batch.results[4].error.empty());
  CHECK(batch.black(4));
  for (std::size_t row = 0; row < 4; ++row) CHECK(batch.right(row));
}

TEST_CASE("HardwareDecoder: a batch of many parts", "[images][hardware_decoder]") {
  FakeEngines engines;
  HardwareOptions options = exact_options(2);
  SECTION("by device memory") {
    options.device_bytes = 6'000;
  }
  SECTION("by staging") {
    options.staging_bytes = 9'000;
  }
  SECTION("by number") {
    options.engine.batch = 3;
  }
  HardwareDecoder decoder(options, make_fake(engines));
  std::vector<Bytes> files = good_files(25);
  files[7] = files[8] = files[20] = progressive_file();
  files[24] = Bytes(9);
  for (int repeat = 0; repeat < 2; ++repeat) {
    const Batch batch(decoder, items_of(files));
    for (std::size_t row = 0; row < 24; ++row) CHECK(batch.right(row));
    CHECK(batch.black(24));
  }
  CHECK(engines.calls >= 10);
  CHECK(engines.called_while_busy == 0);
}

TEST_CASE("HardwareDecoder: an engine that throws leaves the decoder usable",
          "[images][hardware_decoder]") {
  FakeEngines engines;
  HardwareDecoder decoder(exact_options(2), make_fake(engines));
  std::vector<Bytes> files = good_files(6);
  files[1] = progressive_file();
  engines.throws = true;
  const TestStream stream;
  const DeviceMemory<std::uint8_t> out(6 * kValues);
  const auto items = items_of(files);
  CHECK_THAT(thrown<std::runtime_error>(
                 [&] { decoder.decode(items, kCrop, kFormat, out.data(), stream); }),
             Mentions("the engine is broken"));
  engines.throws = false;
  CHECK(Batch(decoder, items).all_right());
}

TEST_CASE("HardwareDecoder: the CPU's share depends on the seed alone",
          "[images][hardware_decoder]") {
  FakeEngines engines;
  HardwareOptions options = exact_options(2);
  options.cpu_share = 0.3;
  HardwareDecoder decoder(options, make_fake(engines)), other(options, make_fake(engines));
  const auto files = good_files(60);
  const auto items = items_of(files);
  const Batch batch(decoder, items);
  CHECK(batch.all_right());
  const auto by = batch.by();
  const auto share = std::count(by.begin(), by.end(), DecodedBy::cpu);
  CHECK(share > 8);
  CHECK(share < 28);
  CHECK(decoder.stats().refused == 0);
  // In another order, another batch, another decoder.
  const Batch reversed(other, {items.rbegin(), items.rbegin() + 40});
  const auto reversed_by = reversed.by();
  CHECK(std::equal(reversed_by.begin(), reversed_by.end(), by.rbegin()));
}

TEST_CASE("HardwareDecoder: shares of nothing and of everything", "[images][hardware_decoder]") {
  FakeEngines engines;
  HardwareOptions options = exact_options();
  const bool all = GENERATE(false, true);
  options.cpu_share = all ? 1 : 0;
  HardwareDecoder decoder(options, make_fake(engines));
  const auto files = good_files(20);
  CHECK(Batch(decoder, items_of(files)).all_right());
  CHECK(decoder.stats().cpu == (all ? 20 : 0));
}

TEST_CASE("HardwareDecoder tries what the CPU's help is worth, unless a share is set",
          "[images][hardware_decoder]") {
  FakeEngines engines;
  HardwareOptions options = exact_options(1);
  const bool is_set = GENERATE(false, true);
  if (is_set) options.cpu_share = 0;
  HardwareDecoder decoder(options, make_fake(engines)), other(options, make_fake(engines));
  const auto files = good_files(40);
  const auto items = items_of(files);
  CHECK(Batch(decoder, items).all_right());
  CHECK(decoder.stats().cpu == 0);
  bool has_helped = false;
  for (int i = 0; i < 40; ++i) {
    const Batch batch(i % 2 == 0 ? decoder : other, items);
    CHECK(batch.all_right());
    has_helped = has_helped || (decoder.cpu_share() > 0 && other.cpu_share() > 0);
  }
  CHECK(has_helped != is_set);
  CHECK((decoder.stats().cpu > 0) != is_set);
  CHECK((other.stats().cpu > 0) != is_set);
}

TEST_CASE("HardwareDecoder does not wait for the consumer's stream", "[images][hardware_decoder]") {
  FakeEngines engines;
  HardwareDecoder decoder(exact_options(), make_fake(engines));
  auto files = good_files(4);
  files[1] = progressive_file();
  const auto items = items_of(files);
  const TestStream stream;
  const DeviceMemory<std::uint8_t> out(4 * kValues);
  Gate gate;
  gate.hold(stream);
  fill_async(out, 99, stream);
  decoder.decode(items, kCrop, kFormat, out.data(), stream);
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  for (Bytes& file : files) std::fill(file.begin(), file.end(), std::byte{0});  // They are free.
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  const auto made = out.read();
  auto again = good_files(4);
  again[1] = progressive_file();
  const auto expected = items_of(again);
  for (std::size_t row = 0; row < 4; ++row) CHECK(is_right(&made[row * kValues], expected[row]));
}

TEST_CASE("HardwareDecoder allocates nothing after the first batch", "[images][hardware_decoder]") {
  FakeEngines engines;
  HardwareOptions options = exact_options(2);
  options.device_bytes = 20'000;
  HardwareDecoder decoder(options, make_fake(engines));
  auto files = good_files(20);
  files[3] = progressive_file();
  const auto items = items_of(files);
  const TestStream stream;
  const DeviceMemory<std::uint8_t> out(20 * kValues);
  const auto allocations = [] {
    return emulation::calls("cudaMalloc") + emulation::calls("cudaHostAlloc") +
           emulation::calls("cudaEventCreateWithFlags") +
           emulation::calls("cudaStreamCreateWithPriority");
  };
  decoder.decode(items, kCrop, kFormat, out.data(), stream);
  const auto before = allocations();
  for (int i = 0; i < 3; ++i) decoder.decode(items, kCrop, kFormat, out.data(), stream);
  CHECK(allocations() == before);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
}

TEST_CASE("HardwareDecoder: after a failed CUDA call the next batch is right",
          "[images][hardware_decoder]") {
  FakeEngines engines;
  HardwareDecoder decoder(exact_options(1), make_fake(engines));
  auto files = good_files(5);
  files[2] = progressive_file();
  const auto items = items_of(files);
  const TestStream stream;
  const DeviceMemory<std::uint8_t> out(5 * kValues);
  int failures = 0;
  for (std::uint64_t nth = 1; nth <= 30; ++nth) {
    emulation::fail_call("*", cudaErrorUnknown, nth);
    try {
      decoder.decode(items, kCrop, kFormat, out.data(), stream);
    } catch (const CudaError&) {
      ++failures;
    }
    for (int call = 0; call < 30; ++call) static_cast<void>(cudaSetDevice(0));  // if none failed
    cudaGetLastError();
    CHECK(Batch(decoder, items).all_right());
  }
  CHECK(failures >= 6);
  CHECK(engines.called_while_busy == 0);
}

TEST_CASE("HardwareDecoder: stop reaches the CPU's decoders", "[images][hardware_decoder]") {
  FakeEngines engines;
  HardwareDecoder decoder(exact_options(), make_fake(engines));
  const std::vector<Bytes> files{progressive_file()};
  const auto items = items_of(files);
  std::stop_source stop;
  stop.request_stop();
  const TestStream stream;
  const DeviceMemory<std::uint8_t> out(kValues);
  const auto results = decoder.decode(items, kCrop, kFormat, out.data(), stream, stop.get_token());
  CHECK(results[0].by == DecodedBy::nobody);
  CHECK(results[0].error == "stopped");
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
}

TEST_CASE("HardwareDecoder without an engine: the CPU, and it says so",
          "[images][hardware_decoder]") {
  HardwareOptions options = exact_options(2);
  HardwareDecoder decoder(options);  // nvJPEG, which knows nothing of an emulated device
  CHECK(decoder.backend() == "cpu");
  CHECK_FALSE(decoder.why_no_engine().empty());
  const auto files = good_files(7);
  CHECK(Batch(decoder, items_of(files)).all_right());
  CHECK(decoder.stats().cpu == 7);
  CHECK(decoder.stats().refused == 0);
  options.require_engine = true;
  CHECK_THAT(thrown<std::runtime_error>([&] { const HardwareDecoder required(options); }),
             Mentions("there is none: " + decoder.why_no_engine()));
}

TEST_CASE("HardwareDecoder: memory that is not there is an error that says what to lower",
          "[images][hardware_decoder]") {
  const std::size_t much = std::size_t{1} << 60;
  for (const HardwareOptions& options :
       {HardwareOptions{.device_bytes = much}, HardwareOptions{.staging_bytes = much}})
    CHECK_THAT(thrown<CudaError>([&] { const HardwareDecoder decoder(options); }),
               Mentions("lower device_bytes or staging_bytes"));
}

TEST_CASE("HardwareDecoder rejects what makes no sense", "[images][hardware_decoder]") {
  const auto message = [](const HardwareOptions& options) {
    return thrown<std::invalid_argument>([&] { const HardwareDecoder decoder(options); });
  };
  CHECK_THAT(message({.cpu_threads = -1}), Mentions("cpu_threads is -1"));
  CHECK_THAT(message({.cpu_share = 1.5}), Mentions("cpu_share is 1.5"));
  CHECK_THAT(message({.cpu_share = -0.25}), Mentions("cpu_share is -0.25"));
  CHECK_THAT(message({.cpu_share = std::nan("")}), Mentions("cpu_share is nan"));
  CHECK_THAT(message({.engine = {.decoders = 0}}), Mentions("engine.decoders is 0"));
  CHECK_THAT(message({.lanes = 1}), Mentions("lanes is 1"));
  CHECK_THAT(message({.engine = {.batch = 0}}), Mentions("engine.batch"));

  HardwareDecoder decoder(exact_options());
  const std::vector<Bytes> files{good_file(0)};
  const auto items = items_of(files);
  const TestStream stream;
  const DeviceMemory<std::uint8_t> out(kValues);
  const auto view = [&](auto view_of, const OutputFormat& format) {
    return thrown<std::invalid_argument>(
        [&] { decoder.decode(items, view_of, format, out.data(), stream); });
  };
  CHECK_THAT(view(kCrop, {.size = {11, 14}}), Mentions("the format one of 11 x 14"));
  CHECK_THAT(view(kCrop, {.size = {2000, 2000}}), Mentions("raise device_bytes"));
  CHECK_THAT(view(
                 [](std::uint64_t, ImageSize size) {
                   return crop_view({0, 0, size.height + 1, size.width}, kOutput);
                 },
                 kFormat),
             Mentions("not within"));
  CHECK_THAT(view(
                 [](std::uint64_t, ImageSize size) {
                   View beyond = crop_view({0, 0, size.height, size.width}, kOutput);
                   beyond.origin_x += size.width;
                   return beyond;
                 },
                 kFormat),
             Mentions("beyond its region"));
  CHECK(Batch(decoder, items).all_right());
}

// ---- In a pipeline ------------------------------------------------------------------------------

struct Pictures {
  Tensor<std::uint8_t, 4> pixels;
};

TEST_CASE("HardwareDecoder: an on_device source of several workers", "[images][hardware_decoder]") {
  FakeEngines engines;
  engines.delay = std::chrono::milliseconds(1);
  std::vector<Bytes> files = good_files(24);
  files[3] = files[11] = progressive_file();
  engines.decodes = [&](File file) { return file.size() != files[7].size(); };
  HardwareTotals totals;
  HardwareOptions options = exact_options(1);
  options.totals = &totals;
  options.cpu_share = 0.25;
  options.device_bytes = 30'000;
  Layout<Pictures> layout{8};
  layout.field(&Pictures::pixels, {kOutput.height, kOutput.width, 3});
  const auto deliver = [&] {
    std::vector<std::vector<std::uint8_t>> batches;
    std::vector<std::vector<JpegItem>> items;
    Prefetcher<Pictures> prefetcher(
        layout, Sampler({.samples = files.size(), .batch_size = 8, .shuffle = true, .seed = 4}),
        on_device(per_worker([&] {
          return [&, decoder = HardwareDecoder(options, make_fake(engines)),
                  batch_items = std::vector<JpegItem>()](const Ticket& ticket, Pictures& batch,
                                                         cudaStream_t stream) mutable {
            batch_items.clear();
            for (std::size_t row = 0; row < ticket.samples.size(); ++row)
              batch_items.push_back({files[ticket.samples[row]], ticket.sample_seed(row)});
            for (const ImageResult& result :
                 decoder.decode(batch_items, kCrop, kFormat, batch.pixels.data_handle(), stream))
              if (result.by == DecodedBy::nobody) throw ImageError(result.error);
          };
        })),
        {.workers = 3, .epochs = 2});
    const TestStream stream;
    while (auto batch = prefetcher.next(stream)) {
      std::vector<std::uint8_t> bytes(8 * kValues);
      REQUIRE_CUDA(cudaMemcpyAsync(bytes.data(), batch->pixels.data_handle(), bytes.size(),
                                   cudaMemcpyDeviceToHost, stream));
      REQUIRE_CUDA(cudaStreamSynchronize(stream));
      const Ticket& ticket = batch.ticket();
      for (std::size_t row = 0; row < ticket.samples.size(); ++row)
        CHECK(
            is_right(&bytes[row * kValues], {files[ticket.samples[row]], ticket.sample_seed(row)}));
      batches.push_back(std::move(bytes));
    }
    return batches;
  };
  const auto first = deliver();
  CHECK(first.size() == 6);
  CHECK(deliver() == first);
  CHECK(totals.failed == 0);
  CHECK(totals.hardware + totals.cpu >= 96);  // and what workers decoded ahead
  CHECK(totals.refused >= 4);
  CHECK(engines.called_while_busy == 0);
}

}  // namespace
}  // namespace penstock::images
