// SPDX-License-Identifier: Apache-2.0

#include "disk_stores.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <penstock/file_folder.hpp>
#include <penstock/read_queue.hpp>
#include <penstock/tar_shards.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "../../support/tar_writer.hpp"
#include "slow_disk.hpp"

namespace penstock::test {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSamples = 60;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

std::string content_of(std::uint64_t sample) {
  return std::string(1000 + 397 * sample, static_cast<char>('A' + sample % 50)) +
         std::to_string(sample);
}

/// The same samples as files of a class, and as a tar.
struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "penstock_disk_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path = name;
    fs::create_directories(path / "files/class");
    TarWriter writer;
    for (std::uint64_t i = 0; i < kSamples; ++i) {
      const std::string image = std::to_string(100 + i) + ".jpg";
      std::ofstream(path / "files/class" / image, std::ios::binary) << content_of(i);
      writer.add(image, content_of(i)).add(std::to_string(100 + i) + ".cls", std::to_string(i));
    }
    writer.save(path / "shard.tar");
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path path;
};

void use_disk(const std::string& match, double damaged) {
  slow_disk::set({.match = match,
                  .seed = 5,
                  .shortened = 0.3,
                  .interrupted = 0.2,
                  .slow = 0.01,
                  .delay_us = 200,
                  .damaged = damaged});
}

/// How many samples could not be read. `step`: from one sample's label to the next one's.
template <class AnyStore>
std::uint64_t read_all(const AnyStore& store, std::uint64_t step) {
  require(store.size() == kSamples, "samples are missing");
  ReadQueue queue(
      {.method = ReadMethod::pread});  // What the kernel does for a ring is not seen here.
  std::vector<std::byte> scratch;
  std::uint64_t failed = 0;
  for (std::uint64_t i = 0; i < kSamples; ++i) try {
      const auto check = [&](std::size_t, std::span<const std::byte> bytes) {
        const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        require(text == content_of(i), "sample " + std::to_string(i) + " is torn");
      };
      check(0, store.read(i, scratch));
      store.read_many({&i, 1}, queue, check);
      require(store.label(i) == static_cast<std::int32_t>(i * step),
              "sample " + std::to_string(i) + " has a wrong label");
    } catch (const StoreError& error) {
      const std::string what = error.what();
      require(error.sample() == i && what.find("Input/output error") != std::string::npos &&
                  what.find(std::to_string(100 + i) + ".") != std::string::npos,
              "an error that does not say what it is about: " + what);
      ++failed;
    }
  return failed;
}

void read_slow(const Folder& folder) {
  use_disk(folder.path.filename(), 0);
  const FileFolder files(folder.path / "files");
  files.save_list(folder.path / "list.txt");
  const TarShards shards({folder.path / "shard.tar"}, {.use_indexes = false});
  shards.save_indexes();
  const std::uint64_t failed =
      read_all(files, 0) + read_all(shards, 1) +
      read_all(TarShards({folder.path / "shard.tar"}), 1) +
      read_all(FileFolder::from_list(folder.path / "list.txt", folder.path / "files"), 0);
  require(failed == 0, "a slow disk was taken for a damaged one");
}

void read_damaged(const Folder& folder) {
  use_disk(".jpg", 0.05);
  const std::uint64_t files = read_all(FileFolder(folder.path / "files"), 0);
  use_disk(".tar", 0.05);  // the index is readable
  const std::uint64_t members = read_all(TarShards({folder.path / "shard.tar"}), 1);
  std::cout << "of " << kSamples << " samples, " << files << " files and " << members
            << " members could not be read\n";
  for (const std::uint64_t failed : {files, members})
    require(failed > 0 && failed < kSamples, "the disk was not damaged, or all of it");
}

}  // namespace

void read_stores(std::uint64_t reads) {
  const Folder folder;
  for (std::uint64_t done = 0; done < reads; done += 4 * kSamples) read_slow(folder);
  const slow_disk::Counts counts = slow_disk::counts();
  require(counts.shortened > 0 && counts.interrupted > 0, "the disk was a good one");
  read_damaged(folder);
}

}  // namespace penstock::test
