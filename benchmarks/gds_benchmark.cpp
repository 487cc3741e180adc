// SPDX-License-Identifier: Apache-2.0

// Records of a file in batches on the device: by gds_source (cuFile), and by read_many_into into
// pinned memory and the pipeline's copy. Shuffled; out of the page cache's way, and from it. It
// says in which mode cuFile reads: in its compatibility mode the figures are no figures of
// GPUDirect Storage.
//
//   gds_benchmark [DIRECTORY [MEGABYTES [TURNS [WORKERS]]]]      1000 MB, 3 turns, 4 workers
//
// PENSTOCK_CUFILE may name the library.

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <penstock/gds/gds_source.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/read_queue.hpp>
#include <penstock/record_file.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using namespace penstock;
using Clock = std::chrono::steady_clock;

struct Rows {
  Tensor<std::uint8_t, 2> bytes;
};

constexpr std::int64_t kBatch = 256;
/// Records of an epoch, at most: in its compatibility mode cuFile takes seconds for as many.
constexpr std::uint64_t kMostRecords = 8192;

/// A file of random bytes, removed at the end.
struct Data {
  Data(const fs::path& directory, std::size_t megabytes)
      : path(directory / ("penstock_gds_benchmark_" + std::to_string(::getpid()) + ".bin")) {
    std::ofstream out(path, std::ios::binary);
    std::mt19937_64 random(1);
    std::vector<std::uint64_t> block((1 << 20) / 8);
    for (std::size_t i = 0; i < megabytes; ++i) {
      for (std::uint64_t& word : block) word = random();
      out.write(reinterpret_cast<const char*>(block.data()), 1 << 20);
    }
  }
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;
  ~Data() { fs::remove(path); }
  const fs::path path;
};

void drop(const File& file) {
  ::fdatasync(file.descriptor());
  ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
}
void warm(const File& file) {
  std::vector<std::byte> block(1 << 20);
  for (std::uint64_t offset = 0; offset < file.size(); offset += block.size())
    file.read(offset, block);
}

double processor_seconds() {
  ::rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const ::timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Rate {
  double megabytes;  // a second
  double processor;  // seconds for a gigabyte
};

/// An epoch through a pipeline, behind a batch with which it begins.
template <class Source>
Rate epoch(const RecordFile& store, const Source& source, int workers) {
  const auto record = static_cast<std::int64_t>(store.record_bytes());
  Prefetcher<Rows> prefetcher{Layout<Rows>{kBatch}.field(&Rows::bytes, {record}),
                              {.samples = std::min(store.size(), kMostRecords),
                               .batch_size = kBatch,
                               .shuffle = true,
                               .seed = 7},
                              source,
                              {.workers = workers}};
  const Stream stream;
  std::uint64_t bytes = 0;
  const double used = processor_seconds();
  const auto begin = Clock::now();
  while (const auto batch = prefetcher.next(stream.get()))
    bytes += static_cast<std::uint64_t>(batch->bytes.size());
  stream.synchronize();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const auto all = static_cast<double>(bytes);
  return {all / seconds * 1e-6, (processor_seconds() - used) / all * 1e9};
}

void print(const char* where, std::size_t record, const char* way, std::vector<Rate> rates) {
  std::ranges::sort(rates, {}, &Rate::megabytes);
  const Rate middle = rates[rates.size() / 2];
  std::printf("%-12s %9zu  %-34s %8.0f %8.0f to %-8.0f %10.2f\n", where, record, way,
              middle.megabytes, rates.front().megabytes, rates.back().megabytes, middle.processor);
  std::fflush(stdout);
}

void compare(const File& file, std::size_t record, bool is_cached, int turns, int workers,
             const gds::GdsOptions& options) {
  const std::size_t most = file.size() / record;
  const RecordFile store(file, FileRange{0, most * record}, record);
  const auto by_host = per_worker(
      [is_cached] {
        return ReadQueue({.direct = is_cached ? DirectReads::never : DirectReads::always});
      },
      [&store](ReadQueue& queue, const Ticket& ticket, Rows& batch) {
        const auto bytes = static_cast<std::size_t>(batch.bytes.size());
        store.read_many_into(ticket.samples,
                             std::as_writable_bytes(std::span(batch.bytes.data_handle(), bytes)),
                             queue);
      });
  const char* const where = is_cached ? "page cache" : "not cached";
  std::vector<Rate> host, batches, alone;
  for (int turn = 0; turn < turns; ++turn) {
    const auto measure = [&](const char* way, std::vector<Rate>& rates, const auto& source) {
      is_cached ? warm(file) : drop(file);
      rates.push_back(epoch(store, source, workers));
      std::fprintf(stderr, "%s, %zu bytes, %s: %.0f MB/s\n", where, record, way,
                   rates.back().megabytes);
    };
    measure("read_many_into", host, by_host);
    measure("batches", batches, gds::gds_source(store, &Rows::bytes, {.file = options}));
    measure(
        "one by one", alone,
        gds::gds_source(store, &Rows::bytes, {.file = options, .reader = {.use_batches = false}}));
  }
  print(where, record, "read_many_into, pipeline's copy", host);
  print(where, record, "gds_source, batches if direct", batches);
  print(where, record, "gds_source, one by one", alone);
}

}  // namespace

int main(int count, char** arguments) try {
  const auto number = [&](int place, int usual) {
    return count > place ? std::atoi(arguments[place]) : usual;
  };
  const Data data(count > 1 ? arguments[1] : ".", static_cast<std::size_t>(number(2, 1000)));
  const int turns = std::max(1, number(3, 3)), workers = number(4, 4);
  gds::GdsOptions options{.allow_compatibility_mode = true};
  if (const char* const named = std::getenv("PENSTOCK_CUFILE")) options.library = named;
  const File file = File::open(data.path);
  const gds::GdsFile kept(file, options);  // so that cuFile stays open
  if (kept.mode() == gds::GdsMode::direct)
    std::printf("cuFile reads directly\n");
  else
    std::printf("cuFile reads in its COMPATIBILITY MODE: %s\n", kept.why_compatible().c_str());
  std::printf("%d workers, batches of %lld, %d turns\n", workers, static_cast<long long>(kBatch),
              turns);
  std::fflush(stdout);
  std::printf("%-12s %9s  %-34s %8s %20s %10s\n", "file", "record", "way", "MB/s", "", "CPU s/GB");
  for (const bool is_cached : {false, true})
    for (const std::size_t record : {4096u, 12'296u, 131'072u})
      compare(file, record, is_cached, turns, workers, options);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gds_benchmark: %s\n", error.what());
  return 1;
}
