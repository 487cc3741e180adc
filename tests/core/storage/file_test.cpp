// SPDX-License-Identifier: Apache-2.0

// File: files of this machine.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <penstock/file.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using test::Mentions;
using test::TemporaryDirectory;
using test::thrown;
using test::write_file;

std::string text_at(const File& file, std::uint64_t offset, std::size_t bytes) {
  std::string text(bytes, '\0');
  text.resize(file.read(offset, std::as_writable_bytes(std::span(text))));
  return text;
}

TEST_CASE("File: a file of this machine has its name, its size and its bytes", "[file]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.txt";
  write_file(path, "0123456789");
  const File file = File::open(path);
  CHECK(file.name() == path.string());
  CHECK(file.size() == 10);
  CHECK(file.descriptor() >= 0);
  CHECK(text_at(file, 0, 10) == "0123456789");
  CHECK(text_at(file, 3, 4) == "3456");
  CHECK(text_at(file, 7, 4) == "789");  // Here it ends.
  CHECK(text_at(file, 10, 4).empty());
  CHECK(text_at(file, 99, 4).empty());
  CHECK(text_at(file, 2, 0).empty());
}

TEST_CASE("File: a file that is cut has the size that it was opened with, and fewer bytes",
          "[file]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.txt";
  write_file(path, "0123456789");
  const File file = File::open(path);
  std::filesystem::resize_file(path, 4);
  CHECK(file.size() == 10);
  CHECK(text_at(file, 2, 8) == "23");
}

TEST_CASE("File: copies share the file, which the last one closes", "[file]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.txt";
  write_file(path, "0123");
  std::optional<File> first = File::open(path);
  const int descriptor = first->descriptor();
  File other = *first, moved = std::move(*first);
  CHECK(first->size() == 4);  // A move copies.
  CHECK(other.descriptor() == descriptor);
  first.reset();
  std::filesystem::remove(path);
  CHECK(text_at(other, 0, 4) == "0123");
  CHECK(::fcntl(descriptor, F_GETFD) == FD_CLOEXEC);
  write_file(path, "another");
  other = moved = File::open(path);
  CHECK(::fcntl(descriptor, F_GETFD) == -1);
}

TEST_CASE("File: what cannot be opened is an error that does not name the file", "[file]") {
  const TemporaryDirectory directory;
  const auto why = [](const std::filesystem::path& path) {
    return thrown<std::system_error>([&] { File::open(path); });
  };
  CHECK(why(directory / "none") == "cannot open: No such file or directory");
  CHECK(why(directory / ".") == "not a regular file: Is a directory");
  CHECK_THAT(thrown<std::invalid_argument>([] { File(nullptr); }), Mentions("no reader"));
}

/// Bytes of the file that the page cache holds.
std::size_t cached_bytes(const File& file) {
  const auto bytes = static_cast<std::size_t>(file.size());
  void* const map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  REQUIRE(map != MAP_FAILED);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident((bytes + page - 1) / page);
  REQUIRE(::mincore(map, bytes, resident.data()) == 0);
  ::munmap(map, bytes);
  return page * static_cast<std::size_t>(std::ranges::count_if(
                    resident, [](unsigned char flags) { return (flags & 1u) != 0; }));
}

TEST_CASE("File::will_need reads a range of any size into memory, and takes any range", "[file]") {
  constexpr std::size_t kSize = std::size_t{12} << 20;  // more than a device reads at once
  const TemporaryDirectory directory;
  const auto path = directory / "a.bin";
  write_file(path, std::string(kSize, 'x'));
  const File file = File::open(path);
  ::fdatasync(file.descriptor());
  ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);  // where there is a disk
  const bool cold = cached_bytes(file) == 0;
  file.will_need({});
  file.will_need(std::vector<FileRange>{{kSize + 1, 5}, {~0ull, 1}, {~0ull - 3, ~0ull}, {7, 0}});
  CHECK((!cold || cached_bytes(file) == 0));
  file.will_need(std::vector<FileRange>{{0, 4096}, {8192, kSize - 8192}},
                 std::chrono::steady_clock::time_point(std::chrono::seconds(7)));
  if (cold) CHECK(test::eventually([&] { return cached_bytes(file) >= kSize - 8192; }));
  file.will_need(std::vector<FileRange>{{0, ~0ull}});
  CHECK(text_at(file, kSize - 1, 3) == "x");
}

}  // namespace
}  // namespace penstock
