// SPDX-License-Identifier: Apache-2.0
#pragma once

// File: a file that is read at any offset, wherever its bytes are. The stores read Files, and do
// not know whether the bytes are on this machine or at a server.
//
//   const penstock::File file = penstock::File::open("imagenet-train.pack");
//   const penstock::PackedFile images(file);
//
// penstock::remote has Files of servers.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <penstock/detail/inline.hpp>
#include <span>
#include <string>

namespace penstock::inline PENSTOCK_ABI {

/// A part of a file.
struct FileRange {
  std::uint64_t offset = 0;  ///< of its first byte
  std::uint64_t bytes = 0;   ///< how many
};

class File;

/// Where the bytes of a sample are: a part of one of its store's files, valid as long as the store
/// or a copy of it.
struct FilePlace {
  const File& file;  ///< of the store
  FileRange range;   ///< of the file
};

/// A descriptor that reads past the page cache (O_DIRECT): begin and number of bytes of a read are
/// multiples of `offset_alignment`, and its memory begins at one of `memory_alignment`.
struct DirectFile {
  int descriptor = -1;                  ///< -1: there is none
  std::size_t offset_alignment = 4096;  ///< in bytes
  std::size_t memory_alignment = 4096;  ///< in bytes
};

/// The interface through which a File reads. penstock implements it for files of this machine, and
/// penstock::remote for objects of a server. Any number of threads may call the members at the same
/// time.
class FileReader {
 public:
  FileReader() = default;
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  virtual ~FileReader() = default;

  /// For messages: a path, or a URL without secrets. Is the same during the reader's life.
  virtual const std::string& name() const noexcept = 0;
  /// Bytes of the file when it was opened.
  virtual std::uint64_t size() const noexcept = 0;
  /// Fills `target` with the bytes from `offset` on, and returns how many there were: fewer than
  /// asked for only where the file ends. Throws std::runtime_error, whose text says why but does
  /// not name the file.
  virtual std::size_t read(std::uint64_t offset, std::span<std::byte> target) const = 0;
  /// Fetches these ranges ahead, without waiting. They will be read at about `due`; the epoch of
  /// the clock: nobody knows when; the last time of the clock: much later, so that nothing should
  /// be fetched now, but they are read in this order. A store gives each range as it will be read;
  /// of a file of this machine, neighbours as one. A hint: it has no errors.
  virtual void will_need(std::span<const FileRange> ranges,
                         std::chrono::steady_clock::time_point due) const noexcept = 0;
  /// The descriptor of a file of this machine; -1 for another one.
  virtual int descriptor() const noexcept { return -1; }
  /// Opens the same file once more, to be read past the page cache, at the first call. A file
  /// system that cannot do that has none, nor has a file of another machine.
  virtual DirectFile direct() const noexcept { return {}; }
};

/// A file that is open for reading. Copies share it, and the last one closes it. Any number of
/// threads may use one object.
class File {
 public:
  /// Opens a regular file of this machine. Throws std::system_error, whose text does not name the
  /// file.
  static File open(const std::filesystem::path& path);
  /// Throws std::invalid_argument for nullptr.
  explicit File(std::shared_ptr<const FileReader> reader);
  File(const File&) = default;  // A move copies: a File always has its reader.
  File& operator=(const File&) = default;

  /// For messages: the path, or a URL without secrets.
  const std::string& name() const noexcept { return reader_->name(); }
  /// Bytes of the file when it was opened.
  std::uint64_t size() const noexcept { return reader_->size(); }
  /// Fills `target` with the bytes from `offset` on, and returns how many there were: fewer than
  /// asked for only where the file ends. Waits for the bytes. Throws std::runtime_error, whose text
  /// does not name the file.
  std::size_t read(std::uint64_t offset, std::span<std::byte> target) const {
    return reader_->read(offset, target);
  }
  /// Asks for these ranges ahead, without waiting for them. They will be read at about `due`; the
  /// epoch of the clock: nobody knows when; the last time of the clock: much later, so that nothing
  /// is fetched now, but whoever keeps a cache knows what is read, in this order. A hint: it has no
  /// errors.
  void will_need(std::span<const FileRange> ranges,
                 std::chrono::steady_clock::time_point due = {}) const noexcept {
    reader_->will_need(ranges, due);
  }
  /// The descriptor of a file of this machine; -1 for another one.
  int descriptor() const noexcept { return reader_->descriptor(); }
  /// The same file past the page cache, which is opened at the first call; without one elsewhere.
  DirectFile direct() const noexcept { return reader_->direct(); }

 private:
  std::shared_ptr<const FileReader> reader_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/storage/file.hpp>
#endif
