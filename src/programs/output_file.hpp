// SPDX-License-Identifier: Apache-2.0
#pragma once

// OutputFile: a file that a program writes under a name that its user gives.
//
//   penstock::programs::OutputFile file("weights.safetensors");
//   file.write(bytes.data(), bytes.size());
//   file.commit();                                         // without this, nothing is changed
//
//   penstock::programs::write_file("result.json", text);
//   penstock::programs::require_writable("result.json");   // at the start: can it be written later?
//
// A regular file is replaced completely or not at all, even if several writers write it at the same
// time: the bytes go into a separate file in the same folder, which is then renamed. A link stays,
// and the file that it points to is replaced. Devices and pipes are opened and written, never
// replaced; so is the program's own standard output, under any name (/dev/stdout). Folders and
// block devices are refused.
//
// The partial file is called <name>.partial-<16 hexadecimal digits>. Its writer holds a lock
// (flock) on it. The next writer of the same name removes the partial file of a dead process.

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "file_size_signal.hpp"
#include "interrupt.hpp"
#include "partial_files.hpp"

namespace penstock::programs {

namespace detail {

inline constexpr std::string_view kPartial = ".partial-";
inline constexpr std::size_t kPartialDigits = 16;

/// Closes the descriptor.
class Descriptor {
 public:
  explicit Descriptor(int descriptor = -1) : descriptor_(descriptor) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return descriptor_; }
  void reset(int descriptor) {
    close();
    descriptor_ = descriptor;
  }
  /// Returns the result of close(). Call it once.
  int close() {
    const int descriptor = std::exchange(descriptor_, -1);
    return descriptor < 0 ? 0 : ::close(descriptor);
  }

 private:
  int descriptor_;
};

[[noreturn]] inline void fail_writing(const std::filesystem::path& path, int error) {
  std::string what = "cannot write " + path.string();
  rlimit limit{};
  if (error == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    what += ", since files may have " + std::to_string(limit.rlim_cur) + " bytes (ulimit -f)";
  throw std::system_error(error, std::generic_category(), what);
}
[[noreturn]] inline void fail_writing(const std::filesystem::path& path) {
  fail_writing(path, errno);
}

inline std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

// ---- The place of the output

/// A file that is replaced, or a device or pipe that is opened and written.
struct OutputPlace {
  std::filesystem::path file;  ///< the path after all links; empty: nothing is replaced
  int standard = -1;           ///< the program's own standard output or error
};

/// Returns the target of links that point to nothing yet.
inline std::filesystem::path end_of_links(std::filesystem::path path) {
  constexpr int most_links = 40;  // the limit of Linux
  std::error_code none;
  for (int links = 0; std::filesystem::is_symlink(path, none); ++links) {
    if (links == most_links) fail_writing(path, ELOOP);
    path = folder_of(path) / std::filesystem::read_symlink(path);
  }
  return path;
}

inline int standard_output_that_is(const struct stat& status) {
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat its {};
    const bool same =
        fstat(descriptor, &its) == 0 && its.st_dev == status.st_dev && its.st_ino == status.st_ino;
    if (same && (fcntl(descriptor, F_GETFL) & O_ACCMODE) != O_RDONLY) return descriptor;
  }
  return -1;
}

inline OutputPlace place_of(const std::filesystem::path& target, bool follow_links) {
  struct stat status {};
  if ((follow_links ? stat : lstat)(target.c_str(), &status) != 0) {
    if (errno != ENOENT) fail_writing(target);
    return {.file = follow_links ? end_of_links(target) : target};
  }
  if (S_ISDIR(status.st_mode)) fail_writing(target, EISDIR);
  if (S_ISBLK(status.st_mode)) fail_writing(target, ENOTSUP);
  if (S_ISLNK(status.st_mode)) return {.file = target};
  if (const int standard = standard_output_that_is(status); standard >= 0)
    return {.file = {}, .standard = standard};
  if (!S_ISREG(status.st_mode)) return {};
  if (!follow_links) return {.file = target};
  std::error_code nameless;  // for a removed file to which /proc still has a link
  const std::filesystem::path file = std::filesystem::canonical(target, nameless);
  return {.file = nameless ? std::filesystem::path() : file};
}

/// Waits for a short time. Throws if a signal asks the program to end.
inline void wait_a_little(int descriptor, const std::filesystem::path& path) {
  constexpr int patience = 50;  // milliseconds
  pollfd waited{descriptor, POLLOUT, 0};
  poll(&waited, descriptor < 0 ? 0 : 1, patience);
  if (interrupted()) fail_writing(path, EINTR);
}

/// Opens a device or a pipe. For a pipe it waits for a reader.
inline int open_stream(const std::filesystem::path& path) {
  const int flags = O_WRONLY | O_TRUNC | O_NOCTTY | O_CLOEXEC;
  std::error_code none;
  if (!std::filesystem::is_fifo(path, none)) return ::open(path.c_str(), flags);
  for (;;) {
    const int descriptor = ::open(path.c_str(), flags | O_NONBLOCK);
    if (descriptor >= 0 || errno != ENXIO) return descriptor;
    wait_a_little(-1, path);
  }
}

inline void write_all(int descriptor, std::string_view bytes, const std::filesystem::path& path) {
  const FileSizeSignal blocked;
  while (!bytes.empty()) {
    const ::ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written >= 0)
      bytes.remove_prefix(static_cast<std::size_t>(written));
    else if (errno == EAGAIN)
      wait_a_little(descriptor, path);
    else if (errno != EINTR)
      fail_writing(path);
  }
}

// ---- Partial files

inline bool is_partial_of(const std::string& target, const std::string& name) {
  const std::size_t prefix = target.size() + kPartial.size();
  return name.size() == prefix + kPartialDigits && name.starts_with(target) &&
         name.compare(target.size(), kPartial.size(), kPartial) == 0 &&
         name.find_first_not_of("0123456789abcdef", prefix) == std::string::npos;
}

/// Removes the file if its writer is dead; a living writer holds the lock.
inline void remove_if_left(const std::filesystem::path& partial) {
  const Descriptor file(
      ::open(partial.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (file.get() >= 0 && flock(file.get(), LOCK_EX | LOCK_NB) == 0) unlink(partial.c_str());
}

/// Errors are ignored here, because the file can be written anyway.
inline void remove_left_files(const std::filesystem::path& target) {
  const std::string name = target.filename().string();
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder_of(target), error), end;
       !error && entry != end; entry.increment(error))
    if (is_partial_of(name, entry->path().filename().string())) remove_if_left(entry->path());
}

/// After a rename, the new name must survive a loss of power.
inline void synchronise_folder(const std::filesystem::path& path) {
  const std::filesystem::path folder = folder_of(path);
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot do this for a folder, and a folder without read permission cannot be
  // opened.
  if (opened.get() < 0 && errno == EACCES) return;
  if (opened.get() < 0 || (fsync(opened.get()) != 0 && errno != EINVAL)) fail_writing(folder);
}

}  // namespace detail

/// Returns a name for a file next to `target` that no other process or thread uses.
inline std::filesystem::path partial_name(const std::filesystem::path& target) {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof(number), 0) != static_cast<::ssize_t>(sizeof(number)))
    detail::fail_writing(target);
  std::array<char, detail::kPartialDigits + 1> digits;
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(number));
  return target.string() + std::string(detail::kPartial) + digits.data();
}

struct OutputOptions {
  /// If false, a link at the target is replaced. Use this in folders where others may create links.
  bool follow_links = true;
  /// If false, a new file may be missing or empty after a loss of power.
  bool durable = true;
};
/// For output that can be made again from other files, or by another run of the program.
inline constexpr OutputOptions can_be_made_again{.durable = false};

/// Use each object on one thread at a time. Any number of objects, threads and processes may write
/// the same file; the last commit() wins. All functions throw std::system_error, which names the
/// target. EINTR means that a signal asked the program to end (interrupt.hpp) while it waited for a
/// pipe.
class OutputFile {
 public:
  /// Makes the partial file, or opens a device or a pipe. For a pipe it waits for a reader.
  explicit OutputFile(const std::filesystem::path& target, OutputOptions options = {})
      : target_(target), place_(detail::place_of(target, options.follow_links)), options_(options) {
    if (!place_.file.empty()) {
      make_partial_file();
      return;
    }
    file_.reset(place_.standard >= 0 ? fcntl(place_.standard, F_DUPFD_CLOEXEC, 3)
                                     : detail::open_stream(target_));
    if (file_.get() < 0) detail::fail_writing(target_);
  }
  /// Removes the partial file unless commit() has renamed it.
  ~OutputFile() {
    if (name_) unlink(partial_.c_str());
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Large pieces go to the system at once; small ones are collected.
  void write(std::string_view bytes) {
    constexpr std::size_t most_kept = std::size_t{1} << 20;
    if (buffer_.size() + bytes.size() > most_kept) flush();
    if (bytes.size() > most_kept) return detail::write_all(file_.get(), bytes, target_);
    buffer_ += bytes;
  }
  void write(const void* data, std::size_t bytes) {
    write(std::string_view(static_cast<const char*>(data), bytes));
  }

  /// Call it once. When it returns, the system has all bytes, and a durable file and its name are
  /// on the disk.
  void commit() {
    flush();
    const bool durable = options_.durable && name_;
    // The bytes come first, because the new name must not reach the disk before them.
    if (durable && fsync(file_.get()) != 0) detail::fail_writing(target_);
    // Some file systems report a full disk only at close. The file itself stays open and locked
    // until it has its final name, because other writers would take it for an abandoned one.
    const int copy = fcntl(file_.get(), F_DUPFD_CLOEXEC, 3);
    if (copy >= 0 && ::close(copy) != 0) detail::fail_writing(target_);
    if (name_ && rename(partial_.c_str(), place_.file.c_str()) != 0) detail::fail_writing(target_);
    file_.close();
    if (!name_) return;
    name_.reset();
    if (durable) detail::synchronise_folder(place_.file);
  }

 private:
  void make_partial_file() {
    partial_ = partial_name(place_.file);
    name_.emplace(partial_.string());
    detail::remove_left_files(place_.file);
    // Until the file is locked, another writer may take it for an abandoned one and remove it; then
    // this tries again.
    for (struct stat made{}; made.st_nlink == 0;) {
      file_.reset(
          ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
      if (file_.get() < 0) {
        const int error = errno;
        name_.reset();
        detail::fail_writing(target_, error);
      }
      // Without locks, no other writer removes it.
      static_cast<void>(flock(file_.get(), LOCK_EX));
      if (fstat(file_.get(), &made) != 0) detail::fail_writing(target_);
    }
    name_->look();
  }

  void flush() {
    detail::write_all(file_.get(), buffer_, target_);
    buffer_.clear();
  }

  const std::filesystem::path target_;
  const detail::OutputPlace place_;
  const OutputOptions options_;
  std::filesystem::path partial_;
  std::optional<PartialName> name_;  // exists while the partial file does
  detail::Descriptor file_;
  std::string buffer_;
};

/// Whether OutputFile threw the exception because a signal asked the program to end.
inline bool is_interrupt(const std::exception& error) {
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  return interrupted() && system != nullptr && system->code() == std::errc::interrupted;
}

/// Replaces the content of `target` by `text`. Throws like OutputFile.
inline void write_file(const std::filesystem::path& target, std::string_view text,
                       OutputOptions options = {}) {
  OutputFile file(target, options);
  file.write(text);
  file.commit();
}

/// Call this before long work. It throws the std::system_error that writing `target` would throw if
/// its folder does not exist or is not writable, or if `target` is refused. It changes nothing, and
/// opens neither devices nor pipes.
inline void require_writable(const std::filesystem::path& target) {
  if (!detail::place_of(target, true).file.empty()) static_cast<void>(OutputFile(target));
}

}  // namespace penstock::programs
