// SPDX-License-Identifier: Apache-2.0

// penstock::gds with the real libcufile, in whichever mode this machine has. PENSTOCK_CUFILE may
// name the library; without it, and without a libcufile.so.0 that the linker finds, nothing is
// tested. TMPDIR says where the files are.

#include <penstock/gds/gds_source.hpp>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <penstock/prefetcher.hpp>
#include <penstock/record_file.hpp>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::gds {
namespace {

using namespace penstock::test;

const GdsOptions& real_library() {
  static const GdsOptions options = [] {
    GdsOptions found{.allow_compatibility_mode = true};
    const char* const named = std::getenv("PENSTOCK_CUFILE");  // NOLINT(concurrency-mt-unsafe)
    if (named != nullptr) found.library = named;
    if (named == nullptr && ::dlopen(found.library.c_str(), RTLD_NOW) == nullptr)
      found.library.clear();
    return found;
  }();
  return options;
}
bool has_no_library() {
  if (!real_library().library.empty()) return false;
  WARN("there is no libcufile.so.0: PENSTOCK_CUFILE may name it");
  return true;
}

std::string random_bytes(std::size_t count) {
  std::mt19937_64 random(count);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}
std::string first_of(const DeviceMemory<char>& memory, std::size_t count) {
  const std::vector<char> bytes = memory.read();
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)};
}

constexpr std::size_t kSize = 3'000'001;

struct DiskFile {
  TemporaryDirectory directory;
  std::filesystem::path path = directory / "random.bin";
  std::string bytes = random_bytes(kSize);
  DiskFile() {
    write_file(path, bytes);
    drop_from_cache(path);
  }
};

TEST_CASE("GdsFile reads with the real cuFile", "[gds][gpu]") {
  if (has_no_library()) return;
  const DiskFile disk;
  const File file = File::open(disk.path);
  const GdsFile on_gpu(file, real_library());
  if (on_gpu.mode() == GdsMode::compatibility) {
    std::cout << "cuFile's compatibility mode: " << on_gpu.why_compatible() << '\n';
    CHECK_THAT(thrown<GdsError>([&] { GdsFile(file, {.library = real_library().library}); }),
               Mentions("GdsOptions::allow_compatibility_mode"));
  }
  const DeviceMemory<char> memory(kSize + 64);
  CHECK(on_gpu.read(0, memory.data(), kSize) == kSize);
  CHECK((first_of(memory, kSize) == disk.bytes));
  for (const std::size_t offset : {0u, 1u, 511u, 4096u, 4097u, 1'000'000u})
    for (const std::size_t count : {1u, 512u, 4096u, 12'296u, 100'000u})
      for (const std::size_t shift : {0u, 1u, 16u, 4096u}) {
        CAPTURE(offset, count, shift);
        REQUIRE_CUDA(cudaMemset(memory.data(), 0, memory.bytes()));
        REQUIRE_CUDA(cudaDeviceSynchronize());
        REQUIRE(on_gpu.read(offset, memory.data() + shift, count) == count);
        const std::string now = first_of(memory, shift + count + 1);
        CHECK((now.substr(shift, count) == disk.bytes.substr(offset, count)));
        CHECK((shift == 0 || now[shift - 1] == 0));
        CHECK(now[shift + count] == 0);
      }
}

TEST_CASE("GdsFile and the real cuFile: where files end", "[gds][gpu]") {
  if (has_no_library()) return;
  const DiskFile disk;
  const GdsFile file(File::open(disk.path), real_library());
  const DeviceMemory<char> memory(10'000);
  CHECK(file.read(kSize - 100, memory.data(), 10'000) == 100);
  CHECK((first_of(memory, 100) == disk.bytes.substr(kSize - 100)));
  CHECK(file.read(kSize, memory.data(), 10) == 0);
  std::filesystem::resize_file(disk.path, 8192);
  CHECK(file.read(8000, memory.data(), 1000) == 192);
  CHECK((first_of(memory, 192) == disk.bytes.substr(8000, 192)));
  CHECK(file.read(20'000, memory.data(), 1000) == 0);
  GdsReader reader;
  const std::vector<GdsRequest> requests{{&file, 4000, memory.data(), 4096},
                                         {&file, 20'000, memory.data(), 100},
                                         {&file, 8000, memory.data() + 5000, 4096}};
  std::vector<std::size_t> counts(3);
  reader.read(requests, [&](const GdsOutcome& outcome) {
    CHECK_FALSE(outcome.error);
    counts[outcome.request] = outcome.bytes;
  });
  CHECK(counts == std::vector<std::size_t>{4096, 0, 192});
  CHECK((first_of(memory, 4096) == disk.bytes.substr(4000, 4096)));
}

TEST_CASE("GdsReader reads many rows with the real cuFile", "[gds][gpu]") {
  if (has_no_library()) return;
  const DiskFile disk;
  const GdsFile file(File::open(disk.path), real_library());
  const std::size_t row = GENERATE(512u, 4096u, 12'296u);
  const bool use_batches = GENERATE(true, false);
  const DeviceMemory<char> memory(row * 200);
  std::vector<GdsRequest> requests;
  std::string expected;
  std::mt19937_64 random(7);
  for (std::size_t k = 0; k < 200; ++k) {
    const std::size_t index = random() % (kSize / row);
    requests.push_back({&file, index * row, memory.data() + k * row, row});
    expected += disk.bytes.substr(index * row, row);
  }
  GdsReader reader({.use_batches = use_batches});
  std::size_t whole = 0;
  for (int turn = 0; turn < 3; ++turn)
    reader.read(requests, [&](const GdsOutcome& outcome) { whole += outcome.bytes == row; });
  CHECK(whole == 600);
  CHECK((first_of(memory, row * 200) == expected));
  std::cout << "rows of " << row << " bytes: " << reader.stats().batches << " batches, "
            << reader.stats().alone << " alone; " << reader.why_no_batches() << '\n';
}

struct GpuRows {
  Tensor<std::uint8_t, 2> bytes;
};

TEST_CASE("gds_source fills batches with the real cuFile", "[gds][gpu]") {
  if (has_no_library()) return;
  const TemporaryDirectory directory;
  const std::size_t record = GENERATE(4096u, 3073u);
  const RecordFile store({directory.records("a.bin", 0, 1000, record)}, record);
  Prefetcher<GpuRows> prefetcher{
      Layout<GpuRows>{64}.field(&GpuRows::bytes, {static_cast<std::int64_t>(record)}),
      {.samples = store.size(), .batch_size = 64, .shuffle = true},
      gds_source(store, &GpuRows::bytes, {.file = real_library()}),
      {.workers = 4, .device_depth = 3, .epochs = 4}};
  const TestStream stream;
  std::size_t samples = 0;
  while (const auto batch = prefetcher.next(stream)) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(batch->bytes.size()));
    REQUIRE_CUDA(cudaMemcpyAsync(bytes.data(), batch->bytes.data_handle(), bytes.size(),
                                 cudaMemcpyDeviceToHost, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    for (std::size_t row = 0; row < batch.ticket().samples.size(); ++row, ++samples)
      REQUIRE(
          is_record(std::span(bytes).subspan(row * record, record), batch.ticket().samples[row]));
  }
  CHECK(samples == 4000);
}

TEST_CASE("the real cuFile is opened and closed again and again", "[gds][gpu]") {
  if (has_no_library()) return;
  const DiskFile disk;
  const DeviceMemory<char> memory(4096);
  for (int i = 0; i < 10; ++i) {
    const GdsFile file(File::open(disk.path), real_library());
    REQUIRE(file.read(4096, memory.data(), 4096) == 4096);
    CHECK((first_of(memory, 4096) == disk.bytes.substr(4096, 4096)));
  }
}

TEST_CASE("a child of fork() leaves the real cuFile alone", "[gds][gpu]") {
  if (has_no_library()) return;
  const DiskFile disk;
  const DeviceMemory<char> memory(4096);
  const GdsFile file(File::open(disk.path), real_library());
  const ::pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const std::string what = thrown<GdsError>([&] { file.read(0, memory.data(), 10); });
    ::_exit(what.find("before fork()") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(file.read(0, memory.data(), 4096) == 4096);
}

}  // namespace
}  // namespace penstock::gds
