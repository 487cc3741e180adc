// SPDX-License-Identifier: Apache-2.0
#pragma once

// FileReads: which mapped files a thread reads while it makes one batch. A record that was whole
// when it was asked for can be cut off before it is copied; so each file is looked at once more
// when the batch is made, and the batch is not delivered if it is not whole.
//
//   with_whole_files([&] { return source(ticket, batch); });

#include <algorithm>
#include <cstddef>
#include <memory>
#include <penstock/detail/storage/sigbus_guard.hpp>
#include <vector>

namespace penstock::detail {

/// A file that can say whether it is still there.
class ReadableFile {
 public:
  ReadableFile() = default;
  ReadableFile(const ReadableFile&) = delete;
  ReadableFile& operator=(const ReadableFile&) = delete;
  virtual ~ReadableFile() = default;
  /// Throws where one of the first `bytes` bytes is lost.
  virtual void require(std::size_t bytes) const = 0;
};

class FileReads {
 public:
  FileReads() : first_(log().size()), outer_(innermost_) {
    if (log().capacity() == 0) {  // The first time on this thread.
      log().reserve(16);
      unblock_sigbus();
    }
    innermost_ = this;
  }
  ~FileReads() {
    log().erase(log().begin() + static_cast<std::ptrdiff_t>(first_), log().end());
    innermost_ = outer_;
    if (outer_ != nullptr) outer_->last_ = nullptr;  // The log may have moved.
  }
  FileReads(const FileReads&) = delete;
  FileReads& operator=(const FileReads&) = delete;

  /// Throws what the first file throws that has lost something which was read of it.
  void require_whole() const {
    for (std::size_t i = first_; i < log().size(); ++i) log()[i].file->require(log()[i].bytes);
  }

  /// This thread is about to read `file`, up to its byte `bytes`. The file stays alive until the
  /// batch is made. Does nothing where none is being made.
  template <class File>
  static void note(const std::shared_ptr<const File>& file, std::size_t bytes) {
    if (innermost_ != nullptr) innermost_->add(file, bytes);
  }

 private:
  struct Read {
    std::shared_ptr<const ReadableFile> file;
    std::size_t bytes;  // to the end of what was read
  };

  /// Of all FileReads of this thread, one inside the other; keeps its memory from batch to batch.
  static std::vector<Read>& log() {
    thread_local std::vector<Read> reads;
    return reads;
  }

  template <class File>
  void add(const std::shared_ptr<const File>& file, std::size_t bytes) {
    if (last_ == nullptr || last_->file != file) last_ = &find(file);
    last_->bytes = std::max(last_->bytes, bytes);
  }

  template <class File>
  Read& find(const std::shared_ptr<const File>& file) const {
    for (std::size_t i = first_; i < log().size(); ++i)
      if (log()[i].file == file) return log()[i];
    return log().emplace_back(Read{file, 0});
  }

  static inline thread_local FileReads* innermost_ = nullptr;
  const std::size_t first_;  // in the log
  FileReads* const outer_;
  Read* last_ = nullptr;  // of the file that was read last
};

/// Calls `make`, and returns what it returns or throws what it throws. But where a file has lost
/// what was read of it meanwhile, throws what the file says: what was read may have been zeros, and
/// complaints about them would mislead.
template <class Make>
auto with_whole_files(Make&& make) {
  const FileReads reads;
  auto made = [&] {
    try {
      return make();
    } catch (...) {
      reads.require_whole();
      throw;
    }
  }();
  reads.require_whole();
  return made;
}

}  // namespace penstock::detail
