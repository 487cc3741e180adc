// SPDX-License-Identifier: Apache-2.0
#pragma once

// StoreFile: a file of a store, which stays open for reading. Its errors name store and file.

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <penstock/detail/read_only_file.hpp>
#include <penstock/store.hpp>
#include <span>
#include <string>
#include <system_error>

namespace penstock::detail {

struct StoreFile {
  /// Throws StoreError. `store_name` has to outlive this.
  StoreFile(const char* store_name, const std::filesystem::path& name) try
      : store(store_name), path(name), file(name), bytes(file.size()) {
  } catch (const std::system_error& error) {
    const bool too_many = error.code().value() == EMFILE;
    throw StoreError(store_name, name,
                     std::string(error.what()) +
                         (too_many ? ". All files stay open: raise the limit (ulimit -n)" : ""));
  }

  [[noreturn]] void fail(const std::string& why,
                         std::optional<std::uint64_t> sample = std::nullopt) const {
    throw StoreError(store, path, why, sample);
  }
  std::string shorter_by_now(std::uint64_t bytes_now) const {
    return "the file has " + std::to_string(bytes_now) + " bytes, and had " +
           std::to_string(bytes) + " when it was opened";
  }

  /// Fills the memory that room() returns with the bytes from `offset` on, and returns it. If they
  /// do not all come, `why` says why: the file is shorter now, the system cannot read them, or
  /// room() has thrown std::system_error.
  template <class Room>
  std::span<std::byte> read(std::uint64_t offset, const Room& room, std::string& why) const try {
    const std::span<std::byte> target = room();
    if (file.read(offset, target) < target.size()) why = shorter_by_now(file.size());
    return target;
  } catch (const std::system_error& error) {
    why = error.what();
    return {};
  }

  const char* store;
  std::filesystem::path path;
  ReadOnlyFile file;
  std::uint64_t bytes;  // when it was opened
};

}  // namespace penstock::detail
