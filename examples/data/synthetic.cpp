// SPDX-License-Identifier: Apache-2.0
#include "synthetic.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "../common/cache_directory.hpp"
#include "cifar10.hpp"
#include "programs/output_file.hpp"
#include "shapes.hpp"

namespace synthetic {
namespace {

namespace fs = std::filesystem;

/// In a folder that others could write once there may be links to files of the user's.
constexpr penstock::programs::OutputOptions replacing_links{.follow_links = false};

/// Of a set's folder, until the end of its life: of several programs that need the set, one makes
/// it.
class SetLock {
 public:
  SetLock(const fs::path& directory, const Progress& progress)
      : descriptor_(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    // Where a file system has no locks, the files are written more than once, each whole.
    while (flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      if (progress && !progress(0)) {
        close(descriptor_);
        throw Interrupted();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  ~SetLock() { close(descriptor_); }
  SetLock(const SetLock&) = delete;
  SetLock& operator=(const SetLock&) = delete;

 private:
  int descriptor_;
};

/// One file of the set: records [first, first + records) of a split.
struct Part {
  std::string name;
  shapes::Split split;
  std::uint64_t first, records;
};

std::vector<Part> parts_of(const Options& options) {
  constexpr std::uint64_t files = cifar10::train_names.size();
  if (options.train < files || options.test < 1)
    throw std::invalid_argument("a data set needs at least " + std::to_string(files) +
                                " training records and 1 test record");
  std::vector<Part> parts;
  std::uint64_t first = 0;
  for (std::uint64_t i = 0; i < files; ++i) {
    const std::uint64_t records = options.train / files + (i < options.train % files ? 1 : 0);
    parts.push_back({cifar10::train_names[i], shapes::Split::train, first, records});
    first += records;
  }
  parts.push_back({cifar10::test_name, shapes::Split::test, 0, options.test});
  return parts;
}

/// Draws records [first, first + n) of a split into `out`, which is n records long, on all cores.
void draw_records(std::uint64_t seed, shapes::Split split, std::uint64_t first,
                  std::span<std::byte> out) {
  const std::size_t records = out.size() / cifar10::record_bytes;
  const std::size_t threads =
      std::min<std::size_t>(std::max(1u, std::thread::hardware_concurrency()), records);
  std::vector<std::jthread> team;
  for (std::size_t t = 0; t < threads; ++t)
    team.emplace_back([=] {
      for (std::size_t i = records * t / threads; i < records * (t + 1) / threads; ++i)
        shapes::draw(seed, split, first + i,
                     out.subspan(i * cifar10::record_bytes).first<cifar10::record_bytes>());
    });
}

void write_class_names(const fs::path& directory) {
  std::string text;
  for (const std::string name : shapes::names) text += name + "\n";
  penstock::programs::write_file(directory / cifar10::class_names_name, text, replacing_links);
}

bool is_complete(const fs::path& directory, const Options& options) {
  const std::vector<Part> parts = parts_of(options);
  std::error_code missing;
  return fs::exists(directory / cifar10::class_names_name, missing) &&
         std::all_of(parts.begin(), parts.end(), [&](const Part& part) {
           std::error_code error;
           return fs::file_size(directory / part.name, error) ==
                      part.records * cifar10::record_bytes &&
                  !error;
         });
}

}  // namespace

void make(const fs::path& directory, const Options& options, const Progress& progress) {
  constexpr std::uint64_t piece = 1000;  // records between two calls of `progress`: 3 MB
  const std::vector<Part> parts = parts_of(options);
  fs::create_directories(directory);
  fs::remove(directory / cifar10::class_names_name);  // its being there says that the set is whole
  std::vector<std::byte> buffer(piece * cifar10::record_bytes);
  std::uint64_t all_done = 0;
  for (const Part& part : parts) {
    penstock::programs::OutputFile file(directory / part.name, replacing_links);
    for (std::uint64_t done = 0; done < part.records;) {
      const std::uint64_t now = std::min(piece, part.records - done);
      const std::span<std::byte> out(buffer.data(), now * cifar10::record_bytes);
      draw_records(options.seed, part.split, part.first + done, out);
      file.write(out.data(), out.size());
      done += now;
      all_done += now;
      if (progress && !progress(all_done)) throw Interrupted();
    }
    file.commit();
  }
  write_class_names(directory);
}

fs::path ensure(const fs::path& cache, const Options& options, const Progress& progress) {
  const fs::path folder = cache.empty() ? examples::cache_directory() : cache;
  fs::create_directories(folder);
  const fs::path directory =
      folder / ("penstock-shapes-" + std::to_string(shapes::version) + "-seed-" +
                std::to_string(options.seed) + "-" + std::to_string(options.train) + "-" +
                std::to_string(options.test));
  examples::make_own_directory(directory);
  const SetLock lock(directory, progress);
  if (!is_complete(directory, options)) make(directory, options, progress);
  return directory;
}

bool would_replace(const fs::path& directory) {
  const std::vector<Part> parts = parts_of({});
  return fs::exists(directory / cifar10::class_names_name) ||
         std::any_of(parts.begin(), parts.end(),
                     [&](const Part& part) { return fs::exists(directory / part.name); });
}

void write_picture(const fs::path& file, std::uint64_t seed) {
  constexpr std::size_t columns = 16, gap = 2, cell_width = cifar10::width + gap,
                        cell_height = cifar10::height + gap;
  constexpr std::size_t width = columns * cell_width, height = shapes::names.size() * cell_height;
  std::vector<std::uint8_t> sheet(width * height * cifar10::channels, 255);
  std::array<std::size_t, cifar10::classes> shown{};
  for (std::uint64_t i = 0; i < columns * shapes::names.size(); ++i) {
    std::array<std::byte, cifar10::record_bytes> record;
    std::array<std::uint8_t, cifar10::pixel_bytes> pixels;
    shapes::draw(seed, shapes::Split::train, i, record);
    cifar10::decode(record, pixels.data());
    const auto row = static_cast<std::size_t>(cifar10::label_of(record));
    const std::size_t corner = row * cell_height * width + shown[row]++ * cell_width;
    constexpr std::size_t line = cifar10::width * cifar10::channels;
    for (std::size_t y = 0; y < cifar10::height; ++y)
      std::copy_n(&pixels[y * line], line, &sheet[(corner + y * width) * cifar10::channels]);
  }
  std::string picture = "P6\n" + std::to_string(width) + " " + std::to_string(height) + "\n255\n";
  picture.append(reinterpret_cast<const char*>(sheet.data()), sheet.size());
  penstock::programs::write_file(file, picture);
}

}  // namespace synthetic
