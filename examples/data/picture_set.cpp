// SPDX-License-Identifier: Apache-2.0
#include "picture_set.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <fstream>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "programs/output_file.hpp"
#include "tar_writer.hpp"

namespace picture_set {
namespace {

namespace fs = std::filesystem;
using pictures::Split;

void write_whole(const fs::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw std::runtime_error(path.string() + ": cannot be written");
}

std::vector<std::byte> ppm_file(const pictures::Picture& picture) {
  const std::string header =
      "P6\n" + std::to_string(picture.width) + " " + std::to_string(picture.height) + "\n255\n";
  std::vector<std::byte> file(header.size() + picture.rgb.size());
  std::ranges::copy(std::as_bytes(std::span(header)), file.begin());
  std::ranges::copy(std::as_bytes(std::span(picture.rgb)),
                    file.begin() + static_cast<std::ptrdiff_t>(header.size()));
  return file;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Pictures [first, end) of a split: what one thread writes at a time.
struct Piece {
  Split split;
  std::uint64_t first, end;
};

std::vector<Piece> pieces_of(const Options& options) {
  const std::uint64_t size = options.pictures_in_shard > 0 ? options.pictures_in_shard : 16;
  std::vector<Piece> pieces;
  for (const auto& [split, count] :
       {std::pair(Split::train, options.train), std::pair(Split::validation, options.validation)})
    for (std::uint64_t first = 0; first < count; first += size)
      pieces.push_back({split, first, std::min(first + size, count)});
  return pieces;
}

class Maker {
 public:
  Maker(fs::path directory, const Options& options)
      : directory_(std::move(directory)), options_(options), pieces_(pieces_of(options)) {}

  void run(const Progress& progress) {
    make_directories();
    std::vector<std::jthread> team;
    const std::size_t threads =
        std::min<std::size_t>(std::max(1u, std::thread::hardware_concurrency()), pieces_.size());
    working_ = threads;
    for (std::size_t i = 0; i < threads; ++i) team.emplace_back([this] { work(); });
    wait(progress);
    team.clear();
    if (error_) std::rethrow_exception(error_);
    if (progress && !progress(done_)) throw Interrupted();
    write_whole(directory_ / "classes.txt", class_names());
  }

 private:
  void make_directories() const {
    fs::create_directories(directory_);
    if (options_.pictures_in_shard > 0) return;
    for (const Split split : {Split::train, Split::validation})
      for (int label = 0; label < options_.pictures.classes; ++label)
        fs::create_directories(directory_ / name_of(split) /
                               pictures::class_name(options_.pictures, label));
  }

  std::string class_names() const {
    std::string text;
    for (int label = 0; label < options_.pictures.classes; ++label)
      text += pictures::class_name(options_.pictures, label) + "\n";
    return text;
  }

  void wait(const Progress& progress) {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, std::chrono::milliseconds(50), [this] { return working_ == 0; }))
      if (progress && !progress(done_)) stopping_ = true;
  }

  void work() {
    try {
      while (!stopping_) {
        const std::size_t next = claimed_++;
        if (next >= pieces_.size()) break;
        write(pieces_[next]);
      }
    } catch (...) {
      stopping_ = true;
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    --working_;
    ended_.notify_all();
  }

  void write(const Piece& piece) {
    if (options_.pictures_in_shard > 0) return write_shard(piece);
    for (std::uint64_t i = piece.first; i < piece.end && !stopping_; ++i, ++done_)
      write_whole(
          directory_ / name_of(piece.split) /
              pictures::class_name(options_.pictures, pictures::label(options_.pictures, i)) /
              (picture_name(piece.split, i) + (options_.ppm ? ".ppm" : ".JPEG")),
          text_of(file_of(piece.split, i)));
  }

  void write_shard(const Piece& piece) {
    example_data::TarWriter tar;
    for (std::uint64_t i = piece.first; i < piece.end && !stopping_; ++i, ++done_) {
      const std::string name = picture_name(piece.split, i);
      const std::string label = std::to_string(pictures::label(options_.pictures, i));
      tar.add(name + (options_.ppm ? ".ppm" : ".jpg"), file_of(piece.split, i));
      tar.add(name + ".cls", std::as_bytes(std::span(label)));
    }
    write_whole(directory_ / (name_of(piece.split) + "-" +
                              number(piece.first / options_.pictures_in_shard, 6) + ".tar"),
                tar.finished());
  }

  std::vector<std::byte> file_of(Split split, std::uint64_t index) const {
    const pictures::Picture picture = pictures::paint(options_.pictures, split, index);
    if (options_.ppm) return ppm_file(picture);
    return jpeg_writer::write(picture, pictures::look(options_.pictures, split, index).format);
  }

  static std::string name_of(Split split) { return split == Split::train ? "train" : "val"; }
  static std::string picture_name(Split split, std::uint64_t index) {
    return name_of(split) + "_" + number(index, 8);
  }
  static std::string number(std::uint64_t value, std::size_t digits) {
    const std::string text = std::to_string(value);
    return std::string(digits - std::min(digits, text.size()), '0') + text;
  }

  const fs::path directory_;
  const Options& options_;
  const std::vector<Piece> pieces_;
  std::atomic<std::size_t> claimed_{0};
  std::atomic<std::uint64_t> done_{0};  // pictures
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;  // Guards what follows.
  std::condition_variable ended_;
  std::size_t working_ = 0;
  std::exception_ptr error_;
};

void require_sense(const Options& options) {
  const pictures::Options& p = options.pictures;
  if (options.train + options.validation == 0)
    throw std::invalid_argument("a data set of no pictures");
  if (p.classes < 1 || p.classes > 1000)
    throw std::invalid_argument("the number of classes is 1 to 1000");
  if ((p.width > 0) != (p.height > 0) || p.width < 0 || p.width > 65'500 || p.height > 65'500)
    throw std::invalid_argument("width and height are 1 to 65500");
  constexpr std::int64_t most = 178'956'970;  // as much as readers of images take
  if (std::int64_t{p.width} * p.height > most)
    throw std::invalid_argument("pictures of " + std::to_string(p.width) + " x " +
                                std::to_string(p.height) + " pixels: " + std::to_string(most) +
                                " pixels at most");
}

}  // namespace

void make(const fs::path& directory, const Options& options, const Progress& progress) {
  if (directory.empty()) throw std::invalid_argument("no directory is named to write to");
  require_sense(options);
  if (fs::exists(directory))
    throw std::runtime_error(directory.string() + " exists: remove it, or name another directory");
  fs::path target = directory;
  if (!target.has_filename()) target = target.parent_path();  // "pictures/"
  const fs::path partial = penstock::programs::partial_name(target);
  try {
    Maker(partial, options).run(progress);
    fs::rename(partial, target);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(partial, ignored);
    throw;
  }
}

}  // namespace picture_set
