// SPDX-License-Identifier: Apache-2.0
#pragma once

// Files and folders in memory, in place of files that are not on this machine.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <penstock/file.hpp>
#include <penstock/file_folder.hpp>
#include <penstock/store.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/files.hpp"

namespace penstock::test {

using Time = std::chrono::steady_clock::time_point;

/// A file in memory that notes what it is asked for.
class MemoryFile final : public FileReader {
 public:
  MemoryFile(std::string name, std::string content)
      : bytes(std::move(content)), name_(std::move(name)), size_(bytes.size()) {}

  const std::string& name() const noexcept override { return name_; }
  std::uint64_t size() const noexcept override { return size_; }
  std::size_t read(std::uint64_t offset, std::span<std::byte> target) const override {
    ++std::atomic_ref(reads);  // Several threads may read.
    if (offset <= broken && broken - offset < target.size())
      throw std::runtime_error("the server is gone");
    if (offset >= bytes.size()) return 0;
    const std::size_t count = std::min<std::size_t>(target.size(), bytes.size() - offset);
    std::memcpy(target.data(), bytes.data() + offset, count);
    return count;
  }
  void will_need(std::span<const FileRange> some, Time when) const noexcept override {
    ++calls;
    due = when;
    for (const FileRange& range : some) ranges.emplace_back(range.offset, range.bytes);
  }

  int descriptor() const noexcept override { return number; }

  std::string bytes;
  int number = -1;
  std::uint64_t broken = ~0ull;  // A read of this byte fails.
  mutable std::uint64_t reads = 0, calls = 0;
  mutable std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;  // offset, bytes
  mutable Time due;                                                     // of the last call

 private:
  std::string name_;
  std::uint64_t size_;
};

/// Ranges that a file was asked for: offset, bytes.
using Asked = decltype(MemoryFile::ranges);

/// Returns a file in memory that has the bytes of the file `content`.
inline std::shared_ptr<MemoryFile> in_memory(const char* name,
                                             const std::filesystem::path& content) {
  return std::make_shared<MemoryFile>(name, read_file(content));
}

/// Returns the error of reading sample `index`, and checks its file and its number.
template <class AnyStore>
std::string failure(const AnyStore& store, std::uint64_t index, const char* file) {
  std::vector<std::byte> scratch;
  try {
    store.read(index, scratch);
  } catch (const StoreError& error) {
    CHECK(error.file() == file);
    CHECK(error.sample() == index);
    return error.what();
  }
  return "(nothing was thrown)";
}

/// A folder of files in memory that notes what it is asked for.
class MemoryFolder final : public FolderReader {
 public:
  const std::string& name() const noexcept override { return name_; }
  std::span<const std::byte> read(std::string_view file,
                                  std::vector<std::byte>& scratch) const override {
    const auto found = files.find(file);
    if (found == files.end()) throw std::runtime_error("there is no such object");
    const std::string& bytes = found->second;
    if (scratch.size() < bytes.size()) scratch.resize(bytes.size());
    std::ranges::copy(std::as_bytes(std::span(bytes)), scratch.begin());
    return std::span(scratch).first(bytes.size());
  }
  void will_need(std::span<const std::string_view> some, Time when) const noexcept override {
    ++calls;
    due = when;
    for (const std::string_view file : some) wanted.emplace_back(file);
  }

  std::map<std::string, std::string, std::less<>> files;
  mutable std::uint64_t calls = 0;
  mutable std::vector<std::string> wanted;
  mutable Time due;

 private:
  std::string name_ = "mem://bucket/train/";
};

}  // namespace penstock::test
