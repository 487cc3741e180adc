// SPDX-License-Identifier: Apache-2.0

#include "slow_disk.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>
#include <vector>

namespace penstock::test::slow_disk {
namespace {

constexpr std::uint64_t kSector = 4096;

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
bool happens(std::uint64_t draw, double part) {
  return static_cast<double>(draw >> 11) < part * 9007199254740992.0;  // 2^53
}

Plan plan_of_environment() {
  Plan plan;
  const char* const text = std::getenv("PENSTOCK_SLOW_DISK");
  std::istringstream in(text == nullptr ? "" : text);
  for (std::string word; std::getline(in, word, ',');) {
    const std::string key = word.substr(0, word.find('=')), value = word.substr(key.size() + 1);
    if (key == "match") plan.match = value;
    if (key == "seed") plan.seed = std::stoull(value);
    if (key == "short") plan.shortened = std::stod(value);
    if (key == "interrupted") plan.interrupted = std::stod(value);
    if (key == "slow") plan.slow = std::stod(value);
    if (key == "delay_us") plan.delay_us = std::stoi(value);
    if (key == "damaged") plan.damaged = std::stod(value);
  }
  return plan;
}

// Never destroyed: files are read until the process is gone.
Plan& plan() {
  static Plan& only = *new Plan(plan_of_environment());
  return only;
}

std::atomic<std::uint64_t> draws{0}, reads{0}, shortened{0}, interrupted{0}, slow{0}, failed{0};

std::uint64_t draw() {
  return mixed(plan().seed * 1'000'003 + draws.fetch_add(1));
}

bool is_chosen(std::string_view path) {
  return !plan().match.empty() && path.find(plan().match) != std::string_view::npos;
}

/// The path of an open file, empty for others than chosen ones.
std::string chosen_path(int descriptor) {
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ::ssize_t length = ::readlink(link, path, sizeof path);
  if (length <= 0 || !is_chosen({path, static_cast<std::size_t>(length)})) return {};
  return {path, static_cast<std::size_t>(length)};
}

bool is_damaged_sector(std::string_view path, std::uint64_t sector) {
  std::uint64_t name = plan().seed;  // of the last part, which does not tell where the file lies
  for (const char letter : path.substr(path.find_last_of('/') + 1))
    name = mixed(name + static_cast<unsigned char>(letter));
  return happens(mixed(name ^ mixed(sector + 1)), plan().damaged);
}

/// Bytes from `offset` on that are not damaged, at most `bytes`.
std::uint64_t readable(std::string_view path, std::uint64_t offset, std::uint64_t bytes) {
  for (std::uint64_t at = offset; at < offset + bytes; at = (at / kSector + 1) * kSector)
    if (is_damaged_sector(path, at / kSector)) return at - offset;
  return bytes;
}

void be_slow() {
  if (!happens(draw(), plan().slow)) return;
  slow.fetch_add(1);
  const timespec time{0, plan().delay_us * 1000L};
  ::nanosleep(&time, nullptr);
}

bool is_interrupted() {
  if (!happens(draw(), plan().interrupted)) return false;
  interrupted.fetch_add(1);
  errno = EINTR;
  return true;
}

/// How many bytes to ask the system for; 0: it failed, and errno says how.
std::size_t allowed(const std::string& path, std::uint64_t offset, std::size_t bytes) {
  reads.fetch_add(1);
  be_slow();
  if (is_interrupted()) return 0;
  const std::uint64_t there = readable(path, offset, bytes);
  if (there == 0) {
    failed.fetch_add(1);
    errno = EIO;
    return 0;
  }
  if (there > 1 && happens(draw(), plan().shortened)) {
    shortened.fetch_add(1);
    return 1 + static_cast<std::size_t>(draw() % (there - 1));
  }
  return static_cast<std::size_t>(there);
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

::ssize_t read_slowly(int descriptor, void* target, std::size_t bytes) {
  static auto* const function = next<::ssize_t(int, void*, std::size_t)>("read");
  const std::string path = bytes == 0 ? std::string() : chosen_path(descriptor);
  const ::off_t offset = path.empty() ? -1 : ::lseek(descriptor, 0, SEEK_CUR);
  if (offset < 0) return function(descriptor, target, bytes);
  bytes = allowed(path, static_cast<std::uint64_t>(offset), bytes);
  return bytes == 0 ? -1 : function(descriptor, target, bytes);
}

::ssize_t pread_slowly(int descriptor, void* target, std::size_t bytes, ::off_t offset) {
  static auto* const function = next<::ssize_t(int, void*, std::size_t, ::off_t)>("pread");
  const std::string path = bytes == 0 ? std::string() : chosen_path(descriptor);
  if (path.empty()) return function(descriptor, target, bytes, offset);
  bytes = allowed(path, static_cast<std::uint64_t>(offset), bytes);
  return bytes == 0 ? -1 : function(descriptor, target, bytes, offset);
}

::ssize_t preadv_slowly(int descriptor, const ::iovec* pieces, int count, ::off_t offset,
                        int flags) {
  static auto* const function = next<::ssize_t(int, const ::iovec*, int, ::off_t, int)>("preadv2");
  const std::string path = chosen_path(descriptor);
  std::size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += pieces[i].iov_len;
  if (path.empty() || bytes == 0) return function(descriptor, pieces, count, offset, flags);
  bytes = allowed(path, static_cast<std::uint64_t>(offset), bytes);
  if (bytes == 0) return -1;
  std::vector<::iovec> some(pieces, pieces + count);
  for (::iovec& piece : some) {
    piece.iov_len = std::min(piece.iov_len, bytes);
    bytes -= piece.iov_len;
  }
  return function(descriptor, some.data(), count, offset, flags);
}

int open_slowly(const char* path, int flags, ::mode_t mode) {
  static auto* const function = next<int(const char*, int, ...)>("open");
  if (is_chosen(path)) {
    be_slow();
    if (is_interrupted()) return -1;
  }
  return function(path, flags, mode);
}

/// At the end of the process.
struct Report {
  ~Report() {
    const char* const path = std::getenv("PENSTOCK_SLOW_DISK_REPORT");
    if (path == nullptr) return;
    if (std::FILE* const file = std::fopen(path, "w")) {
      const Counts all = counts();
      std::fprintf(file, "reads %llu\nshort %llu\ninterrupted %llu\nslow %llu\nfailed %llu\n",
                   static_cast<unsigned long long>(all.reads),
                   static_cast<unsigned long long>(all.shortened),
                   static_cast<unsigned long long>(all.interrupted),
                   static_cast<unsigned long long>(all.slow),
                   static_cast<unsigned long long>(all.failed));
      std::fclose(file);
    }
  }
} const report;

}  // namespace

void set(const Plan& new_plan) {
  plan() = new_plan;
}

Counts counts() {
  return {.reads = reads,
          .shortened = shortened,
          .interrupted = interrupted,
          .slow = slow,
          .failed = failed};
}

bool is_damaged(const std::string& path, std::uint64_t offset, std::uint64_t bytes) {
  return readable(path, offset, bytes) < bytes;
}

}  // namespace penstock::test::slow_disk

namespace disk = penstock::test::slow_disk;

extern "C" {

::ssize_t read(int descriptor, void* target, std::size_t bytes) {
  return disk::read_slowly(descriptor, target, bytes);
}
::ssize_t pread(int descriptor, void* target, std::size_t bytes, ::off_t offset) {
  return disk::pread_slowly(descriptor, target, bytes, offset);
}
::ssize_t pread64(int descriptor, void* target, std::size_t bytes, ::off64_t offset) {
  return disk::pread_slowly(descriptor, target, bytes, offset);
}
::ssize_t preadv(int descriptor, const ::iovec* pieces, int count, ::off_t offset) {
  return disk::preadv_slowly(descriptor, pieces, count, offset, 0);
}
::ssize_t preadv2(int descriptor, const ::iovec* pieces, int count, ::off_t offset, int flags) {
  return disk::preadv_slowly(descriptor, pieces, count, offset, flags);
}
int open(const char* path, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const ::mode_t mode =
      va_arg(arguments, ::mode_t);  // Whatever lies there, where it has no meaning.
  va_end(arguments);
  return disk::open_slowly(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const ::mode_t mode = va_arg(arguments, ::mode_t);
  va_end(arguments);
  return disk::open_slowly(path, flags, mode);
}

}  // extern "C"
