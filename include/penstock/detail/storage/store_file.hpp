// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the stores share: StoreFile, a File whose errors name store and file; opened(); room_in(),
// memory for a sample; require_index().

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <penstock/detail/open_file.hpp>
#include <penstock/detail/usable.hpp>
#include <penstock/file.hpp>
#include <penstock/store.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// The first `bytes` bytes of `scratch`, which grows if it is too small and never shrinks. Throws
/// std::system_error for more than half of the memory that this process may use: what a damaged
/// index asks for must not end the process.
inline std::span<std::byte> room_in(std::vector<std::byte>& scratch, std::uint64_t bytes) {
  static const std::uint64_t most = usable_memory() / 2;
  if (bytes > most)
    throw std::system_error(ENOMEM, std::generic_category(),
                            std::to_string(bytes) + " bytes are more than half of the memory");
  if (scratch.size() < bytes) scratch.resize(static_cast<std::size_t>(bytes));
  return std::span(scratch).first(static_cast<std::size_t>(bytes));
}

/// Throws std::out_of_range unless index < size. `missing`: "TarShards: there is no sample ".
inline void require_index(std::uint64_t index, std::uint64_t size, const char* missing) {
  if (index >= size)
    throw std::out_of_range(missing + std::to_string(index) + ", but " + std::to_string(size) +
                            ", numbered from 0");
}

inline std::string shorter_by_now(std::uint64_t bytes_now, std::uint64_t bytes_before) {
  return "the file has " + std::to_string(bytes_now) + " bytes, and had " +
         std::to_string(bytes_before) + " when it was opened";
}

/// Opens a file for a store. Throws StoreError.
inline File opened(const char* store, const std::filesystem::path& path) try {
  return File::open(path);
} catch (const std::system_error& error) {
  const bool too_many = error.code().value() == EMFILE;
  throw StoreError(store, path,
                   std::string(error.what()) +
                       (too_many ? ". All files stay open: raise the limit (ulimit -n)" : ""));
}
/// One that is open already.
inline File opened(const char*, const File& file) {
  return file;
}

struct StoreFile {
  /// `store_name` has to outlive this.
  StoreFile(const char* store_name, const File& open_file)
      : store(store_name), file(open_file), bytes(file.size()) {}

  [[noreturn]] void fail(const std::string& why,
                         std::optional<std::uint64_t> sample = std::nullopt) const {
    throw StoreError(store, path(), why, sample);
  }

  /// Of a file of this machine; else its name.
  std::filesystem::path path() const { return file.name(); }
  bool is_local() const noexcept { return file.descriptor() >= 0; }

  /// Fills `target` with the bytes from `offset` on, and returns it. Throws std::runtime_error
  /// where they do not all come: the file is shorter now, or they cannot be read.
  std::span<std::byte> read(std::uint64_t offset, std::span<std::byte> target) const {
    const std::size_t count = file.read(offset, target);
    if (count == target.size()) return target;
    if (is_local())
      throw std::runtime_error(shorter_by_now(OpenFile::size_of(file.descriptor()), bytes));
    throw std::runtime_error("the file ends " + std::to_string(count) + " bytes behind byte " +
                             std::to_string(offset) + ", and had " + std::to_string(bytes) +
                             " bytes when it was opened");
  }
  /// The first bytes, in `room`, or all of them. Throws StoreError.
  std::span<const std::byte> read_start(std::span<std::byte> room) const {
    const std::uint64_t count = std::min<std::uint64_t>(bytes, room.size());
    const std::span<std::byte> start = room.first(static_cast<std::size_t>(count));
    read_or_fail(0, start);
    return start;
  }
  /// The same as read() for bytes without which the file is of no use. Throws StoreError.
  void read_or_fail(std::uint64_t offset, std::span<std::byte> target) const try {
    read(offset, target);
  } catch (const std::runtime_error& error) {
    fail(error.what());
  }

  const char* store;
  File file;
  std::uint64_t bytes;  // when it was opened
};

}  // namespace penstock::detail
