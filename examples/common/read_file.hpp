// SPDX-License-Identifier: Apache-2.0
#pragma once

// Regular files, into memory: what is too large is refused before memory is taken for it, and
// nothing waits at a pipe.
//
//   const std::vector<std::byte> bytes = examples::read_file("names.txt", 1 << 20);

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace examples {

/// what() says why a file cannot be read, without its name: "No such file or directory".
class ReadError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A file that is open for reading. One thread at a time.
class RegularFile {
 public:
  /// Throws ReadError; also for folders, pipes and devices.
  explicit RegularFile(const std::filesystem::path& path);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  /// Bytes, when it was opened.
  std::uint64_t size() const { return size_; }
  /// Appends the next `most` bytes, or those that are left, to `bytes`. Throws ReadError.
  void append(std::vector<std::byte>& bytes, std::uint64_t most);

 private:
  int descriptor_;
  std::uint64_t size_ = 0;
};

/// All of a file of at most `limit` bytes. Throws ReadError.
std::vector<std::byte> read_file(const std::filesystem::path& path, std::uint64_t limit);
/// Its first `most` bytes, or what there is of them. Throws ReadError.
std::vector<std::byte> read_head(const std::filesystem::path& path, std::size_t most);

inline std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace examples
