// SPDX-License-Identifier: Apache-2.0
#pragma once

// Files in memory without a name in any folder, so nothing of them remains when the last process
// that uses them ends. Another process of the same user finds a file by three things: the process
// that has it open, its descriptor there, and its name, which is unique.

#include <sys/mman.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/version.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

inline constexpr int kReadWrite = PROT_READ | PROT_WRITE;

/// Creates a file in memory with `bytes` zeros. Returns -1 if the system refuses; errno then says
/// why. The descriptor is greater than those of the standard streams. `flags` are those of
/// memfd_create.
int make_memory_file(const char* name, std::size_t bytes, unsigned flags);

/// Returns a message for errno after a file could not be made or extended, with a remedy.
std::string why_no_file();

/// The content of a file that processes share.
enum class SharedKind : std::uint32_t { memory = 1, event = 2, pool = 3 };

/// The place where a process finds a shared file.
struct FilePlace {
  std::int32_t process = 0;
  std::int32_t descriptor = -1;
  std::uint64_t number = 0;  ///< the number in the file's name
};

/// A file in memory that processes share. It cannot be shrunk, so mapped pages of it stay valid.
class SharedFile {
 public:
  /// Creates a file. Returns null if the system refuses; errno then says why.
  static std::shared_ptr<SharedFile> create(SharedKind kind, std::size_t bytes);
  /// Opens the file of another process. Returns null if the file does not exist or this process may
  /// not open it; errno then says why.
  static std::shared_ptr<SharedFile> find(SharedKind kind, const FilePlace& place);
  /// Opens the file of this descriptor; the caller keeps the descriptor. Returns null if the file
  /// is not of this kind.
  static std::shared_ptr<SharedFile> of_descriptor(SharedKind kind, int descriptor);

  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  int descriptor() const { return descriptor_; }
  std::uint64_t number() const { return number_; }
  FilePlace place() const;
  std::size_t bytes() const;

  /// Extends the file by at least `bytes`. Returns the offset of the new bytes, at a page boundary,
  /// or -1 if the system refuses.
  off_t extend(std::size_t bytes);
  /// Returns the memory of these bytes to the system. They read as zeros afterwards.
  void forget(off_t offset, std::size_t bytes) const;

 private:
  SharedFile(int descriptor, std::uint64_t number) : descriptor_(descriptor), number_(number) {}

  int descriptor_;
  std::uint64_t number_;
};

/// Mapped pages of a shared file. Every process that maps them can read and write them.
class SharedPages {
 public:
  SharedPages() = default;
  /// The result is empty if the file does not contain all of the bytes, or if the system has no
  /// addresses.
  SharedPages(const SharedFile& file, off_t offset, std::size_t bytes);
  ~SharedPages();
  SharedPages(SharedPages&& other) noexcept;
  SharedPages& operator=(SharedPages&& other) noexcept;

  explicit operator bool() const { return data_ != nullptr; }
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

std::size_t page_size();
/// Rounds up to whole pages. Returns 0 on overflow.
std::size_t whole_pages(std::size_t bytes);

}  // namespace penstock::emulation::detail
