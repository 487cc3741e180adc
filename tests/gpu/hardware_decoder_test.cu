// SPDX-License-Identifier: Apache-2.0

// HardwareDecoder over nvJPEG's hardware backend: the same images by both decoders, what the
// engines refuse, and that nothing is allocated after warm-up.

#include <penstock/images/hardware_decoder.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <penstock/images/crop.hpp>
#include <penstock/trace/session.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "jpeg_samples.hpp"
#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

using namespace penstock::test;
using namespace penstock::images::test;

constexpr ImageSize kOutput{64, 72};
constexpr std::size_t kValues = 64 * 72 * 3;

/// Without scaled decoding on the CPU, which is another filter.
HardwareOptions gpu_options() {
  HardwareOptions options{.cpu_threads = 2,
                          .cpu_share = 0,
                          .engine = {.batch = 64, .image = {400, 400}},
                          .require_engine = true};
  options.cpu.scaled_dct = false;
  return options;
}

/// A batch in bytes, and who decoded what.
struct Batch {
  std::vector<std::uint8_t> pixels;
  std::vector<DecodedBy> by;
};
template <class ViewOf>
Batch decoded(HardwareDecoder& decoder, const std::vector<Bytes>& files, const ViewOf& view_of) {
  std::vector<JpegItem> items;
  for (const Bytes& file : files) items.push_back({file, 100 + items.size()});
  const TestStream stream;
  const DeviceMemory<std::uint8_t> out(items.size() * kValues);
  fill_async(out, 99, stream);
  Batch batch;
  for (const ImageResult& result :
       decoder.decode(items, view_of, OutputFormat{.size = kOutput}, out.data(), stream))
    batch.by.push_back(result.by);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  batch.pixels = out.read();
  return batch;
}
Batch decoded(HardwareDecoder& decoder, const std::vector<Bytes>& files) {
  return decoded(decoder, files, RandomResizedCrop{.output = kOutput});
}

struct Difference {
  double mean = 0;
  int largest = 0;
};
Difference difference(const Batch& a, const Batch& b, std::size_t row) {
  Difference result;
  for (std::size_t i = row * kValues; i < (row + 1) * kValues; ++i) {
    const int one = std::abs(a.pixels[i] - b.pixels[i]);
    result.mean += one / static_cast<double>(kValues);
    result.largest = std::max(result.largest, one);
  }
  return result;
}

TEST_CASE("nvJPEG and libjpeg: the same images", "[images][nvjpeg]") {
  const auto files = smooth_files(64);
  HardwareOptions options = gpu_options();
  HardwareDecoder hardware(options);
  options.cpu_share = 1;
  HardwareDecoder cpu(options);
  CHECK(hardware.backend() == "nvjpeg");
  const Batch by_hardware = decoded(hardware, files), by_cpu = decoded(cpu, files);
  CHECK(by_hardware.by == std::vector<DecodedBy>(64, DecodedBy::hardware));
  CHECK(by_cpu.by == std::vector<DecodedBy>(64, DecodedBy::cpu));
  for (std::size_t row = 0; row < 64; ++row) {
    INFO("row " << row);
    const Difference found = difference(by_hardware, by_cpu, row);
    CHECK(found.mean < 1.5);
    CHECK(found.largest < 12);
  }
}

/// `region`, resized to the output.
View view_of_region(const Region& region) {
  return {.region = region,
          .origin_y = static_cast<double>(region.top),
          .origin_x = static_cast<double>(region.left),
          .step_y = region.height / static_cast<double>(kOutput.height),
          .step_x = region.width / static_cast<double>(kOutput.width),
          .output = kOutput};
}

TEST_CASE("nvJPEG: the parts of an image, of every size and at every edge", "[images][nvjpeg]") {
  const auto files = smooth_files(4);
  HardwareOptions options = gpu_options();
  HardwareDecoder hardware(options);
  options.cpu_share = 1;
  HardwareDecoder cpu(options);
  for (const int side : {1, 2, 3, 7, 16, 33, 64, 1000})
    for (const int corner : {0, 1, 2, 3, 4}) {
      INFO("side " << side << ", corner " << corner);
      const auto view = [&](std::uint64_t, ImageSize size) {
        const int height = std::min(side, size.height), width = std::min(2 * side - 1, size.width);
        const int down = size.height - height, right = size.width - width;
        const int top = corner == 4 ? down / 2 : corner / 2 * down;
        const int left = corner == 4 ? right / 3 : corner % 2 * right;
        return view_of_region({top, left, height, width});
      };
      const Batch by_hardware = decoded(hardware, files, view);
      const Batch by_cpu = decoded(cpu, files, view);
      CHECK(by_hardware.by == std::vector<DecodedBy>(4, DecodedBy::hardware));
      for (std::size_t row = 0; row < 4; ++row) {
        const Difference found = difference(by_hardware, by_cpu, row);
        CHECK(found.mean < 4);
        CHECK(found.largest < 16);
      }
    }
}

TEST_CASE("nvJPEG: what the engines refuse is decoded by the CPU", "[images][nvjpeg]") {
  auto files = smooth_files(24);
  files[2] = progressive_file();
  files[5] = cmyk_file();
  files[9] = file_411();
  files[14] = Bytes(files[14].begin(), files[14].begin() + 700);
  HardwareOptions options = gpu_options();
  HardwareDecoder hardware(options);
  options.cpu_share = 1;
  HardwareDecoder cpu(options);
  const Batch by_hardware = decoded(hardware, files), by_cpu = decoded(cpu, files);
  for (std::size_t row = 0; row < 24; ++row) {
    INFO("row " << row);
    const bool refused = row == 2 || row == 5 || row == 9;
    CHECK(by_hardware.by[row] == (row == 14 ? DecodedBy::nobody
                                  : refused ? DecodedBy::cpu
                                            : DecodedBy::hardware));
    CHECK(difference(by_hardware, by_cpu, row).mean < 1.5);
    if (refused) CHECK(difference(by_hardware, by_cpu, row).largest == 0);
  }
  CHECK(hardware.stats().refused == 4);
  CHECK(hardware.stats().failed == 1);
}

TEST_CASE("nvJPEG: damage within an image leaves the others as they are", "[images][nvjpeg]") {
  auto files = smooth_files(16);
  HardwareDecoder decoder(gpu_options());
  const Batch good = decoded(decoder, files);
  files[6] = damaged(files[6]);
  const Batch changed = decoded(decoder, files);
  for (std::size_t row = 0; row < 16; ++row)
    if (row != 6) CHECK(difference(good, changed, row).largest == 0);
}

/// Calls of CUDA that allocate memory, by name.
std::vector<std::string> allocating_calls(const trace::Timeline& timeline) {
  std::vector<std::string> found;
  for (const trace::Event& event : timeline.events) {
    if (event.kind != trace::Kind::call) continue;
    const std::string name(timeline.name(event));
    for (const char* part : {"Malloc", "MemAlloc", "HostAlloc", "HostRegister", "MemCreate"})
      if (name.find(part) != std::string::npos) found.push_back(name);
  }
  return found;
}

TEST_CASE("nvJPEG allocates nothing after warm-up", "[images][nvjpeg]") {
  const auto files = smooth_files(64);
  std::vector<JpegItem> items;
  for (const Bytes& file : files) items.push_back({file, items.size()});
  const TestStream stream;
  const DeviceMemory<std::uint8_t> out(items.size() * kValues);
  HardwareDecoder decoder(gpu_options());
  const auto decode = [&](std::size_t rows) {
    decoder.decode(std::span(items).first(rows), RandomResizedCrop{.output = kOutput},
                   OutputFormat{.size = kOutput}, out.data(), stream);
  };
  for (int i = 0; i < 4; ++i) decode(64);  // each lane twice
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  trace::Session session;
  for (std::size_t i = 0; i < 20; ++i) decode(64 - i % 4);
  const trace::Timeline timeline = session.stop();
  REQUIRE(!timeline.events.empty());
  CHECK(allocating_calls(timeline) == std::vector<std::string>{});
}

TEST_CASE("nvJPEG: batches of every size, one behind the other", "[images][nvjpeg]") {
  const auto files = smooth_files(64);
  HardwareDecoder decoder(gpu_options());
  const Batch all = decoded(decoder, files);
  for (const std::size_t size : {1, 2, 7, 33, 64, 5}) {
    const Batch some = decoded(decoder, {files.begin(), files.begin() + static_cast<long>(size)});
    CHECK(std::equal(some.pixels.begin(), some.pixels.end(), all.pixels.begin()));
  }
  CHECK(decoder.stats().cpu == 0);
}

TEST_CASE("nvJPEG: several decoders, which many threads use at a time", "[images][nvjpeg]") {
  const auto files = smooth_files(48);
  std::vector<JpegItem> items;
  for (const Bytes& file : files) items.push_back({file, 100 + items.size()});
  const Batch expected = [&] {
    HardwareDecoder one(gpu_options());
    return decoded(one, files);
  }();
  HardwareOptions options = gpu_options();
  options.engine.decoders = 3;
  struct Worker {
    explicit Worker(const HardwareOptions& its) : decoder(its) {}
    HardwareDecoder decoder;
    TestStream stream;
    DeviceMemory<std::uint8_t> out{48 * kValues};
  };
  std::deque<Worker> workers;  // The first makes nvJPEG's decoders, for all of them.
  for (int i = 0; i < 4; ++i) workers.emplace_back(options);
  std::vector<std::thread> threads;
  for (Worker& worker : workers)
    threads.emplace_back([&] {
      for (int batch = 0; batch < 10; ++batch)
        worker.decoder.decode(items, RandomResizedCrop{.output = kOutput},
                              OutputFormat{.size = kOutput}, worker.out.data(), worker.stream);
    });
  for (std::thread& thread : threads) thread.join();
  for (Worker& worker : workers) {
    REQUIRE_CUDA(cudaStreamSynchronize(worker.stream));
    CHECK(worker.out.read() == expected.pixels);
    CHECK(worker.decoder.stats().hardware == 480);
  }
}

}  // namespace
}  // namespace penstock::images
