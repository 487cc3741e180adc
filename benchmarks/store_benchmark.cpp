// SPDX-License-Identifier: Apache-2.0

// Cold reads of random samples: out of files and out of a tar, by pread alone, out of mapped
// memory, and with will_need so many batches ahead (ReadAhead), by 1 worker and by 8. Before each
// run the files are dropped from the page cache; a table says how much of them is in it all the
// same, and the medians of the runs. What lies below (a controller, the host of a virtual machine)
// may still know the data.
//
//   store_benchmark [DIRECTORY [SAMPLES [RUNS]]]     4000 samples of 114,660 bytes, ImageNet's mean

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <penstock/batch_producer.hpp>
#include <penstock/file_folder.hpp>
#include <penstock/tar_shards.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "../tests/support/tar_writer.hpp"

namespace {

namespace fs = std::filesystem;
using namespace penstock;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kSampleBytes = 114'660;
constexpr std::int64_t kBatchSize = 64;

struct Sums {
  Tensor<std::uint64_t, 1> sum;  // of a sample's bytes, so that each is read
};

std::uint64_t sum_of(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, &bytes[i], 8);
    sum += word;
  }
  return sum;
}

/// A file that is open to be mapped or dropped from the page cache.
class File {
 public:
  explicit File(const fs::path& path)
      : number_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), bytes_(fs::file_size(path)) {
    if (number_ < 0) throw std::runtime_error("cannot open " + path.string());
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(number_); }

  void drop() const {
    ::fdatasync(number_);
    ::posix_fadvise(number_, 0, 0, POSIX_FADV_DONTNEED);
  }
  /// `use` is called with the whole file.
  template <class Use>
  auto mapped(const Use& use) const {
    void* const memory = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, number_, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("cannot map a file");
    const auto result = use(std::span(static_cast<const std::byte*>(memory), bytes_));
    ::munmap(memory, bytes_);
    return result;
  }
  /// Pages that are in the page cache.
  std::size_t cached() const {
    return mapped([](std::span<const std::byte> bytes) {
      std::vector<unsigned char> pages((bytes.size() + 4095) / 4096);
      ::mincore(const_cast<std::byte*>(bytes.data()), bytes.size(), pages.data());
      std::size_t count = 0;
      for (const unsigned char page : pages) count += page & 1u;
      return count;
    });
  }

 private:
  int number_;
  std::size_t bytes_;
};

/// The same samples as files and as a tar.
struct Data {
  Data(const fs::path& directory, std::uint64_t count)
      : root(directory / ("penstock_store_benchmark_" + std::to_string(::getpid()))),
        samples(count) {
    fs::create_directories(root / "files/class");
    std::ofstream tar(root / "shard.tar", std::ios::binary);
    std::mt19937_64 random(1);
    std::string bytes(kSampleBytes, '\0');
    for (std::uint64_t i = 0; i < count; ++i) {
      for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
        const std::uint64_t word = random();
        std::memcpy(&bytes[at], &word, 8);
      }
      const std::string name = std::to_string(100'000'000 + i) + ".jpg";
      std::ofstream(root / "files/class" / name, std::ios::binary) << bytes;
      tar << test::TarWriter::header(name, bytes.size()) << bytes
          << std::string((512 - bytes.size() % 512) % 512, '\0');
    }
    tar << std::string(1024, '\0');
  }
  ~Data() { fs::remove_all(root); }
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;

  std::vector<fs::path> files() const {
    std::vector<fs::path> all{root / "shard.tar"};
    for (std::uint64_t i = 0; i < samples; ++i)
      all.push_back(root / "files/class" / (std::to_string(100'000'000 + i) + ".jpg"));
    return all;
  }

  const fs::path root;
  const std::uint64_t samples;
};

/// The bytes of samples, read by way of mapped files instead of a store's pread.
struct MappedTar {
  std::uint64_t sum(std::uint64_t i) const {
    constexpr std::size_t kStride = 512 + (kSampleBytes + 511) / 512 * 512;
    return sum_of(bytes.subspan(i * kStride + 512, kSampleBytes));
  }
  std::span<const std::byte> bytes;
};
struct MappedFiles {
  std::uint64_t sum(std::uint64_t i) const {
    return File(files[i + 1]).mapped([](auto bytes) { return sum_of(bytes); });
  }
  const std::vector<fs::path>& files;
};
template <class AnyStore>
struct Read {
  std::uint64_t sum(std::uint64_t i) const {
    thread_local std::vector<std::byte> scratch(kSampleBytes + 512);
    return sum_of(store.read(i, scratch));
  }
  const AnyStore& store;
};

class Benchmark {
 public:
  Benchmark(const Data& data, int runs) : data_(data), files_(data.files()), runs_(runs) {}

  void run() {
    const FileFolder files(data_.root / "files");
    const TarShards shards({data_.root / "shard.tar"});
    std::printf("%-6s %-14s %8s %11s %8s %8s\n", "store", "way", "workers", "samples/s", "MB/s",
                "cached");
    for (const int workers : {1, 8}) {
      table("files", workers, files, [&] { return seconds_of(workers, MappedFiles{files_}, {}); });
      table("tar", workers, shards, [&] {  // What is mapped cannot be dropped: only for a run.
        return File(files_.front()).mapped([&](std::span<const std::byte> bytes) {
          return seconds_of(workers, MappedTar{bytes}, {});
        });
      });
    }
  }

 private:
  template <class AnyStore, class Mapped>
  void table(const char* name, int workers, const AnyStore& store, const Mapped& mapped) const {
    const auto read = [&](const ReadAhead& ahead) {
      return [&, ahead] { return seconds_of(workers, Read<AnyStore>{store}, ahead); };
    };
    row(name, "pread", workers, read({}));
    row(name, "mmap", workers, mapped);
    for (const std::uint64_t ahead : {1u, 4u, 16u})
      row(name, "will_need " + std::to_string(ahead), workers, read(read_ahead(store, ahead)));
  }

  template <class Time>
  void row(const char* name, const std::string& way, int workers, const Time& time) const {
    std::vector<double> seconds;
    double cached = 0;
    for (int i = 0; i < runs_; ++i) {
      cached = std::max(cached, drop());
      seconds.push_back(time());
    }
    std::sort(seconds.begin(), seconds.end());
    const double rate = static_cast<double>(data_.samples) / seconds[seconds.size() / 2];
    std::printf("%-6s %-14s %8d %11.0f %8.0f %7.1f%%\n", name, way.c_str(), workers, rate,
                rate * static_cast<double>(kSampleBytes) / 1e6, 100 * cached);
    std::fflush(stdout);
  }

  /// Part of the files' pages that is in the page cache all the same.
  double drop() const {
    std::size_t cached = 0;
    for (const fs::path& path : files_) File(path).drop();
    for (const fs::path& path : files_) cached += File(path).cached();
    const double bytes = 2.0 * static_cast<double>(data_.samples) * kSampleBytes;
    return static_cast<double>(cached) * 4096 / bytes;
  }

  /// Of an epoch in shuffled order.
  template <class Reader>
  double seconds_of(int workers, const Reader& reader, const ReadAhead& ahead) const {
    const Sampler sampler{
        {.samples = data_.samples, .batch_size = kBatchSize, .shuffle = true, .seed = 7}};
    const auto source = [&](const Ticket& ticket, Sums& batch) {
      for (std::size_t i = 0; i < ticket.samples.size(); ++i)
        batch.sum(static_cast<std::int64_t>(i)) = reader.sum(ticket.samples[i]);
    };
    const auto layout = Layout<Sums>{kBatchSize}.field(&Sums::sum, {});
    const std::size_t depth = static_cast<std::size_t>(workers) + 2;
    PinnedPool pool;
    pool.reserve(depth + 1, BatchProducer<Sums>::block_bytes(layout));  // One is with the consumer.
    const auto begin = Clock::now();
    BatchProducer<Sums> producer(layout, sampler, source, pool,
                                 {.workers = workers, .depth = depth, .read_ahead = ahead});
    while (producer.next()) {
    }
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  const Data& data_;
  const std::vector<fs::path> files_;
  const int runs_;
};

}  // namespace

int main(int argc, char** argv) {
  const fs::path directory = argc > 1 ? fs::path(argv[1]) : fs::temp_directory_path();
  const std::uint64_t samples = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 4000;
  const int runs = argc > 3 ? std::atoi(argv[3]) : 3;
  if (argc > 4 || !fs::is_directory(directory) || samples < kBatchSize || runs < 1) {
    std::fprintf(stderr,
                 "use: store_benchmark [DIRECTORY [SAMPLES [RUNS]]]: a directory that exists, at "
                 "least %lld samples, at least 1 run\n",
                 static_cast<long long>(kBatchSize));
    return 2;
  }
  const Data data(directory, samples);
  Benchmark(data, runs).run();
}
