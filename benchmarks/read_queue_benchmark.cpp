// SPDX-License-Identifier: Apache-2.0

// ReadQueue on one core: cold records by depth, beside fio where it is installed, of the same size
// and depth on the same file, by turns; and what the page cache has, by a queue and by the stores'
// own reads, which should cost the same.
//
//   read_queue_benchmark [DIRECTORY [MEGABYTES [TURNS [SECONDS]]]]      2000 MB, 4 turns of 2 s

#include <fcntl.h>
#include <unistd.h>
#include <penstock/file_folder.hpp>
#include <penstock/packed_file.hpp>
#include <penstock/packed_file_writer.hpp>
#include <penstock/read_queue.hpp>
#include <penstock/record_file.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using namespace penstock;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void drop(const File& file) {
  ::fdatasync(file.descriptor());
  ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
}

/// A directory of its own, with a file of random bytes.
struct Data {
  Data(const fs::path& directory, std::uint64_t megabytes)
      : root(directory / ("penstock_read_queue_benchmark_" + std::to_string(::getpid()))) {
    fs::create_directories(root / "files/class");
    std::ofstream out(path(), std::ios::binary);
    std::mt19937_64 random(1);
    std::vector<std::uint64_t> block(1'000'000 / 8);
    for (std::uint64_t i = 0; i < megabytes; ++i) {
      for (std::uint64_t& word : block) word = random();
      out.write(reinterpret_cast<const char*>(block.data()), 1'000'000);
    }
  }
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;
  ~Data() { fs::remove_all(root); }
  fs::path path() const { return root / "data.bin"; }
  const fs::path root;
};

// ---- Cold
// -----------------------------------------------------------------------------------------

/// Reads a second, random and past the page cache.
double by_queue(const File& file, std::size_t bytes, std::size_t depth, double seconds) {
  ReadQueue queue({.depth = depth, .direct = DirectReads::always});
  std::mt19937_64 random(static_cast<std::uint64_t>(Clock::now().time_since_epoch().count()));
  // Rows that begin at a page, so that those of whole pages get their bytes without a copy.
  std::vector<std::byte> memory(256 * bytes + 4096);
  const auto misplaced = reinterpret_cast<std::uintptr_t>(memory.data()) % 4096;
  const std::span rows = std::span(memory).subspan(4096 - misplaced);
  // Enough that the end of a call, where the last ones are waited for, does not count.
  std::vector<ReadRequest> requests(1024 * depth);
  std::uint64_t reads = 0;
  const auto begin = Clock::now();
  while (seconds_since(begin) < seconds) {
    for (std::size_t i = 0; i < requests.size(); ++i)
      requests[i] = {&file, random() % (file.size() / bytes) * bytes,
                     rows.subspan(i % 256 * bytes, bytes)};
    queue.read(requests, [&](const ReadOutcome& outcome) { reads += outcome.bytes == bytes; });
  }
  return static_cast<double>(reads) / seconds_since(begin);
}

/// The same by fio; 0: it is not there.
double by_fio(const fs::path& path, std::size_t bytes, std::size_t depth, double seconds) {
  const std::string command =
      "fio --name=peer --readonly --rw=randread --ioengine=io_uring --direct=1 --time_based "
      "--norandommap --randrepeat=0 --output-format=terse --terse-version=3 --filename=" +
      path.string() + " --bs=" + std::to_string(bytes) + " --iodepth=" + std::to_string(depth) +
      " --runtime=" + std::to_string(static_cast<int>(seconds)) + " 2>/dev/null";
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  std::string line;
  for (int letter = std::fgetc(pipe); letter != EOF && letter != '\n'; letter = std::fgetc(pipe))
    line += static_cast<char>(letter);
  ::pclose(pipe);
  for (int field = 0; field < 7 && !line.empty(); ++field)
    line.erase(0, std::min(line.find(';'), line.size() - 1) + 1);
  return std::atof(line.c_str());
}

void cold(const Data& data, int turns, int seconds) {
  const File file = File::open(data.path());
  if (file.direct().descriptor < 0) {
    std::printf("the file system has no direct reads\n");
    return;
  }
  std::printf("%-14s %6s %12s %12s %8s\n", "cold", "depth", "queue, /s", "fio, /s", "ratio");
  for (const std::size_t bytes : {4096, 12'296})
    for (const std::size_t depth : {1, 8, 64}) {
      std::vector<double> own, fio, ratios;
      for (int i = 0; i < turns; ++i) {
        drop(file);
        const auto queue = [&] { own.push_back(by_queue(file, bytes, depth, seconds)); };
        const std::size_t sectors = (bytes + 511) / 512 * 512;
        if (i % 2 == 0) queue();
        fio.push_back(by_fio(data.path(), sectors, depth, seconds));
        if (i % 2 == 1) queue();
        ratios.push_back(own.back() / fio.back());
      }
      std::printf("%8zu bytes %6zu %12.0f %12.0f %8.3f\n", bytes, depth, median(own), median(fio),
                  median(ratios));
      std::fflush(stdout);
    }
}

// ---- Page cache
// -----------------------------------------------------------------------------------

constexpr std::size_t kBatch = 256;
using Way = std::function<void(std::span<const std::uint64_t>)>;

/// Nanoseconds for a sample, by turns; the ratios are to the first way.
void compare(const char* name, std::uint64_t samples, int turns,
             const std::vector<std::pair<const char*, Way>>& ways) {
  std::mt19937_64 random(3);
  std::vector<std::uint64_t> indices(kBatch * 64);
  for (std::uint64_t& index : indices) index = random() % samples;
  std::vector<std::vector<double>> times(ways.size()), ratios(ways.size());
  for (int turn = -1; turn < 5 * turns; ++turn)
    for (std::size_t way = 0; way < ways.size(); ++way) {
      const auto begin = Clock::now();
      for (std::size_t i = 0; i < indices.size(); i += kBatch)
        ways[way].second(std::span(indices).subspan(i, kBatch));
      const double time = seconds_since(begin) / static_cast<double>(indices.size()) * 1e9;
      if (turn < 0) continue;  // It brings the data into the page cache.
      times[way].push_back(time);
      ratios[way].push_back(time / times[0].back());
    }
  for (std::size_t way = 0; way < ways.size(); ++way)
    std::printf("%-22s %-24s %8.0f ns %10.0f /s %8.3f\n", name, ways[way].first, median(times[way]),
                1e9 / median(times[way]), median(ratios[way]));
  std::fflush(stdout);
}

void cached_records(const Data& data, std::size_t bytes, int turns) {
  const File file = File::open(data.path());
  constexpr std::uint64_t kBytes = 200'000'000;
  const RecordFile records(file, {0, std::min(file.size(), kBytes) / bytes * bytes}, bytes);
  ReadQueue queue, by_pread({.method = ReadMethod::pread});
  std::vector<std::byte> batch(kBatch * bytes), scratch;
  std::uint64_t sum = 0;
  const auto use = [&](std::size_t, std::span<const std::byte> record) {
    sum += static_cast<std::uint64_t>(record[0]);
  };
  const std::string name = "records of " + std::to_string(bytes);
  compare(name.c_str(), records.size(), turns,
          {{"read_into",
            [&](auto indices) {
              for (std::size_t i = 0; i < indices.size(); ++i)
                records.read_into(indices[i], std::span(batch).subspan(i * bytes, bytes));
            }},
           {"read_many", [&](auto indices) { records.read_many(indices, batch); }},
           {"read_many_into, queue",
            [&](auto indices) { records.read_many_into(indices, batch, queue); }},
           {"the same by pread",
            [&](auto indices) { records.read_many_into(indices, batch, by_pread); }},
           {"read_many, queue", [&](auto indices) { records.read_many(indices, queue, use); }}});
}

template <class AnyStore>
void cached_store(const char* name, const AnyStore& store, int turns) {
  ReadQueue queue;
  std::vector<std::byte> scratch;
  std::uint64_t sum = 0;
  const auto use = [&](std::size_t, std::span<const std::byte> bytes) {
    sum += static_cast<std::uint64_t>(bytes[0]);
  };
  compare(name, store.size(), turns,
          {{"read",
            [&](auto indices) {
              for (const std::uint64_t index : indices) use(0, store.read(index, scratch));
            }},
           {"read_many, queue", [&](auto indices) { store.read_many(indices, queue, use); }}});
}

void cached(const Data& data, int turns) {
  std::printf("\n%-22s %-24s %11s %13s %8s\n", "page cache", "way", "a sample", "", "ratio");
  for (const std::size_t bytes : {4096, 12'296}) cached_records(data, bytes, turns);
  PackedFileWriter writer(data.root / "a.pack", "");
  const std::string bytes(20'000, 'x');
  for (int i = 0; i < 4000; ++i) {
    writer.append(std::as_bytes(std::span(bytes)), 0, {});
    std::ofstream(data.root / "files/class" / (std::to_string(i) + ".jpg"), std::ios::binary)
        << bytes;
  }
  writer.finish();
  cached_store("PackedFile of 20 kB", PackedFile(data.root / "a.pack"), turns);
  cached_store("FileFolder of 20 kB", FileFolder(data.root / "files"), turns);
}

}  // namespace

int main(int argc, char** argv) {
  const fs::path directory = argc > 1 ? fs::path(argv[1]) : fs::temp_directory_path();
  const std::uint64_t megabytes = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 2000;
  const int turns = argc > 3 ? std::atoi(argv[3]) : 4;
  const int seconds = argc > 4 ? std::atoi(argv[4]) : 2;
  if (argc > 5 || !fs::is_directory(directory) || megabytes < 1 || turns < 1 || seconds < 1) {
    std::fprintf(stderr,
                 "use: read_queue_benchmark [DIRECTORY [MEGABYTES [TURNS [SECONDS]]]]: a directory "
                 "that exists, at least 1 MB, at least 1 turn, at least 1 second a turn\n");
    return 2;
  }
  const Data data(directory, megabytes);
  if (const ReadQueue queue; !queue.why_not_io_uring().empty())
    std::printf("without io_uring: %s\n", queue.why_not_io_uring().c_str());
  cold(data, turns, seconds);
  cached(data, turns);
}
