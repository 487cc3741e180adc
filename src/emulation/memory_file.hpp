// SPDX-License-Identifier: Apache-2.0
#pragma once

// Files in memory that have no name in any folder, so that nothing of them is left when the last
// process that uses them ends. Another process of the same user opens one by where it is: the
// process that has it open, the number of its descriptor there, and its name, which no other file
// has.

#include <sys/mman.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace penstock::emulation::detail {

inline constexpr int kReadWrite = PROT_READ | PROT_WRITE;

/// A new file in memory of `bytes` zeros; -1 where the system has none, and errno says why. Its
/// descriptor is above those of the standard streams. `flags`: of memfd_create.
int make_memory_file(const char* name, std::size_t bytes, unsigned flags);

/// What errno says of a file that could not be made or made longer, and what to do.
std::string why_no_file();

/// What is in a file that processes share.
enum class SharedKind : std::uint32_t { memory = 1, event = 2, pool = 3 };

/// Where a process finds a shared file.
struct FilePlace {
  std::int32_t process = 0;
  std::int32_t descriptor = -1;
  std::uint64_t number = 0;  ///< in the file's name
};

/// A file in memory that processes share. Nobody can shrink it: what is mapped of it stays there.
class SharedFile {
 public:
  /// A new one; null when the system has none, and errno says why.
  static std::shared_ptr<SharedFile> create(SharedKind kind, std::size_t bytes);
  /// The file of another process. Null when it is not there, or not open to this process; errno
  /// says why.
  static std::shared_ptr<SharedFile> find(SharedKind kind, const FilePlace& place);
  /// The file that this descriptor stands for, which stays the caller's. Null when it is none of
  /// this kind.
  static std::shared_ptr<SharedFile> of_descriptor(SharedKind kind, int descriptor);

  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  int descriptor() const { return descriptor_; }
  std::uint64_t number() const { return number_; }
  FilePlace place() const;
  std::size_t bytes() const;

  /// Makes the file longer by at least so many bytes: where they begin, at a whole page. -1: the
  /// system does not let it.
  off_t extend(std::size_t bytes);
  /// Gives the memory of these bytes back, which are zeros from now on.
  void forget(off_t offset, std::size_t bytes) const;

 private:
  SharedFile(int descriptor, std::uint64_t number) : descriptor_(descriptor), number_(number) {}

  int descriptor_;
  std::uint64_t number_;
};

/// Some pages of a shared file, readable and writable by every process that has them.
class SharedPages {
 public:
  SharedPages() = default;
  /// Empty when the bytes are not all in the file, or the system has no addresses.
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
/// Rounded up to whole pages; 0 when no number is that large.
std::size_t whole_pages(std::size_t bytes);

}  // namespace penstock::emulation::detail
