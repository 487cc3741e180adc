// SPDX-License-Identifier: Apache-2.0

// docs/recipes/bad-samples.md: 100 files, 3 of which are cut. The run stops at them, leaves them
// out, or takes other samples in their place.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <penstock/penstock.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kFiles = 100, kBatch = 10, kBytes = 16;

struct Files {
  penstock::Tensor<std::uint8_t, 2> bytes;  // sample x byte
};

/// What a run has delivered, and what it has left out or replaced.
struct Result {
  std::int64_t batches = 0, samples = 0, errors = 0;
  penstock::Stats stats;
  std::vector<penstock::Failure> failures;
};

penstock::FileFolder write_files() {
  std::vector<std::filesystem::path> files;
  for (std::int64_t i = 0; i < kFiles; ++i) {
    files.emplace_back("file-" + std::to_string(i) + ".bin");
    const bool is_cut = i == 17 || i == 18 || i == 64;
    std::ofstream(files.back(), std::ios::binary) << std::string(is_cut ? 5 : kBytes, 'x');
  }
  return penstock::FileFolder::from_files(files);
}

Result run(const penstock::FileFolder& files, const penstock::FailurePolicy& policy) {
  const auto read = [&files, scratch = std::vector<std::byte>()](const penstock::Sample& sample,
                                                                 Files& batch) mutable {
    const std::span<const std::byte> bytes = files.read(sample.index, scratch);
    if (bytes.size() != kBytes)
      throw std::runtime_error("has " + std::to_string(bytes.size()) + " bytes, not 16");
    std::memcpy(&batch.bytes(sample.row, 0), bytes.data(), kBytes);
  };
  penstock::Prefetcher<Files> prefetcher{
      penstock::Layout<Files>{kBatch}.field(&Files::bytes, {kBytes}),
      {.samples = files.size()},
      penstock::per_sample(read),
      {.workers = 2, .on_failure = policy}};

  const penstock::Stream stream;
  Result result;
  while (true) {
    try {
      const auto batch = prefetcher.next(stream.get());
      if (!batch) break;
      ++result.batches;
      result.samples += batch.samples();  // your kernels, on *batch
    } catch (const penstock::SourceError& error) {
      ++result.errors;
      std::cout << "  " << error.what() << '\n';
    }
  }
  result.stats = prefetcher.stats();
  result.failures = prefetcher.failures();
  for (const penstock::Failure& failure : result.failures)
    std::cout << "  " << files.name(failure.samples.front()) << ": " << failure << '\n';
  return result;
}

/// Says what is not as it should be.
int wrong = 0;
void expect(bool as_it_should_be, const char* what) {
  if (as_it_should_be) return;
  ++wrong;
  std::cerr << "bad_samples: wrong: " << what << '\n';
}

}  // namespace

int main() {
  const penstock::FileFolder files = write_files();

  std::cout << "abort, the default\n";
  const Result abort = run(files, penstock::FailurePolicy::abort());
  expect(abort.errors == 2 && abort.batches == 8, "two batches fail, the others are delivered");

  std::cout << "skip\n";
  const Result skip = run(files, penstock::FailurePolicy::skip(10));
  expect(skip.errors == 0 && skip.batches == 10 && skip.samples == kFiles - 3,
         "three samples are left out");
  expect(skip.stats.skipped == 3 && skip.failures.size() == 3, "they are counted, and named");

  std::cout << "replace\n";
  const Result replace = run(files, penstock::FailurePolicy::replace(10));
  expect(replace.batches == 10 && replace.samples == kFiles, "every batch is full");
  expect(replace.stats.replaced == 3, "three samples are replaced");

  std::cout << "skip, at most one\n";
  const Result limited = run(files, penstock::FailurePolicy::skip(1));
  expect(limited.errors == 2 && limited.stats.skipped == 1, "beyond the limit next() throws");
  return wrong == 0 ? 0 : 1;
}
